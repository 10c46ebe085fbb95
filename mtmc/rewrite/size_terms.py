"""size_terms: what a number may be expressed by: dimensions, numbers of the module, and simple combinations of these.

Everything comes with what it is at every exported variant, the likeliest first: `mtmc.rewrite.sizes` takes the first that
is right, `mtmc.rewrite.guard_sizes` looks at all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from mtmc.rewrite.graph import Size, Tensor, is_one, product


@dataclass(frozen=True)
class Terms:
    """What is at hand. tensors: (expression, what is known of it). simple: (expression, size) of dimensions and numbers.
    numbers: the whole numbers among these."""

    tensors: tuple[tuple[str, Tensor], ...]
    simple: tuple[tuple[str, Size], ...]
    numbers: tuple[tuple[str, Size], ...]

    @classmethod
    def of(cls, tensors: Sequence[tuple[str, Tensor]], numbers: Mapping[str, tuple[float, ...]]) -> Terms:
        """Those of some tensors and numbers, which may vary in type."""
        dimensions = [
            (f"{name}.shape[{axis}]", size) for name, tensor in tensors for axis, size in enumerate(tensor.shape)
        ]
        whole = tuple((name, tuple(map(int, values))) for name, values in numbers.items() if _whole(values))
        return cls(tuple(tensors), (*dimensions, *whole), whole)

    @classmethod
    def distinct(cls, tensors: Sequence[tuple[str, Tensor]], numbers: Mapping[str, tuple[float, ...]]) -> Terms:
        """The first of each kind: others give no number that it does not give, and a network has a thousand."""
        first = {each[1].shape: each for each in reversed(tensors)}
        every = cls.of([each for each in tensors if first[each[1].shape] is each], numbers)
        return cls(every.tensors, _firsts(every.simple), _firsts(every.numbers))

    def all(self) -> Iterator[tuple[str, Size]]:
        """All that a size may be expressed by, and what it was at every variant."""
        yield from self.simple
        yield from self.compound()

    def functions(self, values: Sequence[float]) -> Iterator[str]:
        """All simple functions of sizes that give a number at every variant."""
        for expression, sizes in [*self.simple, *self.quotients()]:
            for pattern, function in FUNCTIONS:
                if all(math.isclose(function(size), value) for size, value in zip(sizes, values, strict=True)):
                    yield pattern.format(expression)

    def scaled(self) -> Iterator[tuple[str, Size]]:
        """All that a number may be a simple function of, times a constant."""
        yield from self.simple
        yield from self.quotients()
        yield from self.fewer()
        yield from self.extremes()

    def fewer(self) -> Iterator[tuple[str, Size]]:
        """One less than a dimension or its half: the steps between so many points."""
        for text, size in [*self.simple, *self.quotients()]:
            yield f"{text} - 1", tuple(value - 1 for value in size)

    def extremes(self) -> Iterator[tuple[str, Size]]:
        """The larger and the smaller one of two dimensions of which now the one is, now the other: `max(x.shape)`."""
        several = [(text, size) for text, size in self.simple if len(set(size)) > 1]
        for (text, size), (other, sizes) in combinations(several, 2):
            larger = tuple(map(max, size, sizes))
            if larger not in (size, sizes):
                yield f"max({text}, {other})", larger
                yield f"min({text}, {other})", tuple(map(min, size, sizes))

    def compound(self) -> Iterator[tuple[str, Size]]:
        for name, tensor in self.tensors:
            yield f"{name}.numel()", product(tensor.shape)
            yield from _neighbours_of(name, tensor)
            yield from _without_one(name, tensor)
        yield from self.quotients()
        yield from self._near()
        yield from self._with_numbers()
        yield from self._stretched()
        for text, size in self.simple:
            yield f"{text} * ({text} - 1) // 2", tuple(value * (value - 1) // 2 for value in size)  # pairs

    def neighbours(self) -> Iterator[tuple[str, Size]]:
        """Dimensions of a tensor, one behind the other, as one."""
        for name, tensor in self.tensors:
            yield from _neighbours_of(name, tensor)

    def shared(self) -> Iterator[tuple[str, Size]]:
        """Elements of one tensor for each of another: how many have a group's number in common."""
        totals = [(name, product(tensor.shape)) for name, tensor in self.tensors if tensor.shape]
        for name, many in totals:
            for other, few in totals:
                if all(b and a % b == 0 for a, b in zip(many, few, strict=True)):
                    yield f"{name}.numel() // {other}.numel()", tuple(a // b for a, b in zip(many, few, strict=True))

    def _near(self) -> Iterator[tuple[str, Size]]:
        """One or two less or more than a dimension: what slices leave, or differences of neighbours."""
        for text, size in self.simple:
            for less in (1, 2):
                yield f"{text} - {less}", tuple(value - less for value in size)
                yield f"{text} + {less}", tuple(value + less for value in size)

    def _stretched(self) -> Iterator[tuple[str, Size]]:
        """A multiple of a dimension and a few more or less: what a transposed convolution with a stride makes of it."""
        for text, size in self.simple:
            for factor in (2, 3, 4):
                for more in (1, 2, 3):
                    yield f"{factor} * {text} + {more}", tuple(factor * value + more for value in size)
                    yield f"{factor} * {text} - {more}", tuple(factor * value - more for value in size)

    def _with_numbers(self) -> Iterator[tuple[str, Size]]:
        """A dimension times a number of the module (rows of a group norm), and what such rows leave of a tensor."""
        for name, tensor in self.tensors:
            total = product(tensor.shape)
            for axis, size in enumerate(tensor.shape):
                for text, number in self.numbers:
                    rows = tuple(a * b for a, b in zip(size, number, strict=True))
                    yield f"{name}.shape[{axis}] * {text}", rows
                    if all(rows) and all(a % b == 0 for a, b in zip(total, rows, strict=True)):
                        left = tuple(a // b for a, b in zip(total, rows, strict=True))
                        yield f"{name}.numel() // ({name}.shape[{axis}] * {text})", left

    def quotients(self) -> Iterator[tuple[str, Size]]:
        candidates = [(text, size) for text, size in self.simple if not is_one(size)]
        for top, size in candidates:
            for bottom, divisor in candidates:
                if (
                    size != divisor
                    and all(a % b == 0 for a, b in zip(size, divisor, strict=True) if b)
                    and all(divisor)
                ):
                    yield f"{top} // {bottom}", tuple(a // b for a, b in zip(size, divisor, strict=True))
            for part in (2, 3, 4, 8):
                if all(value % part == 0 for value in size):
                    yield f"{top} // {part}", tuple(value // part for value in size)
            for factor in (2, 3, 4, 8):
                yield f"{factor} * {top}", tuple(value * factor for value in size)


def _neighbours_of(name: str, tensor: Tensor) -> Iterator[tuple[str, Size]]:
    for start in range(len(tensor.shape)):
        for stop in range(start + 2, len(tensor.shape) + 1):
            factors = [f"{name}.shape[{axis}]" for axis in range(start, stop)]
            yield " * ".join(factors), product(tensor.shape[start:stop])


def _without_one(name: str, tensor: Tensor) -> Iterator[tuple[str, Size]]:
    """Products of all dimensions of a tensor but one in the middle, which neighbours cannot give."""
    for axis in range(1, len(tensor.shape) - 1):
        rest = [other for other in range(len(tensor.shape)) if other != axis]
        text = " * ".join(f"{name}.shape[{other}]" for other in rest)
        yield text, product(tuple(tensor.shape[other] for other in rest))


def _firsts(terms: tuple[tuple[str, Size], ...]) -> tuple[tuple[str, Size], ...]:
    """The first expression of each size, in their order."""
    first = dict[Size, str]()
    for text, size in terms:
        first.setdefault(size, text)
    return tuple((text, size) for size, text in first.items())


def _whole(values: tuple[float, ...]) -> bool:
    return all(isinstance(value, int) for value in values)


FUNCTIONS: tuple[tuple[str, Callable[[int], float]], ...] = (
    ("({0}) ** 0.5", lambda size: size**0.5),
    ("({0}) ** -0.5", lambda size: size**-0.5 if size else math.inf),
    ("1.0 / ({0})", lambda size: 1.0 / size if size else math.inf),
    ("float({0})", lambda size: float(size)),
)


class Found:
    """The first expression of each size among some, which are gone through once, and no further than is asked for."""

    def __init__(self, terms: Iterator[tuple[str, Size]]) -> None:
        self._terms, self._known = terms, dict[Size, str]()

    def get(self, size: Size) -> str | None:
        """The first expression of a size; None where there is none."""
        if size in self._known:
            return self._known[size]
        for text, found in self._terms:
            self._known.setdefault(found, text)
            if found == size:
                return text
        return None
