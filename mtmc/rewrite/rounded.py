"""rounded: a size over a divisor, rounded down or up, and what is left over, with how they come about.

A dimension that is joined behind another and then split into pairs begins in the middle of a pair at some shapes and not at
others. Such numbers are small, so that many expressions give them wherever the reference was exported; only how they come
about says what they are elsewhere. So they keep it, and a kernel works them out from the sizes that they are made of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from mtmc.rewrite.graph import Size

How = Literal["//", "%", "// up", "% up"]
"""A quotient rounded down and what is left over; one rounded up, and what is missing to that."""
_NUMBERS: dict[How, Callable[[int, int], int]] = {
    "//": lambda size, by: size // by,
    "%": lambda size, by: size % by,
    "// up": lambda size, by: -(-size // by),
    "% up": lambda size, by: -size % by,
}
_TEXTS: dict[How, str] = {
    "//": "({0} // {1})",
    "%": "({0} % {1})",
    "// up": "tl.cdiv({0}, {1})",
    "% up": "(({1} - {0} % {1}) % {1})",
}
"""How a kernel computes them: of numbers at least 0, whose quotients are the same before and after compilation."""


@dataclass(frozen=True)
class Rounded:
    """A size, at least 0, by a divisor above 0."""

    how: How
    size: Size
    by: Size

    @cached_property
    def values(self) -> Size:
        """What it is at every variant."""
        return tuple(_NUMBERS[self.how](size, by) for size, by in zip(self.size, self.by, strict=True))

    @property
    def count(self) -> Size:
        """It is below that."""
        return tuple(value + 1 for value in self.values)

    def text(self, number: Callable[[Size], str]) -> str:
        """How a kernel computes it. number: writes a size."""
        return _TEXTS[self.how].format(number(self.size), number(self.by))


def parted(number: Size, by: Size) -> tuple[tuple[Rounded, int], tuple[Rounded, int]] | None:
    """(a, b) with number = a * by + b and b from 0 to by - 1, each a number of this kind and its sign; None where b is the
    same at every variant, or the number below 0 at some and above at others."""
    if len({size % divisor for size, divisor in zip(number, by, strict=True)}) == 1:
        return None
    if min(number) >= 0:
        return (Rounded("//", number, by), 1), (Rounded("%", number, by), 1)
    less = tuple(-size for size in number)
    return ((Rounded("// up", less, by), -1), (Rounded("% up", less, by), 1)) if min(less) >= 0 else None
