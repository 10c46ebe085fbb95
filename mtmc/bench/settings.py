"""BenchSettings: which problems a benchmark takes, and how long it may."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mtmc.errors import ConfigError

Dtype = Literal["fp32", "fp16", "bf16"]
LicenceAnswer = Literal["ask", "ack"]


@dataclass(frozen=True)
class BenchSettings:
    """What `mtmc bench` adds to the settings of a search.

    suite: a name in `mtmc.bench.suites.SUITES`. path: where the suite lies (a checkout or an installed copy).
    licence: of a collection by path (files, gpumode): ask refuses one whose licence does not say that it may be used; ack
        says that a person has read what its makers allow.
    levels: of the suite, empty for all: 1 or level1, T, G. problems: numbers or names within a level, empty for all. They
        are begun in this order, and stand in the tables in the suite's.
    every: only problems whose number is divisible by it.
    dtype: fp32 takes the problems as they are; fp16 and bf16 put weights and floating inputs into that type.
    jobs: problems at the same time; 0: one, with a GPU one more than there are GPUs, so that one is prepared while
        others are timed.
    minutes: wall time of the whole; what is under way then is kept, and the same command goes on with it. null: no limit.
    problem_minutes: wall time of one problem. A search ends by itself after so long; what does not end is ended.
    retry: run those problems again that ended with a reason and no result, and go on with those that were cut off or whose
        model gave nothing.
    headroom: what searches leave of their evaluations (those that end early, see budget.roofline) goes to problems that are
        still below their bound, see `mtmc.bench.headroom`.
    score: folder of candidates made elsewhere, which are evaluated; nothing is searched. Empty: search.
    """

    suite: str = "kernelbench"
    path: str = ""
    licence: LicenceAnswer = "ask"
    levels: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    every: int = 1
    dtype: Dtype = "fp32"
    jobs: int = 0
    minutes: float | None = None
    problem_minutes: float = 20.0
    retry: bool = False
    headroom: bool = False
    score: str = ""

    def __post_init__(self) -> None:
        """Raises: ConfigError naming the setting, its value and what it may be."""
        if self.every < 1:
            raise ConfigError(f"every cannot be {self.every}: use 1 or more")
        if self.jobs < 0:
            raise ConfigError(f"jobs cannot be {self.jobs}: use 1 or more, or 0 for what fits the evaluator")
        if self.headroom and self.score:
            raise ConfigError("headroom cannot be true with score: nothing is searched, so nothing is left to share")
        for name in ("minutes", "problem_minutes"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"{name} cannot be {value:g}: use a number above 0")
