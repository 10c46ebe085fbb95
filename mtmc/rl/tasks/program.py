"""program: a task before it is text: named sizes, values, and steps that make values of values. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Dims = tuple[str, ...]
"""Sizes of a value by name ("rows"), or a part of one ("height // 2")."""

DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
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
    (taps of a window). passes: kernels that eager mode takes.
    """

    op: str
    text: str
    reads: tuple[str, ...]
    result: Value
    flops: int = 1
    inner: str = ""
    times: int = 1
    passes: int = 1


@dataclass(frozen=True)
class Program:
    """A whole task without its sizes.

    kind: "single", "subgraph" or "network". dtype: a key of `DTYPES`. outputs: names of the values that forward returns.
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

    @property
    def sizes(self) -> tuple[str, ...]:
        """Names of all sizes, in order of appearance."""
        values = [*self.inputs, *(step.result for step in self.steps)]
        names = [base(dim) for value in values for dim in value.dims]
        names += [base(dim) for dims in self.weights for dim in dims]
        return tuple(dict.fromkeys(names))

    @property
    def values(self) -> dict[str, Value]:
        """Every value by name."""
        return {value.name: value for value in (*self.inputs, *(step.result for step in self.steps))}


def base(dim: str) -> str:
    """The name in a size: "height" of "height // 2"."""
    return dim.split(" // ")[0]


def size_of(dim: str, sizes: Mapping[str, int]) -> int:
    """A size as a number: "height // 2" with {"height": 30} is 15."""
    name, *divisors = dim.split(" // ")
    number = sizes[name]
    for divisor in divisors:
        number //= int(divisor)
    return number
