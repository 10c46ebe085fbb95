"""sizes: an exported number -> the Python expression that gives it at run time, at other shapes.

A number known at several variants is looked for, in this order, among: the dimensions of the tensors at hand, constants,
numbers kept on the module, products and quotients of these. The first expression that is right at every exported variant
is taken; where none is, what a symbolic export says of the number (`mtmc.rewrite.exact_numbers`); where that says nothing
either, a dimension and a constant more, a multiple of a dimension, two dimensions joined, a dimension times any of these
products, or a constant times a simple function of one; else the number cannot be written
for other shapes and the caller is told so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mtmc.rewrite.graph import Size, Tensor, Varying, is_one, product


class NoExpression(Exception):
    """No expression of what is at hand gives this number at every exported variant."""


@dataclass(frozen=True)
class Scope:
    """What a number may be expressed by.

    tensors: (expression, what is known of it), the likeliest first. numbers: expression -> value at every variant.
    exact: asked last, for a size or number by its values: its expression, or None.
    """

    tensors: tuple[tuple[str, Tensor], ...]
    numbers: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    exact: Callable[[tuple[float, ...]], str | None] | None = field(default=None, repr=False, compare=False)
    _found: dict[Size, str | None] = field(default_factory=dict, repr=False, compare=False)

    def size(self, size: Size) -> str:
        """Expression of a size. Raises: NoExpression."""
        if not size or is_one(size):
            return "1"
        if size not in self._found:
            self._found[size] = self._find(size)
        found = self._found[size]
        if found is None and all(value < 0 for value in size):
            opposite = self.size(tuple(-value for value in size))
            return f"-({opposite})" if " " in opposite else f"-{opposite}"
        if found is None:
            raise NoExpression(f"no expression for the size {size}")
        return found

    def _find(self, size: Size) -> str | None:
        for expression, values in self._candidates():
            if values == size:
                return expression
        if len(set(size)) == 1:
            return str(size[0])
        for expression, values in self._compound():
            if values == size:
                return expression
        exact = self.exact(size) if self.exact is not None else None
        if exact is not None:
            return exact
        if self.exact is not None and not any(value % 2 for value in size):
            half = self.exact(tuple(value // 2 for value in size))  # complex numbers as pairs of real ones
            if half is not None:
                return f"2 * ({half})"
        return self._so_much_more(size) or self._several(size)

    def _so_much_more(self, size: Size) -> str | None:
        """A dimension and as many elements more or less at every variant, where sizes differ: what a pad leaves."""
        for text, own in self._candidates():
            more = {a - b for a, b in zip(size, own, strict=True)}
            if len(more) == 1 and len(set(own)) > 1:
                number = more.pop()
                return f"{text} {'-' if number < 0 else '+'} {abs(number)}"
        return None

    def _several(self, size: Size) -> str | None:
        """The same multiple of a dimension at every variant, where sizes differ; two dimensions joined, as a concatenation
        has them; a dimension times what else can be expressed: a stride in a tensor whose groups are repeated; the same
        multiple of neighbouring dimensions: the elements of a group of so many channels."""
        if len(set(size)) < _SEVERAL_FROM or min(size) < 1:
            return None
        simple, known = dict[Size, str](), dict[Size, str]()
        for text, values in self._candidates():
            simple.setdefault(values, text)
        for values, text in simple.items():
            factors = {a / b for a, b in zip(size, values, strict=True) if b}
            if len(factors) == 1 and len(set(values)) > 1 and (factor := factors.pop()) == int(factor):
                return f"{int(factor)} * {text}"
        for values, text in simple.items():
            rest = simple.get(tuple(a - b for a, b in zip(size, values, strict=True)))
            if rest is not None and len(set(values)) > 1:
                return f"{text} + {rest}"
        for text, values in self.expressions():
            known.setdefault(values, text)
        for values, text in simple.items():
            if is_one(values) or not all(b and a % b == 0 for a, b in zip(size, values, strict=True)):
                continue
            rest = known.get(tuple(a // b for a, b in zip(size, values, strict=True)))
            if rest is not None:
                return f"{text} * ({rest})" if " " in rest else f"{text} * {rest}"
        for text, values in self._neighbours():
            factors = {a / b for a, b in zip(size, values, strict=True) if b}
            if len(factors) == 1 and len(set(values)) > 1 and (factor := factors.pop()) == int(factor):
                return f"{int(factor)} * {text}"
        return None

    def shape(self, shape: Sequence[Size]) -> str:
        """Expression of a shape as a tuple. Raises: NoExpression."""
        parts = [self.size(size) for size in shape]
        return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"

    def number(self, number: Varying) -> str:
        """Expression of a scalar argument, which may be a size or a simple function of one. Raises: NoExpression."""
        values = number.values
        if all(isinstance(value, int) for value in values):
            return self.size(tuple(int(value) for value in values))
        for expression, candidate in self.numbers.items():
            if candidate == values:
                return expression
        for expression in self.functions_of_sizes(values):
            return expression
        exact = self.exact(values) if self.exact is not None else None
        exact = exact if exact is not None else next(self._scaled(values), None)
        if exact is None:
            raise NoExpression(f"no expression for the number {values}")
        return exact

    def expressions(self) -> Iterator[tuple[str, Size]]:
        """All that a size may be expressed by, and what it was at every variant."""
        yield from self._candidates()
        yield from self._compound()

    def functions_of_sizes(self, values: Sequence[float]) -> Iterator[str]:
        """All simple functions of sizes that give a number at every variant."""
        for expression, sizes in [*self._candidates(), *self._quotients()]:
            for pattern, function in _FUNCTIONS:
                if all(math.isclose(function(size), value) for size, value in zip(sizes, values, strict=True)):
                    yield pattern.format(expression)

    def _scaled(self, values: Sequence[float]) -> Iterator[str]:
        """A constant times a simple function of a size: the rate of sinusoids by their number, a scale by a root.

        One constant has to give all values, of which there are at least three: fewer prove nothing.
        """
        if len(set(values)) < _SCALED_FROM:
            return
        for expression, sizes in [*self._candidates(), *self._quotients(), *self._fewer()]:
            if not all(size > 0 for size in sizes):
                continue
            for pattern, function in _FUNCTIONS:
                factors = [value / function(size) for value, size in zip(values, sizes, strict=True)]
                if all(math.isclose(factor, factors[0], rel_tol=1e-12) for factor in factors):
                    nearest = min(factors, key=lambda factor: _errors(factor, function, sizes, values))
                    scaled = (
                        pattern.replace("1.0 /", f"{nearest!r} /") if "/" in pattern else f"{nearest!r} * {pattern}"
                    )
                    yield scaled.format(expression)

    def _fewer(self) -> Iterator[tuple[str, Size]]:
        """One less than a dimension or its half: the steps between so many points."""
        for text, size in [*self._candidates(), *self._quotients()]:
            yield f"{text} - 1", tuple(value - 1 for value in size)

    def _candidates(self) -> Iterator[tuple[str, Size]]:
        for name, tensor in self.tensors:
            for axis, size in enumerate(tensor.shape):
                yield f"{name}.shape[{axis}]", size
        for name, values in self.numbers.items():
            if _whole(values):
                yield name, tuple(int(value) for value in values)

    def _compound(self) -> Iterator[tuple[str, Size]]:
        for name, tensor in self.tensors:
            yield f"{name}.numel()", product(tensor.shape)
            yield from _neighbours_of(name, tensor)
            yield from _without_one(name, tensor)
        yield from self._quotients()
        yield from self._near()
        yield from self._with_numbers()
        yield from self._stretched()
        for text, size in self._candidates():
            yield f"{text} * ({text} - 1) // 2", tuple(value * (value - 1) // 2 for value in size)  # pairs

    def _neighbours(self) -> Iterator[tuple[str, Size]]:
        """Dimensions of a tensor, one behind the other, as one."""
        for name, tensor in self.tensors:
            yield from _neighbours_of(name, tensor)

    def _near(self) -> Iterator[tuple[str, Size]]:
        """One or two less or more than a dimension: what slices leave, or differences of neighbours."""
        for text, size in self._candidates():
            for less in (1, 2):
                yield f"{text} - {less}", tuple(value - less for value in size)
                yield f"{text} + {less}", tuple(value + less for value in size)

    def _stretched(self) -> Iterator[tuple[str, Size]]:
        """A multiple of a dimension and a few more or less: what a transposed convolution with a stride makes of it."""
        for text, size in self._candidates():
            for factor in (2, 3, 4):
                for more in (1, 2, 3):
                    yield f"{factor} * {text} + {more}", tuple(factor * value + more for value in size)
                    yield f"{factor} * {text} - {more}", tuple(factor * value - more for value in size)

    def _with_numbers(self) -> Iterator[tuple[str, Size]]:
        """A dimension times a number of the module (rows of a group norm), and what such rows leave of a tensor."""
        numbers = [(text, tuple(map(int, values))) for text, values in self.numbers.items() if _whole(values)]
        for name, tensor in self.tensors:
            total = product(tensor.shape)
            for axis, size in enumerate(tensor.shape):
                for text, number in numbers:
                    rows = tuple(a * b for a, b in zip(size, number, strict=True))
                    yield f"{name}.shape[{axis}] * {text}", rows
                    if all(rows) and all(a % b == 0 for a, b in zip(total, rows, strict=True)):
                        left = tuple(a // b for a, b in zip(total, rows, strict=True))
                        yield f"{name}.numel() // ({name}.shape[{axis}] * {text})", left

    def _quotients(self) -> Iterator[tuple[str, Size]]:
        candidates = [(text, size) for text, size in self._candidates() if not is_one(size)]
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


def _whole(values: tuple[float, ...]) -> bool:
    return all(isinstance(value, int) for value in values)


def _errors(factor: float, function: Callable[[int], float], sizes: Size, values: Sequence[float]) -> float:
    """How far a constant times a function of sizes is from some values."""
    return sum(abs(factor * function(size) - value) for size, value in zip(sizes, values, strict=True))


_SCALED_FROM = 3
_SEVERAL_FROM = 3
"""Different values from which on what is put together of two expressions is no coincidence."""
_FUNCTIONS: tuple[tuple[str, Callable[[int], float]], ...] = (
    ("({0}) ** 0.5", lambda size: size**0.5),
    ("({0}) ** -0.5", lambda size: size**-0.5 if size else math.inf),
    ("1.0 / ({0})", lambda size: 1.0 / size if size else math.inf),
    ("float({0})", lambda size: float(size)),
)
