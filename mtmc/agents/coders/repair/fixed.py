"""Fixed: a source that a rule has changed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fixed:
    """source: the whole new file. what: what was changed, one sentence. rule: whose work it is, which `fix` says."""

    source: str
    what: str
    rule: str = ""
