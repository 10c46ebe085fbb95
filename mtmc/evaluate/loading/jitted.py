"""A kernel as plain data: which function of a version's text it is, and what those of the file's names are that it uses.

That is all that Triton takes of a version to compile or to interpret a kernel. So two processes that run a version can be
held to the same kernel (`digest`), and a third one, which runs none of the version's host code, can define it
(`mtmc.evaluate.counting.kernels`). Runs in worker processes only.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import json
import types
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from mtmc.evaluate.loading.same_text import function_of
from mtmc.syntax import names_in

MODULES = (
    "triton.language",
    "triton.language.math",
    "triton.language.extra.libdevice",
    "triton.language.extra.cuda.libdevice",
    "triton.language.extra.hip.libdevice",
    "triton.language.core",
    "triton.language.standard",
    "triton",
    "math",
)
"""Modules whose functions a kernel may have by a name of its own."""

ABSENT = object()
"""What is no constant of a kernel: Triton refuses such a name where it is looked up."""


@dataclass(frozen=True)
class Jitted:
    """One function under `@triton.jit`, or a helper of it that the compiler calls (`@triton.constexpr_function`).

    line: its first, decorators too. values: see `constant`, of each of the file's names that it looks up and has. Of another
    module it is {"numbers": those of its numbers that the function names}: numpy.inf, torch.pi.
    """

    name: str
    line: int
    values: Mapping[str, Any]


def described(jitted: Any, within: Sequence[types.CodeType] = ()) -> Jitted | None:
    """A jitted function; None where it is none of a file that `load_module` has executed.

    within: of the functions that lead to it, which it cannot look up again.
    """
    function = getattr(jitted, "fn", None)
    if not isinstance(function, types.FunctionType):
        return None
    code, known = function.__code__, function.__globals__
    node = function_of(code)
    if node is None or code in within:
        return None
    values: dict[str, Any] = {}
    for name in _looked_up(node):
        value = constant(known[name], (*within, code)) if name in known else ABSENT
        if value is ABSENT and isinstance(known.get(name), types.ModuleType):
            value = _numbers_of(known[name], name, node)
        if value is not ABSENT:
            values[name] = value
    return Jitted(code.co_name, code.co_firstlineno, values)


@lru_cache(maxsize=512)
def _looked_up(node: ast.FunctionDef) -> tuple[str, ...]:
    """Names that a held function mentions. Its tree stays as it is; what they stand for is asked at each launch."""
    return tuple(sorted(names_in(node)))


def _numbers_of(module: types.ModuleType, name: str, node: ast.AST) -> Any:
    """The numbers that a function looks up in a module that is not for kernels; `ABSENT` where there are none."""
    attributes = [each for each in ast.walk(node) if isinstance(each, ast.Attribute)]
    looked_up = {each.attr for each in attributes if isinstance(each.value, ast.Name) and each.value.id == name}
    found = {
        each: vars(module)[each] for each in sorted(looked_up) if type(vars(module).get(each)) in (int, float, bool)
    }
    return {"numbers": found} if found else ABSENT


def constant(value: Any, within: Sequence[types.CodeType] = ()) -> Any:
    """What Triton lets a kernel look up, as plain JSON: numbers and texts as they are, of the rest a dict of one item.

    {"constexpr": value}, {"type": name}, {"tuple": values}, {"list": values}, {"path": dotted name}, {"function": `Jitted`},
    {"host function": `Jitted`}. Anything else: ABSENT.
    """
    import triton.language as tl

    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    if value is None:
        return None
    if isinstance(value, tl.constexpr):
        inner = constant(value.value, within)
        return ABSENT if inner is ABSENT else {"constexpr": inner}
    if type(value) is tl.dtype:
        return {"type": value.name}
    if type(value) in (tuple, list):
        items = [constant(item, within) for item in value]
        return ABSENT if any(item is ABSENT for item in items) else {type(value).__name__: items}
    path = _path(value)
    if path:
        return {"path": path}
    found = described(value, within) if is_jitted(value) else None
    if found is None:
        return ABSENT
    return {"host function" if _runs_on_host(value) else "function": asdict(found)}


def is_jitted(value: Any) -> bool:
    """Whether a value is a function that Triton compiles, or interprets, or calls while it compiles."""
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    return isinstance(value, InterpretedFunction | JITFunction) or _runs_on_host(value)


def _runs_on_host(value: Any) -> bool:
    import triton.runtime.jit

    kind = getattr(triton.runtime.jit, "ConstexprFunction", None)
    return kind is not None and isinstance(value, kind)


def _path(value: Any) -> str:
    """The dotted name of a module that kernels use, or of what is found in one; "" for anything else."""
    if isinstance(value, types.ModuleType):
        return value.__name__ if is_module(value.__name__) else ""
    if not callable(value):
        return ""
    for name in MODULES:
        module = importlib.import_module(name)
        found = next((key for key, each in vars(module).items() if each is value and not key.startswith("_")), "")
        if found:
            return f"{name}.{found}"
    return ""


def is_module(name: str) -> bool:
    """Whether kernels may use a module."""
    return name in MODULES or name.startswith("triton.language.")


def digest(jitted: Jitted | None) -> str:
    """What is the same for the same kernel in processes that compile and that interpret; "" for none of a version's."""
    if jitted is None:
        return ""
    # Triton's own names are other objects where it interprets, and may be found elsewhere.
    text = json.dumps(_without_paths(asdict(jitted)), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _without_paths(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: item for key, item in value.items() if not (isinstance(item, dict) and "path" in item)}
        return {key: _without_paths(item) for key, item in kept.items()}
    return [_without_paths(item) for item in value] if isinstance(value, list) else value
