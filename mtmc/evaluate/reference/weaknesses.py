"""What a task's admission tells whoever evaluates its versions. Loads no torch: it crosses processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Weaknesses:
    """warnings: sentences on what a kernel could leave out unnoticed. undecided: see `mtmc.outcome.Outcome`. metrics: of all
    outcomes of the task: by how much its tolerance is widened and why, none where it is not."""

    warnings: tuple[str, ...] = ()
    undecided: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def sentences(self) -> tuple[str, ...]:
        """All that is told."""
        ends = (f"{self.undecided}; no version of it earns a reward",) if self.undecided else ()
        return (*self.warnings, *ends)
