"""program: a task before it is text: named sizes, values, and steps that make values of values. Pure data."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

Dims = tuple[str, ...]
"""Sizes of a value by name ("rows"), or what comes of one step by step ("(height - 2) // 2", see
`then`), or a number ("1")."""

DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
_SIGNS: Mapping[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
}
BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}


@dataclass(frozen=True)
class Value:
    """An input or a step's result. traits: what is known of it, see `table`."""

    name: str
    dims: Dims
    traits: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Step:
    """One line of forward.

    op: its name. text: the expression. reads: names of the values it reads. result: what it makes.
    flops: per element of the result. inner: size that a product sums over, "" for anything else; times: how often
    (taps of a window). passes: kernels that eager mode takes. across: size of a product's features or filters, "" for
    the last size of the result.
    """

    op: str
    text: str
    reads: tuple[str, ...]
    result: Value
    flops: int = 1
    inner: str = ""
    times: int = 1
    passes: int = 1
    across: str = ""


@dataclass(frozen=True)
class Program:
    """A whole task without its sizes.

    kind: see `compose`. dtype: a key of `DTYPES`. outputs: names of the values that forward returns.
    modules: attribute -> constructor expression. arguments: of the constructor, sizes by name. weights: sizes of the
    parameters, for the bytes they take.
    """

    kind: str
    dtype: str
    inputs: tuple[Value, ...]
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]
    modules: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    weights: tuple[Dims, ...] = ()

    @cached_property
    def sizes(self) -> tuple[str, ...]:
        """Names of all sizes, in order of appearance."""
        values = [*self.inputs, *(step.result for step in self.steps)]
        names = [base(dim) for value in values for dim in value.dims]
        names += [base(dim) for dims in self.weights for dim in dims]
        return tuple(name for name in dict.fromkeys(names) if not name.isdigit())

    @cached_property
    def values(self) -> dict[str, Value]:
        """Every value by name."""
        return {value.name: value for value in (*self.inputs, *(step.result for step in self.steps))}


def base(dim: str) -> str:
    """The name in a size: "height" of "(height - 2) // 2"."""
    return _words(dim)[0]


def then(dim: str, *changes: str) -> str:
    """A size that comes of another: then("height", "- 2", "// 2") is "(height - 2) // 2"."""
    for change in changes:
        dim = f"({dim}) {change}" if " " in dim else f"{dim} {change}"
    return dim


def size_of(dim: str, sizes: Mapping[str, int]) -> int:
    """A size as a number: "height // 2" with {"height": 30} is 15."""
    if dim in sizes:  # nearly always, and sizes are drawn by many tries
        return sizes[dim]
    name, *changes = _words(dim)
    number = int(name) if name.isdigit() else sizes[name]
    for sign, by in zip(changes[::2], changes[1::2], strict=True):
        number = _SIGNS[sign](number, int(by))
    return number


@lru_cache(maxsize=1024)
def _words(dim: str) -> tuple[str, ...]:
    return tuple(dim.replace("(", "").replace(")", "").split())
