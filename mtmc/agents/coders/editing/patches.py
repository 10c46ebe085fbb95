"""patches: SEARCH/REPLACE blocks in a reply, and the file that they make of another.

A block says which lines are replaced by which:

    <<<<<<< SEARCH
    lines as they stand in the file
    =======
    lines to stand there instead
    >>>>>>> REPLACE

Lines are found exactly; else ignoring blanks at their ends; else ignoring indentation that all of them have in common. The
first of these ways that finds a place decides, and it must find only one.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mtmc.agents.coders.editing.unusable import Unusable

SEARCH = "<<<<<<< SEARCH"
DIVIDER = "======="
REPLACE = ">>>>>>> REPLACE"

_OPEN = re.compile(r"[ \t]*<{5,9} ?SEARCH\b", re.IGNORECASE)
_DIVIDE = re.compile(r"[ \t]*={5,9}[ \t]*$")
_CLOSE = re.compile(r"[ \t]*>{5,9} ?(REPLACE\b|$)", re.IGNORECASE)
_FENCE = re.compile(r"[ \t]*(```|~~~)")
_NUMBER = re.compile(r"(> *)?\d+ \|( |$)")
_TAB = 4
DIVIDERS = 8
"""Lines of a block that may be its divider: the last ones and the first ones are tried, and none of those between them."""


@dataclass(frozen=True)
class Patch:
    """One block. number: from 1, in the order of the reply. body: the lines between its markers. closed: it has an end."""

    number: int
    body: tuple[str, ...]
    closed: bool

    def readings(self) -> Iterator[tuple[list[str], list[str]]]:
        """(lines to find, lines to put there) for each line that may be the divider, the last first: code can look like one,
        and what finds more lines is what was meant."""
        dividers = [at for at, line in enumerate(self.body) if _DIVIDE.match(line)]
        for at in dict.fromkeys((*reversed(dividers[-DIVIDERS:]), *reversed(dividers[:DIVIDERS]))):
            yield _cleaned(self.body[:at]), _cleaned(self.body[at + 1 :])


def find_patches(lines: Sequence[str]) -> tuple[list[Patch], list[str]]:
    """The blocks of a reply, and its other lines. A block without an end goes on to the next block or the last line."""
    patches: list[Patch] = []
    rest: list[str] = []
    at = 0
    while at < len(lines):
        if not _OPEN.match(lines[at]):
            rest.append(lines[at])
            at += 1
            continue
        end = at + 1
        while end < len(lines) and not _OPEN.match(lines[end]) and not _CLOSE.match(lines[end]):
            end += 1
        closed = end < len(lines) and _CLOSE.match(lines[end]) is not None
        patches.append(Patch(len(patches) + 1, tuple(lines[at + 1 : end]), closed))
        at = end + 1 if closed else end
    return patches, rest


def apply_patches(patches: Sequence[Patch], base: str) -> tuple[str, list[str]]:
    """The file that the blocks, one after the other, make of `base`, and notes on what had to be put right.

    Raises: Unusable where a block has no end, finds nothing, or finds several places.
    """
    lines = base.rstrip("\n").split("\n")
    notes: list[str] = []
    for patch in patches:
        if not patch.closed:
            message = f"SEARCH/REPLACE block {patch.number} has no line {REPLACE!r}: the reply ends inside of it"
            raise Unusable("truncated", message)
        lines, note = _applied(patch, lines)
        notes += [f"block {patch.number}: {note}"] if note else []
    return "\n".join(lines).rstrip("\n") + "\n", notes


def _applied(patch: Patch, lines: list[str]) -> tuple[list[str], str]:
    failure: Unusable | None = None
    for search, replace in patch.readings():
        try:
            return _replaced(patch.number, lines, search, replace)
        except Unusable as error:
            failure = error  # that of the first divider stays
    message = (
        f"SEARCH/REPLACE block {patch.number} has no line {DIVIDER!r} between what is searched and what replaces it"
    )
    raise failure or Unusable("no match", message)


def _replaced(number: int, lines: list[str], search: list[str], replace: list[str]) -> tuple[list[str], str]:
    """The lines with the one place where `search` stands replaced."""
    if not any(line.strip() for line in search):
        message = f"the SEARCH part of block {number} is empty: quote the lines that are to be replaced or added to"
        raise Unusable("no match", message)
    for note, find in _WAYS:
        found = find(lines, search, replace)
        if len(found) > 1:
            places = ", ".join(str(start + 1) for start, _, _ in found)
            earlier = " (counted after the blocks before it)" if number > 1 else ""
            message = (
                f"the SEARCH part of block {number} stands at {len(found)} places, from lines {places}{earlier}: quote "
            )
            raise Unusable("ambiguous", f"{message}more lines around the place that is meant")
        if found:
            [(start, length, new)] = found
            return [*lines[:start], *new, *lines[start + length :]], note
    raise Unusable("no match", f"the SEARCH part of block {number} is not in the file{_nearest(lines, search)}")


_Place = tuple[int, int, list[str]]
"""Index of the first line, how many lines, and the lines to stand there instead."""


def _exact(lines: list[str], search: list[str], replace: list[str]) -> list[_Place]:
    return [(start, len(search), replace) for start in _starts(lines, search)]


def _ignoring_ends(lines: list[str], search: list[str], replace: list[str]) -> list[_Place]:
    wanted, new = _without_borders(search, replace)
    starts = _starts([line.rstrip() for line in lines], [line.rstrip() for line in wanted])
    return [(start, len(wanted), new) for start in starts]


def _ignoring_indentation(lines: list[str], search: list[str], replace: list[str]) -> list[_Place]:
    wanted, new = _without_borders(search, replace)
    places = []
    for start in _starts([line.strip() for line in lines], [line.strip() for line in wanted]):
        pairs = zip(lines[start : start + len(wanted)], wanted, strict=True)
        shifts = {_indent(here) - _indent(there) for here, there in pairs if here.strip()}
        if len(shifts) == 1:
            shift = shifts.pop()
            places.append((start, len(wanted), [_shifted(line, shift) for line in new]))
    return places


_WAYS: tuple[tuple[str, Callable[[list[str], list[str], list[str]], list[_Place]]], ...] = (
    ("", _exact),
    ("found ignoring blanks", _ignoring_ends),
    ("found ignoring indentation", _ignoring_indentation),
)


def _starts(lines: list[str], wanted: list[str]) -> list[int]:
    """Where the wanted lines stand, one after the other."""
    first, count = wanted[0], len(wanted)
    return [at for at, line in enumerate(lines) if line == first and lines[at : at + count] == wanted]


def _without_borders(search: list[str], replace: list[str]) -> tuple[list[str], list[str]]:
    """Both without the blank lines around `search`; `replace` loses at most as many as that."""
    filled = [at for at, line in enumerate(search) if line.strip()]
    before, after = filled[0], len(search) - 1 - filled[-1]
    first, last = 0, len(replace)
    while first < min(before, last) and not replace[first].strip():
        first += 1
    while last > max(first, len(replace) - after) and not replace[last - 1].strip():
        last -= 1
    return search[filled[0] : filled[-1] + 1], replace[first:last]


def _indent(line: str) -> int:
    wide = line.expandtabs(_TAB)
    return len(wide) - len(wide.lstrip())


def _shifted(line: str, shift: int) -> str:
    return " " * max(0, _indent(line) + shift) + line.strip() if line.strip() else ""


def _cleaned(lines: Sequence[str]) -> list[str]:
    """A part of a block without a fence around it and without line numbers before each line."""
    part = list(lines)
    if len(part) > 1 and _FENCE.match(part[0]) and _FENCE.match(part[-1]):
        part = part[1:-1]
    return unnumbered(part)


def unnumbered(lines: list[str]) -> list[str]:
    """The lines without the numbers that a quotation of the file has ("12 | x = 1"); as they are if any has none."""
    filled = [line for line in lines if line.strip()]
    if not filled or not all(_NUMBER.match(line.lstrip()) for line in filled):
        return lines
    return [_NUMBER.sub("", line.lstrip(), count=1) for line in lines]


def _nearest(lines: list[str], search: list[str]) -> str:
    """Which line of the file is most like the first of those that were searched."""
    first = next(line.strip() for line in search if line.strip())
    known = {line.strip(): at for at, line in enumerate(lines, 1) if line.strip()}
    near = difflib.get_close_matches(first[:200], known, n=1, cutoff=0.6)
    return (
        f"; the line most like its first line is line {known[near[0]]}: {near[0]!r}" if near else f": {first[:200]!r}"
    )
