"""Conditions on sizes that a module's forward decided by while it was exported: `if x.shape[1] > 100`, `n % 2 == 0`.

The exported graph is of one way through forward. torch.export notes each condition that it took for granted (the guards
of its shape environment), with the line that asked. Those that an operator's own rules asked follow from the printed
calls and are found again wherever these are exported. Those that the module's Python asked are nowhere in the graph: they
are printed as assertions on the inputs' sizes. A size that had to be one number is that number in the printed file.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram

from mtmc.errors import TaskError

_log = logging.getLogger(__name__)

_SYMBOL = re.compile(r"\b[a-z]+\d+\b")
_TORCH = os.path.dirname(torch.__file__) + os.sep
_MODULES_OF_TORCH = os.path.join(_TORCH, "nn", "")


def conditions(program: ExportedProgram, inputs: Sequence[str], sizes: Sequence[Sequence[Any]], name: str) -> list[str]:
    """What a module's Python asked of sizes and got, as expressions in the sizes of the inputs.

    inputs, sizes: names of the inputs, and the sizes that the export gives them. name: of the task, for errors.
    Raises: TaskError for a condition that cannot be written.
    """
    environment = _environment(sizes)
    if environment is None:
        return []
    known = _sizes_of_symbols(inputs, sizes)
    found: dict[str, None] = {}
    for guard in environment.guards:
        if _asked_by_an_operator(guard):
            continue
        found.setdefault(_text(guard.expr, environment, known, name))
    return [text for text in found if text != "True"]


def _environment(sizes: Sequence[Sequence[Any]]) -> Any:
    """The shape environment of an export, None where every size is a number."""
    for size in (size for shape in sizes for size in shape):
        if isinstance(size, torch.SymInt):
            return size.node.shape_env
    return None


def _sizes_of_symbols(inputs: Sequence[str], sizes: Sequence[Sequence[Any]]) -> Mapping[str, str]:
    """Symbol -> the first size of an input that is this symbol, or a multiple of it."""
    found: dict[str, str] = {}
    for name, shape in zip(inputs, sizes, strict=True):
        for dim, size in enumerate(shape):
            if isinstance(size, torch.SymInt) and re.fullmatch(_SYMBOL, str(size)):
                found.setdefault(str(size), f"{name}.shape[{dim}]")
    for name, shape in zip(inputs, sizes, strict=True):
        for dim, size in enumerate(shape):
            if match := re.fullmatch(rf"(\d+)\*({_SYMBOL.pattern})", str(size)):
                found.setdefault(match[2], f"({name}.shape[{dim}] // {match[1]})")
    return found


def _asked_by_an_operator(guard: Any) -> bool:
    """Whether a rule of torch's asked: its frame is in torch, and not in a layer of torch.nn, whose Python decides too."""
    place = getattr(getattr(guard, "sloc", None), "framework_loc", None)
    file = getattr(place, "filename", None) or str(place or "")
    return _TORCH in file and _MODULES_OF_TORCH not in file


def _text(expression: Any, environment: Any, known: Mapping[str, str], name: str) -> str:
    from torch.utils._sympy.printers import PythonPrinter

    expression = expression.xreplace(dict(environment.replacements))
    text = str(PythonPrinter().doprint(expression))
    missing = [symbol.name for symbol in expression.free_symbols if symbol.name not in known]
    if missing:
        raise TaskError(
            f"module {name} decides by {text}, where {missing[0]} is no size of an input: decide by sizes of the inputs"
        )
    return _SYMBOL.sub(lambda match: known.get(match.group(), match.group()), text)
