"""Tolerance: how far a version's outputs may be from the reference's, a contract of the task.

A task's file declares it at module level, as a literal:

    TOLERANCE = {"atol": 1e-3, "rtol": 1e-2}     # |version - reference| <= atol + rtol |reference|
    TOLERANCE = {"steps": 1}                     # integers one apart, fp8 one representable number apart
    TOLERANCE = "kernelbench"                    # KernelBench's tolerance alone

What is left out stays as by default: KernelBench's tolerance (`absolute`), an error against float64 that is no more than a
few times the reference's own (`mtmc.evaluate.reference.compare`), equal integers, and fp8 within one step. It is read from
the task's text alone, so it is part of whatever is made of that text (hashes, caches, recorded runs), and nothing in a
candidate's file has a say in it. Pure.
"""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from mtmc.errors import TaskError
from mtmc.outcome import REFERENCE_ERROR, WIDENED
from mtmc.syntax import parse
from mtmc.task.bundling import place

TOLERANCE = "TOLERANCE"
"""Module-level name of a task's own tolerance."""
KEYS = ("atol", "rtol", "steps")
DEFAULT_NAME, KERNELBENCH_NAME = "default", "kernelbench"
NAMES = (DEFAULT_NAME, KERNELBENCH_NAME)
USUAL, LOW_PRECISION = 1e-4, 1e-2
"""KernelBench's, absolute and relative: of float32 and float64, and of 16 bits and less."""
_WIDE = ("float32", "float64")
_EXAMPLE = f'{TOLERANCE} = {{"atol": 1e-3, "rtol": 1e-2}}, {{"steps": 1}} or "{KERNELBENCH_NAME}"'
_MOST_RELATIVE = 1.0
"""From here on zeros pass for any result."""


@dataclass(frozen=True)
class Tolerance:
    """What a task asks of its versions' outputs.

    atol, rtol: of floating outputs of more than 8 bits, None for KernelBench's; without unit, rtol a fraction.
    steps: representable numbers that an integer or fp8 output may be apart, None for 0 and 1. precise: whether the error
    against float64 is bounded too.
    """

    atol: float | None = None
    rtol: float | None = None
    steps: int | None = None
    precise: bool = True

    def absolute(self, dtype: str) -> float:
        """Absolute tolerance of a floating dtype, named without "torch."."""
        return _kernelbench(dtype) if self.atol is None else self.atol

    def relative(self, dtype: str) -> float:
        """Relative tolerance of a floating dtype."""
        return _kernelbench(dtype) if self.rtol is None else self.rtol

    def steps_of(self, dtype: str) -> int:
        """Steps that two values of an integer dtype or of fp8 may be apart; a bool is right or wrong."""
        if dtype == "bool":
            return 0
        return int(dtype.startswith("float8")) if self.steps is None else self.steps

    @property
    def error(self) -> float:
        """Norm-wise error that passes whatever the reference's own is: what is declared to be near enough is precise
        enough."""
        if not self.precise:
            return math.inf
        return self.rtol or 0.0

    @property
    def is_default(self) -> bool:
        """Whether nothing is declared."""
        return self == DEFAULT

    @property
    def text(self) -> str:
        """In a few words, for reports."""
        numbers = f"{USUAL:g} + {USUAL:g} |reference|, {LOW_PRECISION:g} of each for 16 bits"
        if self.is_default:
            return f"default: KernelBench's ({numbers}) and 4 times the reference's own error against float64"
        if self == KERNELBENCH:
            return f"KernelBench's alone: {numbers}"
        parts = []
        if self.atol is not None or self.rtol is not None:
            atol, rtol = (KERNELBENCH_NAME if each is None else f"{each:g}" for each in (self.atol, self.rtol))
            parts.append(f"{atol} + {rtol} |reference|".replace(KERNELBENCH_NAME, "KernelBench's"))
        if self.steps is not None:
            parts.append(f"integers and fp8 {self.steps} step{'' if self.steps == 1 else 's'} apart")
        return f"the task's own: {', '.join(parts)}; else the default"

    def contract(self, metrics: Mapping[str, float]) -> str:
        """In a few words what outputs were compared by, and by how much that was widened, and why.

        metrics: of an outcome of the task.
        """
        wider, error = metrics.get(WIDENED), metrics.get(REFERENCE_ERROR)
        if not wider:
            return self.text
        own = "comes near it" if error is None else f"errs by {error:.1e} of its norm"
        return f"{self.text}; widened by {wider:.1e}: the reference itself {own}, measured against float64"

    @property
    def line(self) -> str:
        """How a task's file declares it; "" for the default."""
        if self.is_default:
            return ""
        if self == KERNELBENCH:
            return f'{TOLERANCE} = "{KERNELBENCH_NAME}"'
        values = {name: getattr(self, name) for name in KEYS}
        return f"{TOLERANCE} = { {name: value for name, value in values.items() if value is not None}!r}"


DEFAULT = Tolerance()
KERNELBENCH = Tolerance(precise=False)


def tolerance(value: object, where: str) -> Tolerance:
    """The tolerance that a literal declares. where: for messages ("task x: TOLERANCE").

    Raises: TaskError if it declares none, with the value and what to write.
    """
    if isinstance(value, Tolerance):
        return value
    if isinstance(value, str):
        if value not in NAMES:
            raise TaskError(f"{where} is {value!r}: use {' or '.join(map(repr, NAMES))}, or numbers ({_EXAMPLE})")
        return KERNELBENCH if value == KERNELBENCH_NAME else DEFAULT
    if not isinstance(value, Mapping) or not value:
        raise TaskError(f"{where} is {value!r}: write {_EXAMPLE}")
    for name, number in value.items():
        if name not in KEYS:
            raise TaskError(f"{where} sets {name!r}: use {', '.join(KEYS)}, as in {_EXAMPLE}")
        _check(name, number, where)
    if value.get("atol") == 0 and value.get("rtol") == 0:
        raise TaskError(
            f"{where} asks for 0 + 0 |reference|, which no other order of a sum gives: set atol or rtol above 0"
        )
    atol, rtol, steps = (value.get(name) for name in KEYS)
    return Tolerance(None if atol is None else float(atol), None if rtol is None else float(rtol), steps)


Declared: TypeAlias = "Tolerance | Mapping[str, float | int] | str | None"
"""A tolerance as callers of Python give it; None: the default."""


def declaration(value: Declared) -> str:
    """The line of a task's file that declares this tolerance, "" for the default. Raises: TaskError if it is none."""
    return DEFAULT.line if value is None else tolerance(value, "tolerance").line


def declared(source: str, name: str) -> Tolerance:
    """The tolerance that a task's text declares, the default where it declares none. name: the task's.

    Raises: TaskError if the declaration is none, with its line.
    """
    try:
        return _declared(source)
    except TaskError as error:
        raise TaskError(f"task {name}: {error}") from error


@functools.lru_cache(maxsize=256)
def _declared(source: str) -> Tolerance:
    if TOLERANCE not in source:
        return DEFAULT
    try:
        tree = parse(source)
    except (SyntaxError, ValueError):
        return DEFAULT  # which is said where a task's text is checked
    bound = list(_bound(tree))
    if not bound:
        return DEFAULT
    where = f"{place(source, bound[-1].lineno)}: {TOLERANCE}"
    plain = [node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign) and _target(node) is bound[0]]
    if len(bound) > 1 or not plain or plain[0].value is None:
        raise TaskError(f"{where} must be set once, at module level: write {_EXAMPLE}")
    try:
        value = ast.literal_eval(plain[0].value)
    except ValueError as error:
        raise TaskError(f"{where} must be a literal: write {_EXAMPLE}") from error
    return tolerance(value, where)


def _bound(tree: ast.AST) -> Iterator[ast.Name]:
    """Where the name is bound or changed in the module's own scope."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        if isinstance(node, ast.Name) and node.id == TOLERANCE and isinstance(node.ctx, ast.Store):
            yield node
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
            yield from [node.value] if node.value.id == TOLERANCE else []
        else:
            yield from _bound(node)


def _target(node: ast.Assign | ast.AnnAssign) -> ast.expr | None:
    if isinstance(node, ast.AnnAssign):
        return node.target
    return node.targets[0] if len(node.targets) == 1 else None


def _check(name: str, number: Any, where: str) -> None:
    """Raises: TaskError for what is no such number."""
    if name == "steps":
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise TaskError(f"{where} sets steps to {number!r}: use a whole number from 0, 1 for one apart")
        return
    real = isinstance(number, int | float) and not isinstance(number, bool) and math.isfinite(number)
    if not real or number < 0:
        raise TaskError(f"{where} sets {name} to {number!r}: use a finite number from 0, such as 1e-3")
    if name == "rtol" and number >= _MOST_RELATIVE:
        raise TaskError(f"{where} sets rtol to {number!r}, at which zeros pass for any result: use less than 1")


def _kernelbench(dtype: str) -> float:
    return USUAL if dtype in _WIDE else LOW_PRECISION
