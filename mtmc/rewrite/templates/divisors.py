"""divisors: the sizes that a kernel divides numbers of elements by, or counts turns of a loop by, and how it gets them.

A division by a number that is known at compile time is a multiplication and a shift, and the compiler sees over which
neighbours the quotient is the same. So sizes that are a module's own are compile-time arguments, as are those that a loop
is unrolled by. Open ones are ordinary arguments, or every length of a sequence would be a kernel of its own. Where all
elements of a tile divide by them, and not only its program or the rows that it reduces, or a loop takes as many turns,
which could be unrolled, the kernel has their numbers at the full shapes too: a compile-time flag says whether these are at
hand.

So it has a number of elements that tiles end with, if it is even and no multiple of 16: of those the compiler learns by
itself, of others it takes it that each element may be the last, and loads them one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

FULL = "FULL"
"""Whether the open sizes that a kernel had better know are those of the full shapes."""
_DIVISION, _NAME = re.compile(r"(?://|%) (\w+|\([\w *]+\))"), re.compile(r"\b[a-z]\w*")
_ROUNDED = re.compile(r"tl\.cdiv\((\w+), |\(\w+ - (\w+) % |\((size_\d+|n_\w+) (?://|%) ")
"""A size that is rounded to a multiple, see `mtmc.rewrite.rounded`: what is left over decides how elements lie."""
_UNROLLED = re.compile(r"static_range\(([a-z]\w*)\)")
_ASSIGNED, _TURNS = re.compile(r" *(\w+) = (.*)"), re.compile(r" in range\((\w+)\):")
_ELEMENTS, _BUT_ROWS = re.compile(r"tl\.arange\(0, "), re.compile(r"tl\.arange\(0, (?!BLOCK_ROWS\b)")
_END = re.compile(r" *\w*mask = \w+ < (\w+)$")
"""Where the elements of a tile end."""
_KNOWN = 16
"""Multiples of this are told apart when a kernel is compiled."""
_INNER = re.compile(r" *inner = rows ")
"""Where rows are neighbours in memory, and what is along them is read at once."""


@dataclass(frozen=True)
class Divisors:
    """Of one kernel. constants: names of those that are compile-time arguments. full: numbers at the full shapes of those
    that are open and that the kernel had better know."""

    constants: frozenset[str]
    full: Mapping[str, int]

    def lines(self) -> list[str]:
        """What a kernel begins with, without indentation; the numbers stand in where the flag holds."""
        if not self.full:
            return []
        names, numbers = ", ".join(self.full), ", ".join(map(str, self.full.values()))
        return [f"if {FULL}:  # the compiler knows these", f"    {names} = {numbers}"]

    def condition(self, expressions: Mapping[str, str]) -> str:
        """The flag in the launcher. expressions: of the arguments by their names."""
        found = [expressions[name] for name in self.full]
        if len(found) == 1:
            return f"{found[0]} == {next(iter(self.full.values()))}"
        return f"({', '.join(found)}) == ({', '.join(map(str, self.full.values()))})"


def divisors_of(
    lines: Sequence[str], sizes: Mapping[str, int], opened: Mapping[str, int], wanted: Iterable[str] = ()
) -> Divisors:
    """See `Divisors`. sizes: of a kernel, with their numbers at the full shapes; opened: the open ones among them. wanted:
    those that it had better know for reasons of its own."""
    names, better_known, elements = set(wanted), set(wanted), set[str]()
    ranges = _ELEMENTS if any(map(_INNER.match, lines)) else _BUT_ROWS
    for line in lines:
        for match in _DIVISION.finditer(line):
            found = _NAME.findall(match[1])
            names.update(found)
            if _is_of(_dividend(line[: match.start()]), ranges, elements):
                better_known.update(found)
        names.update(name for match in _ROUNDED.findall(line) for name in match if name)
        names.update(_UNROLLED.findall(line))
        better_known.update(_TURNS.findall(line))
        end = _END.match(line)
        if end and sizes.get(end[1], 0) % _KNOWN and sizes[end[1]] % 2 == 0:
            names.add(end[1])
            better_known.add(end[1])
        assigned = _ASSIGNED.match(line)
        if assigned and _is_of(assigned[2], ranges, elements):
            elements.add(assigned[1])
    full = {name: number for name, number in opened.items() if name in better_known}
    return Divisors(frozenset(names - opened.keys()), full)


def _is_of(expression: str, ranges: re.Pattern[str], elements: set[str]) -> bool:
    """Whether an expression has a value for each element of a tile: by ranges of its own, or the variables that have."""
    return bool(ranges.search(expression)) or not elements.isdisjoint(_NAME.findall(expression))


def _dividend(text: str) -> str:
    """The product at the end of a text, which an operator behind it divides."""
    depth = 0
    for at in range(len(text) - 1, -1, -1):
        depth += (text[at] in ")]") - (text[at] in "([")
        if depth < 0 or (depth == 0 and text[at] in "+-=<>&|,"):
            return text[at + 1 :]
    return text
