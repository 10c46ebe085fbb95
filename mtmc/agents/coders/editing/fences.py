"""fences: the code blocks of a reply, however carelessly they are fenced."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

_FENCE = re.compile(r"[ \t]*(?:(?:[-*+]|\d{1,3}[.)])[ \t]+)?(`{3,}|~{3,})([^`]*)$")

_TAG = re.compile(r"[{.]*([^\s:,}]*)")

MARKS = 400
"""Fences that are looked at; a reply with more is no edit."""

TRIES = 8
"""Fences that may end one block: a file can have fences in its own docstrings."""


@dataclass(frozen=True)
class Block:
    """One code block. tag: its language as the reply gives it, lower case. closed: whether anything ends it."""

    text: str
    tag: str
    closed: bool


@dataclass(frozen=True)
class _Mark:
    at: int
    fence: str
    tag: str


def find_blocks(lines: Sequence[str], is_whole: Callable[[str], bool]) -> list[Block]:
    """The code blocks of a reply in order.

    is_whole: whether a text is complete code. A block ends at the first fence that makes it so, else at the first fence;
    a fence with a language tag ends a block too and opens the next.
    """
    marks = list(islice(_marks(lines), MARKS))
    blocks = []
    at = 0
    while at < len(marks):
        start = marks[at]
        end = _end(lines, marks, at, is_whole)
        if end is None:
            blocks.append(Block("\n".join(lines[start.at + 1 :]), start.tag, False))
            break
        blocks.append(Block("\n".join(lines[start.at + 1 : marks[end].at]), start.tag, True))
        at = end if marks[end].tag else end + 1
    return blocks


def before_fences(lines: Sequence[str]) -> list[str]:
    """The lines before the first fence."""
    first = next(_marks(lines), None)
    return list(lines if first is None else lines[: first.at])


def fence_for(text: str) -> str:
    """A fence that no line of `text` can be taken for."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    return "`" * max(3, longest + 1)


def fenced(text: str, tag: str = "python") -> str:
    """A text as a code block."""
    fence = fence_for(text)
    return f"{fence}{tag}\n{text.rstrip()}\n{fence}"


def _marks(lines: Sequence[str]) -> Iterator[_Mark]:
    for at, line in enumerate(lines):
        found = _FENCE.match(line)
        if found:
            yield _Mark(at, found.group(1), _tag(found.group(2)))


def _tag(info: str) -> str:
    """The language in what follows a fence: "python" of "Python title=x", "python:x.py" and "{.python}"."""
    found = _TAG.match(info.strip().lower())
    return found.group(1) if found else ""


def _end(lines: Sequence[str], marks: Sequence[_Mark], at: int, is_whole: Callable[[str], bool]) -> int | None:
    """Which mark ends the block that begins at a mark; None where none does."""
    start = marks[at]
    later = (
        number
        for number in range(at + 1, len(marks))
        if marks[number].fence[0] == start.fence[0] and len(marks[number].fence) >= len(start.fence)
    )
    ends = list(islice(later, TRIES))
    for end in ends:
        if is_whole("\n".join(lines[start.at + 1 : marks[end].at])):
            return end
    return ends[0] if ends else None
