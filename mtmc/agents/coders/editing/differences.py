"""differences: what has changed between two files, as the SEARCH/REPLACE blocks that `patches` applies."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mtmc.agents.coders.editing.patches import DIVIDER, REPLACE, SEARCH, apply_patches, find_patches
from mtmc.agents.coders.editing.unusable import Unusable


@dataclass(frozen=True)
class _Hunk:
    """Lines first to last (not included) of the old file become those from new_first to new_last of the new one."""

    first: int
    last: int
    new_first: int
    new_last: int


def difference_text(before: str, after: str) -> str | None:
    """The blocks that make one file of another, each with as many lines around it as show its place.

    None where there is no difference, or blocks cannot say it (a line of the files looks like a marker, say): it is tried.
    """
    old, new = before.rstrip("\n").split("\n"), after.rstrip("\n").split("\n")
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    changed = [_Hunk(*places) for tag, *places in matcher.get_opcodes() if tag != "equal"]
    if not changed:
        return None
    blocks = [
        _block(old[each.first : each.last], new[each.new_first : each.new_last]) for each in _placed(changed, old)
    ]
    text = "\n\n".join(blocks)
    try:
        made, _ = apply_patches(find_patches(text.split("\n"))[0], before)
    except Unusable:
        return None
    return text if made.rstrip("\n") == after.rstrip("\n") else None


def _placed(hunks: Sequence[_Hunk], old: list[str]) -> list[_Hunk]:
    """Each with lines around it until its old lines stand at one place alone; those that then meet are one."""
    grown = list(hunks)
    while True:
        grown = _merged(grown)
        lacking = [at for at, each in enumerate(grown) if not _alone(old[each.first : each.last], old)]
        if not lacking:
            return grown
        for at in lacking:
            grown[at] = _wider(grown[at], len(old))


def _wider(hunk: _Hunk, size: int) -> _Hunk:
    up, down = min(1, hunk.first), min(1, size - hunk.last)
    return _Hunk(hunk.first - up, hunk.last + down, hunk.new_first - up, hunk.new_last + down)


def _merged(hunks: Sequence[_Hunk]) -> list[_Hunk]:
    merged: list[_Hunk] = []
    for each in hunks:
        if merged and each.first <= merged[-1].last:
            merged[-1] = replace(merged[-1], last=each.last, new_last=each.new_last)
        else:
            merged.append(each)
    return merged


def _alone(wanted: list[str], lines: list[str]) -> bool:
    """Whether these lines say something and stand at one place, or are the whole file."""
    if len(wanted) == len(lines):
        return True
    if not any(line.strip() for line in wanted):
        return False
    starts = (at for at, line in enumerate(lines) if line == wanted[0] and lines[at : at + len(wanted)] == wanted)
    return sum(1 for _ in starts) == 1


def _block(search: list[str], new: list[str]) -> str:
    return "\n".join([SEARCH, *search, DIVIDER, *new, REPLACE])
