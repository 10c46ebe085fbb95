"""Spelling: which known name a name was meant to be."""

from __future__ import annotations

from collections.abc import Iterable

_SHORTEST = 3
"""Names below this length differ from too many others by one letter."""


def near(name: str, known: Iterable[str]) -> str | None:
    """The only known name that is one letter away: missing, added, changed, swapped, or of the other case."""
    if len(name) < _SHORTEST - 1:
        return None
    found = {one for one in known if len(one) >= _SHORTEST and one != name and _one_step(name, one)}
    return found.pop() if len(found) == 1 else None


def _one_step(a: str, b: str) -> bool:
    if a.lower() == b.lower():
        return True
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    added, missing, changed = a[at + 1 :] == b[at:], a[at:] == b[at + 1 :], a[at + 1 :] == b[at + 1 :]
    swapped = a[at : at + 2] == b[at : at + 2][::-1] and a[at + 2 :] == b[at + 2 :]
    return added or missing or changed or swapped
