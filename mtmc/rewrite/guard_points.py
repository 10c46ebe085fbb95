"""guard_points: sizes by chance that some conditions allow, and what expressions of sizes are there.

Two expressions that are equal at all of them are taken for the same. So the sizes are drawn each on its own, small ones and
large ones: multiples of captured sizes would be equal wherever the captured ones are, and prove nothing.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mtmc.rewrite.symbolic import Expression

_WANTED = 64
_ENOUGH = 16
"""Points of fewer are no evidence."""
_DRAWS = 4000
_NEXT_TO_LOWEST = 9
_STEPS = (1, 1, 1, 2, 3, 4, 6, 8, 12, 16, 60, 64, 100, 420)
"""What a size is a multiple of: conditions often demand that."""

Column = tuple[Any, ...]
"""What an expression is at each point."""


@dataclass(eq=False)
class Points:
    """Sets of sizes, one a row. symbols: what they are the sizes of."""

    symbols: tuple[Expression, ...]
    rows: tuple[tuple[int, ...], ...]
    _columns: dict[Expression, Column] = field(default_factory=dict, repr=False)

    def column(self, expression: Expression) -> Column:
        """What an expression of these symbols is at each point."""
        if expression not in self._columns:
            function = _function(self.symbols, [expression])
            self._columns[expression] = tuple(_at(function, row) for row in self.rows)
        return self._columns[expression]


def draw_points(
    symbols: Sequence[Expression],
    conditions: Iterable[Expression],
    low: Mapping[Expression, int],
    high: Mapping[Expression, int | None],
) -> Points | None:
    """Points that the conditions allow, None where chance finds too few to prove anything.

    low, high: bounds of a symbol, high None where there is none.
    """
    if not symbols:
        return Points((), ((),))
    bounds = [(low.get(symbol, 2), high.get(symbol)) for symbol in symbols]
    allowed = _function(symbols, conditions)
    found: dict[tuple[int, ...], None] = {}
    for row in _drawn(bounds):
        if _holds(allowed, row):
            found[row] = None
        if len(found) == _WANTED:
            break
    return Points(tuple(symbols), tuple(found)) if len(found) >= _ENOUGH else None


def _drawn(bounds: Sequence[tuple[int, int | None]]) -> Iterator[tuple[int, ...]]:
    """Sizes by chance, each on its own: near the lowest, or a multiple of something. Some are near the lowest alone."""
    draw = random.Random(0)
    for number in range(_DRAWS):
        row = []
        for lowest, highest in bounds:
            if number % 4 == 0 or draw.random() < 0.3:
                size = lowest + draw.randrange(_NEXT_TO_LOWEST)
            else:
                size = max(lowest, draw.choice(_STEPS) * draw.randrange(1, 100))
            row.append(size if highest is None else min(size, highest))
        yield tuple(row)


def _at(function: Any, row: tuple[int, ...]) -> Any:
    try:
        return function(*row)[0]
    except ArithmeticError:  # a quotient by what is zero there: nothing that another one equals
        return math.nan


def _holds(allowed: Any, row: tuple[int, ...]) -> bool:
    try:
        return all(allowed(*row))
    except ArithmeticError:  # a quotient by what is zero there
        return False


def _function(symbols: Sequence[Expression], expressions: Iterable[Expression]) -> Any:
    """A function of the symbols' sizes: what each expression is."""
    import sympy
    import torch
    from torch.utils._sympy.printers import PythonPrinter

    names = {symbol: sympy.Symbol(f"size{at}", integer=True, positive=True) for at, symbol in enumerate(symbols)}
    printer = PythonPrinter()
    texts = [printer.doprint(sympy.sympify(expression).xreplace(names)) for expression in expressions]
    text = f"lambda {', '.join(str(name) for name in names.values())}: ({''.join(f'({each}), ' for each in texts)})"
    return eval(text, {"math": math, "torch": torch})
