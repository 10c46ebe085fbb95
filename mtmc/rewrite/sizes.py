"""sizes: an exported number -> the Python expression that gives it at run time, at other shapes.

A number known at several variants is looked for, in this order, among: the dimensions of the tensors at hand, constants,
numbers kept on the module, products and quotients of these. The first expression that is right at every exported variant
is taken; where none is, what a symbolic export says of the number (`mtmc.rewrite.exact_numbers`); where that says nothing
either, a dimension and a constant more, a multiple of a dimension, two dimensions joined, a dimension times any of these
products, the larger or smaller one of two dimensions, or a constant times a simple function of one; else the number cannot
be written for other shapes and the caller is told so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

from mtmc.rewrite.graph import Size, Tensor, Varying, is_one
from mtmc.rewrite.size_terms import FUNCTIONS, Found, Terms


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

    @cached_property
    def _terms(self) -> Terms:
        return Terms.distinct(self.tensors, self.numbers)

    @cached_property
    def _compounds(self) -> Found:
        return Found(self._terms.compound())

    @cached_property
    def _simple(self) -> Mapping[Size, str]:
        return {size: text for text, size in self._terms.simple}

    @property
    def every(self) -> Terms:
        """All that numbers may be expressed by, also what is the same at every exported variant."""
        return Terms.of(self.tensors, self.numbers)

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
        if (expression := self._simple.get(size)) is not None:
            return expression
        if len(set(size)) == 1:
            return str(size[0])
        if (expression := self._compounds.get(size)) is not None:
            return expression
        exact = self.exact(size) if self.exact is not None else None
        if exact is not None:
            return exact
        if self.exact is not None and not any(value % 2 for value in size):
            half = self.exact(tuple(value // 2 for value in size))  # complex numbers as pairs of real ones
            if half is not None:
                return f"2 * ({half})"
        return self._so_much_more(size) or self._several(size) or self._extreme(size)

    def _so_much_more(self, size: Size) -> str | None:
        """A dimension and as many elements more or less at every variant, where sizes differ: what a pad leaves."""
        for text, own in self._terms.simple:
            more = {a - b for a, b in zip(size, own, strict=True)}
            if len(more) == 1 and len(set(own)) > 1:
                number = more.pop()
                return f"{text} {'-' if number < 0 else '+'} {abs(number)}"
        return None

    def _multiple(self, size: Size) -> str | None:
        """The same multiple of a dimension at every variant: rows of a group norm by the batch.

        Two values of it are enough where it stays what it is while other sizes change: it hangs on that dimension alone
        then, and grows in proportion to it.
        """
        if len(set(size)) < _SEVERAL_FROM and not self._stays(size):
            return None
        for values, text in self._simple.items():
            factors = {a / b for a, b in zip(size, values, strict=True) if b}
            if len(factors) == 1 and len(set(values)) > 1 and (factor := factors.pop()) == int(factor):
                return f"{int(factor)} * {text}"
        return None

    def _stays(self, size: Size) -> bool:
        """Whether a size that varies is the same at two variants between which another size is not."""
        pairs = [(a, b) for a, b in combinations(range(len(size)), 2) if size[a] == size[b]]
        return len(set(size)) > 1 and any(values[a] != values[b] for values in self._simple for a, b in pairs)

    def _extreme(self, size: Size) -> str | None:
        """The larger or the smaller one of two dimensions."""
        if len(set(size)) < _SEVERAL_FROM:
            return None
        return next((text for text, values in self._terms.extremes() if values == size), None)

    def _several(self, size: Size) -> str | None:
        """A multiple of a dimension; two dimensions joined, as a concatenation has them; a dimension times what else can be
        expressed: a stride in a tensor whose groups are repeated; the same multiple of neighbouring dimensions: the
        elements of a group of so many channels; as many of one tensor as there are for each of another."""
        if min(size) < 1:
            return None
        multiple = self._multiple(size)
        if multiple is not None or len(set(size)) < _SEVERAL_FROM:
            return multiple
        simple = self._simple
        for values, text in simple.items():
            rest = simple.get(tuple(a - b for a, b in zip(size, values, strict=True)))
            if rest is not None and len(set(values)) > 1:
                return f"{text} + {rest}"
        for values, text in simple.items():
            if is_one(values) or not all(b and a % b == 0 for a, b in zip(size, values, strict=True)):
                continue
            left = tuple(a // b for a, b in zip(size, values, strict=True))
            rest = simple.get(left) or self._compounds.get(left)
            if rest is not None:
                return f"{text} * ({rest})" if " " in rest else f"{text} * {rest}"
        for text, values in self._terms.neighbours():
            factors = {a / b for a, b in zip(size, values, strict=True) if b}
            if len(factors) == 1 and len(set(values)) > 1 and (factor := factors.pop()) == int(factor):
                return f"{int(factor)} * {text}"
        return next((text for text, values in self._terms.shared() if values == size), None)

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
        for expression in self._terms.functions(values):
            return expression
        exact = self.exact(values) if self.exact is not None else None
        exact = exact if exact is not None else next(self._scaled(values), None)
        if exact is None:
            raise NoExpression(f"no expression for the number {values}")
        return exact

    def _scaled(self, values: Sequence[float]) -> Iterator[str]:
        """A constant times a simple function of a size: the rate of sinusoids by their number, a scale by a root.

        One constant has to give all values, of which there are at least three: fewer prove nothing.
        """
        if len(set(values)) < _SCALED_FROM:
            return
        for expression, sizes in self._terms.scaled():
            if not all(size > 0 for size in sizes):
                continue
            for pattern, function in FUNCTIONS:
                factors = [value / function(size) for value, size in zip(values, sizes, strict=True)]
                if all(math.isclose(factor, factors[0], rel_tol=1e-12) for factor in factors):
                    nearest = min(factors, key=lambda factor: _errors(factor, function, sizes, values))
                    scaled = (
                        pattern.replace("1.0 /", f"{nearest!r} /") if "/" in pattern else f"{nearest!r} * {pattern}"
                    )
                    yield scaled.format(expression)


def _errors(factor: float, function: Callable[[int], float], sizes: Size, values: Sequence[float]) -> float:
    """How far a constant times a function of sizes is from some values."""
    return sum(abs(factor * function(size) - value) for size, value in zip(sizes, values, strict=True))


_SCALED_FROM = 3
_SEVERAL_FROM = 3
"""Different values from which on what is put together of two expressions is no coincidence."""
