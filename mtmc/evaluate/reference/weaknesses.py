"""What a task's admission tells whoever evaluates its versions. Loads no torch: it crosses processes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Weaknesses:
    """warnings: sentences on what a kernel could leave out unnoticed. undecided: see `mtmc.outcome.Outcome`."""

    warnings: tuple[str, ...] = ()
    undecided: str = ""

    @property
    def sentences(self) -> tuple[str, ...]:
        """All that is told."""
        ends = (f"{self.undecided}; no version of it earns a reward",) if self.undecided else ()
        return (*self.warnings, *ends)
