"""guard_sizes: which sizes a version may take for one another, and what has to be true so that it is right to.

Two sizes that were equal at every captured variant stand for one in a version's text, and a number stands there as an
expression that gave it at every variant. Here both are compared with what the symbolic export says they are: where these
differ, that they are equal becomes a condition.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from mtmc.rewrite.graph import Graph, Size
from mtmc.rewrite.sizes import Scope
from mtmc.rewrite.symbolic import Expression, Symbolic

_POINTS = 4
_DRAWS = 400

Point = dict[Any, int]
"""A size for each open symbol."""


@dataclass(eq=False)
class Relations:
    """What is known of the input dimensions' symbols while guards are collected.

    fixed: symbols that stand for another expression, since a guard says so. captured: of the other symbols, the values at
    the captured variants. conditions: what has to hold, as sympy expressions.
    """

    symbolic: Symbolic
    fixed: dict[Expression, Expression] = field(default_factory=dict)
    captured: dict[Expression, Size] = field(default_factory=dict)
    conditions: list[Expression] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.conditions = list(self.symbolic.conditions)

    def settle(self, expression: Expression) -> Expression:
        """An expression without the symbols that guards have tied or fixed."""
        import sympy

        settled = sympy.sympify(expression)
        for _ in range(len(self.fixed) + 1):
            known = {symbol: self.fixed[symbol] for symbol in settled.free_symbols if symbol in self.fixed}
            if not known:
                break
            settled = settled.subs(known)
        return settled

    def open_conditions(self) -> list[Expression]:
        """The conditions that still say something, each once."""
        import sympy

        settled = dict.fromkeys(self.settle(condition) for condition in self.conditions)
        return [condition for condition in settled if condition is not sympy.true]

    def compare(self, graph: Graph, scope: Scope) -> bool:
        """Add a condition wherever a size or a number is not always what a text takes it for.

        scope: all that a text may express numbers by. False where conditions cannot say that.
        """
        points = self._points()
        if points is None:
            return False
        classes: dict[tuple[float, ...], list[Expression]] = {}
        for values, expression in chain(self.symbolic.dimensions(graph), self.symbolic.numbers):
            settled, found = self.settle(expression), classes.setdefault(values, [])
            if settled not in found:
                found.append(settled)
        for values, [first, *others] in classes.items():
            others += [values[0]] if len(set(values)) == 1 else []
            if not all(self._same(first, other, points) for other in others):
                return False
        varied = {values: found[0] for values, found in classes.items() if found[0].free_symbols}
        return all(
            self._same(varied[values], written(self._given(scope)), points)
            for values, written in _writings(scope, varied)
        )

    def _given(self, scope: Scope) -> Mapping[str, Any]:
        """What the names in a text stand for. Numbers of the module are as at the full shapes."""
        tensors = {name: _Sizes(map(self.settle, self.symbolic.sizes[name])) for name, _ in scope.tensors}
        return {**tensors, **{name: _Whole(values[0]) for name, values in scope.numbers.items()}}

    def _same(self, one: Expression, other: Expression, points: list[Point]) -> bool:
        """Whether two expressions are equal, by a condition where they need not be; False where none can say that."""
        import sympy

        one, other = sympy.sympify(one), sympy.sympify(other)
        if one == other or all(math.isclose(_at(one, point), _at(other, point), rel_tol=1e-9) for point in points):
            return True
        if not (one.is_integer and other.is_integer):
            return False
        self.conditions.append(sympy.Eq(one, other))
        return True

    def _points(self) -> list[Point] | None:
        """Some sets of sizes that the conditions allow, each other than any captured one; None where chance finds none."""
        conditions = self.open_conditions()
        sizes = [self.settle(size) for sizes in self.symbolic.sizes.values() for size in sizes]
        symbols = sorted({symbol for size in sizes for symbol in size.free_symbols}, key=str)
        if not symbols:
            return [{}]
        draw, found = random.Random(0), list[Point]()
        for number in range(_DRAWS):
            point = self._draw(symbols, number, draw)
            if all(_at(condition, point) for condition in conditions):
                found.append(point)
            if len(found) == _POINTS:
                return found
        return None

    def _draw(self, symbols: list[Expression], number: int, draw: random.Random) -> Point:
        """Sizes by chance: each on its own, or multiples of captured ones, for conditions that tie several."""
        if number % 2 and all(symbol in self.captured for symbol in symbols):
            variant = draw.randrange(len(self.captured[symbols[0]]))
            factor = draw.choice((3, 5, 7, 9, 11, 13, 16))
            point = {symbol: factor * self.captured[symbol][variant] for symbol in symbols}
        else:
            factor = draw.choice((1, 1, 2, 12, 64))
            point = {symbol: factor * (self.symbolic.low.get(symbol, 2) + draw.randrange(3, 97)) for symbol in symbols}
        high = self.symbolic.high
        return {s: size if (most := high.get(s)) is None else min(size, most) for s, size in point.items()}


def _at(expression: Expression, point: Point) -> float:
    """The value of an expression at a point; 1.0 or 0.0 of a condition."""
    return float(bool(value) if (value := expression.subs(point)).is_Boolean else value)


class _Whole:
    """A size in the text of a number: its quotient is rounded down."""

    def __init__(self, value: Expression) -> None:
        self.value = value

    def __add__(self, other: Any) -> _Whole:
        return _Whole(self.value + _value(other))

    def __sub__(self, other: Any) -> _Whole:
        return _Whole(self.value - _value(other))

    def __mul__(self, other: Any) -> _Whole:
        return _Whole(self.value * _value(other))

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> _Whole:
        from torch.utils._sympy.functions import FloorDiv

        return _Whole(FloorDiv(self.value, _value(other)))

    def __rtruediv__(self, other: float) -> _Whole:
        return _Whole(other / self.value)

    def __pow__(self, power: float) -> _Whole:
        return _Whole(self.value**power)

    def __float__(self) -> float:
        return float(self.value)


def _value(item: Any) -> Any:
    return item.value if isinstance(item, _Whole) else item


class _Sizes:
    """A tensor in the text of a number."""

    def __init__(self, sizes: Iterable[Expression]) -> None:
        self.shape = [_Whole(size) for size in sizes]

    def numel(self) -> _Whole:
        return math.prod(self.shape, start=_Whole(1))


def _writings(scope: Scope, wanted: Mapping[Any, Any]) -> Iterator[tuple[Any, Callable[[Mapping[str, Any]], Any]]]:
    """All that a text may write for the wanted numbers: the number, and a function of what the names stand for."""
    whole = {values for values in wanted if all(isinstance(value, int) for value in values)}
    for text, size in scope.expressions():
        if size in whole:
            yield size, _written(text)
    for values in wanted:
        if values not in whole:
            yield from ((values, _written(text)) for text in scope.functions_of_sizes(values))


def _written(text: str) -> Callable[[Mapping[str, Any]], Any]:
    return lambda names: _value(eval(text, {"__builtins__": {}, "float": lambda size: size}, dict(names)))
