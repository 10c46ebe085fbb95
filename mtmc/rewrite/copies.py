"""copies: what forward makes of values for convolutions and what is beside them: turned channels last, rounded, or both.

One copy of each kind is made of a value, when the first stage needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from mtmc.rewrite.templates.channels_copy import LAUNCHER, ROUNDING, helpers


@dataclass(frozen=True)
class Copy:
    """A value as a convolution is given it. last: with its channels last. rounded: to TF32. in_order: as other kernels are
    given what lies channels last, in the order of its dimensions."""

    value: str
    last: bool
    rounded: bool
    in_order: bool = False


class Copies:
    """new: gives a variable like a name. line: prints a line of forward. turned_once: see `lying.turned_once`."""

    def __init__(self, new: Callable[[str], str], line: Callable[[str], None], turned_once: Collection[str]) -> None:
        self._new, self._line, self._turned_once = new, line, turned_once
        self._made = dict[Copy, str]()
        self._turns = self._rounds = False

    def helpers(self, given: bool = False) -> list[str]:
        """The texts of the kernels that make them. given: see `channels_copy.helpers`."""
        return helpers(self._turns, self._rounds, given)

    def kept(self, value: str, last: bool = True, rounded: bool = False) -> str | None:
        """The copy of a value that is made already."""
        return self._made.get(Copy(value, last, rounded))

    def turning(self, text: str) -> str:
        """The expression of a copy that is turned channels last."""
        self._turns = True
        return f"{LAUNCHER}({text})"

    def turned(self, value: str, text: str) -> str | None:
        """The copy of a value that is turned once; None for other values. text: the expression for it."""
        if value not in self._turned_once:
            return None
        return self.kept(value) or self._add(Copy(value, True, False), self.turning(text))

    def in_order(self, value: str, text: str) -> str:
        """The copy of a value that lies in the order of its dimensions. text: makes it."""
        copy = Copy(value, False, False, True)
        return self._made.get(copy) or self._add(copy, text)

    def rounded(self, value: str, text: str, last: bool) -> str:
        """The copy of a value that is rounded to TF32. last: whether its channels lie last there. A copy that is turned
        already is read as it lies."""
        return self._add(Copy(value, last, True), self._rounding((self.kept(value) if last else None) or text, last))

    def keep(self, copy: Copy, text: str, memory: str) -> str:
        """The copy of a weight that is packed. text: the expression for the weight. memory: the memory format of channels
        last."""
        if copy.rounded:
            return self._add(copy, self._rounding(text, copy.last))
        return self._add(copy, f"{text}.contiguous(memory_format={memory})" if copy.last else text)

    def forget(self) -> None:
        """Another method begins, in which these copies are not at hand."""
        self._made.clear()

    def _rounding(self, text: str, last: bool) -> str:
        self._rounds, self._turns = True, self._turns or last
        return f"{LAUNCHER}({text}, rounded=True)" if last else f"{ROUNDING}({text})"

    def _add(self, copy: Copy, text: str) -> str:
        kind = "rounded" if copy.rounded else "in_order" if copy.in_order else "last"
        made = self._made[copy] = self._new(f"{copy.value}_{kind}")
        self._line(f"{made} = {text}")
        return made
