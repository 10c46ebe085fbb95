"""Compiled: whether a module is faster under torch.compile than with the best version, as both were measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

COMPILED = "torch.compile"
MODES: Mapping[str, str | None] = {COMPILED: None, f"{COMPILED} max-autotune": "max-autotune"}
"""What a module is compared with, by name: modes of torch.compile."""
FASTER = 0.98
"""Share of the best version's runtime below which a mode is faster: less is within the spread of measurements."""


@dataclass(frozen=True)
class FasterMode:
    """A mode of torch.compile that is faster. name: of `MODES`. runtime_ms, best_ms: of a call, with it and with the best
    version."""

    name: str
    runtime_ms: float
    best_ms: float

    @property
    def mode(self) -> str | None:
        """The argument of torch.compile."""
        return MODES[self.name]

    def __str__(self) -> str:
        return f"{self.name} is faster: {self.runtime_ms:.4g} ms a call, {self.best_ms:.4g} ms with the best version"


def faster_mode(
    best_ms: float | None, runtime_kind: str | None, baselines_ms: Mapping[str, float | None]
) -> FasterMode | None:
    """The fastest mode of torch.compile, where it takes less than `FASTER` of the best version's runtime; else None.

    best_ms: of the best version, the reference where none is better. runtime_kind: "measured" or "estimated", of which
    nothing follows. baselines_ms: runtimes by name, None where one could not be timed.
    """
    times = {name: each for name, each in baselines_ms.items() if name in MODES and each is not None}
    if best_ms is None or runtime_kind != "measured" or not times:
        return None
    name = min(times, key=times.__getitem__)
    return FasterMode(name, times[name], best_ms) if times[name] < FASTER * best_ms else None
