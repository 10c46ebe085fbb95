"""guard_sizes: which sizes a version may take for one another, and what has to be true so that it is right to.

Two sizes that were equal at every captured variant stand for one in a version's text, and a number stands there as an
expression that gave it at every variant. Here both are compared with what the symbolic export says they are: where these
differ, that they are equal becomes a condition.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from mtmc.rewrite.graph import Graph, product
from mtmc.rewrite.guard_points import Column, Points, draw_points
from mtmc.rewrite.sizes import Scope
from mtmc.rewrite.symbolic import Expression, Symbolic


@dataclass(eq=False)
class Relations:
    """What is known of the input dimensions' symbols while guards are collected.

    fixed: symbols that stand for another expression, since a guard says so. conditions: what has to hold, as sympy
    expressions.
    """

    symbolic: Symbolic
    fixed: dict[Expression, Expression] = field(default_factory=dict)
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
        for values, expression in chain(self.symbolic.dimensions(graph), self._products(graph), self.symbolic.numbers):
            settled, found = self.settle(expression), classes.setdefault(values, [])
            if settled not in found:
                found.append(settled)
        for values, [first, *others] in classes.items():
            others += [values[0]] if len(set(values)) == 1 else []
            if not all(self._same(first, other, points) for other in others):
                return False
        varied = {values: found[0] for values, found in classes.items() if found[0].free_symbols}
        return self._writes(scope, varied, points)

    def _products(self, graph: Graph) -> Iterator[tuple[tuple[float, ...], Expression]]:
        """Products of neighbouring dimensions of a value, by which kernels count rows and elements."""
        shapes = dict.fromkeys((graph.values[value].shape, sizes) for value, sizes in self.symbolic.sizes.items())
        for shape, sizes in shapes:  # in order: conditions are the same ones at each derivation
            for start in range(len(sizes)):
                for stop in range(start + 2, len(sizes) + 1):
                    yield product(shape[start:stop]), math.prod(map(self.settle, sizes[start:stop]))

    def _writes(self, scope: Scope, varied: Mapping[Any, Expression], points: Points) -> bool:
        """The same for all that a text may write for the numbers that vary: these, with what they are."""
        names, drawn = self._given(scope, _Whole), self._given(scope, lambda size: _Drawn(points.column(size)))
        for values, text in _writings(scope, varied):
            same = _close(_evaluated(text, drawn), points.column(varied[values]))
            if not same and not self._tied(varied[values], _evaluated(text, names)):
                return False
        return True

    def _given(self, scope: Scope, kind: Callable[[Expression], Any]) -> Mapping[str, Any]:
        """What the names in a text stand for. Numbers of the module are as at the full shapes."""
        from sympy import sympify

        tensors = {name: _Sizes(map(kind, map(self.settle, self.symbolic.sizes[name]))) for name, _ in scope.tensors}
        return {**tensors, **{name: kind(sympify(values[0])) for name, values in scope.numbers.items()}}

    def _same(self, one: Expression, other: Expression, points: Points) -> bool:
        """Whether two expressions are equal, by a condition where they need not be; False where none can say that."""
        import sympy

        one, other = sympy.sympify(one), sympy.sympify(other)
        return one == other or _close(points.column(one), points.column(other)) or self._tied(one, other)

    def _tied(self, one: Expression, other: Expression) -> bool:
        """A condition that two expressions are equal; False where they are no integers."""
        import sympy

        one, other = sympy.sympify(one), sympy.sympify(other)
        if not (one.is_integer and other.is_integer):
            return False
        self.conditions.append(sympy.Eq(one, other))
        return True

    def _points(self) -> Points | None:
        """Sets of sizes that the conditions allow; None where chance finds too few."""
        sizes = [self.settle(size) for sizes in self.symbolic.sizes.values() for size in sizes]
        symbols = sorted({symbol for size in sizes for symbol in size.free_symbols}, key=str)
        return draw_points(symbols, self.open_conditions(), self.symbolic.low, self.symbolic.high)


def _close(one: Column, other: Column) -> bool:
    return all(math.isclose(a, b, rel_tol=1e-9) for a, b in zip(one, other, strict=True))


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


def _value(item: Any) -> Any:
    return item.value if isinstance(item, (_Whole, _Drawn)) else item


class _Drawn:
    """A size at each point, in the text of a number."""

    def __init__(self, value: Column) -> None:
        self.value = value

    def _with(self, other: Any, function: Callable[[Any, Any], Any]) -> _Drawn:
        others = other.value if isinstance(other, _Drawn) else (other,) * len(self.value)
        return _Drawn(tuple(function(a, b) for a, b in zip(self.value, others, strict=True)))

    def __add__(self, other: Any) -> _Drawn:
        return self._with(other, operator.add)

    def __sub__(self, other: Any) -> _Drawn:
        return self._with(other, operator.sub)

    def __mul__(self, other: Any) -> _Drawn:
        return self._with(other, operator.mul)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> _Drawn:
        return self._with(other, lambda a, b: a // b if b else math.nan)

    def __rtruediv__(self, other: float) -> _Drawn:
        return self._with(other, lambda a, b: b / a if a else math.nan)

    def __pow__(self, power: float) -> _Drawn:
        return self._with(power, lambda a, b: a**b if a > 0 else math.nan)


class _Sizes:
    """A tensor in the text of a number."""

    def __init__(self, sizes: Iterable[Any]) -> None:
        self.shape = list(sizes)

    def numel(self) -> Any:
        return math.prod(self.shape[1:], start=self.shape[0]) if self.shape else 1


def _writings(scope: Scope, wanted: Iterable[Any]) -> Iterator[tuple[Any, str]]:
    """All that a text may write for the wanted numbers: the number, and its expression."""
    wanted = list(wanted)
    whole = {values for values in wanted if all(isinstance(value, int) for value in values)}
    terms = scope.every
    for text, size in terms.all():
        if size in whole:
            yield size, text
    for values in wanted:
        if values not in whole:
            yield from ((values, text) for text in terms.functions(values))


def _evaluated(text: str, names: Mapping[str, Any]) -> Any:
    """What an expression is where its names stand for these."""
    return _value(eval(text, {"__builtins__": {}, "float": lambda size: size}, dict(names)))
