"""CollectSettings: how many trees are recorded, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mtmc.errors import ConfigError
from mtmc.rl.bounds import above_zero, at_least
from mtmc.rl.expand import Expand
from mtmc.rl.schema import SPLITS

LEARNED_FROM = ("", "blocks", "builtin", "files")
"""Suites that trees may be grown of. Benchmarks of others are measured with, not learned from."""


@dataclass(frozen=True)
class CollectSettings:
    """What `mtmc collect` takes besides an evaluator.

    tasks: how many trees. seed: of the tasks and of all that is drawn. first: number of the first task, so that several
    machines can share the work. evaluations: of each tree, the root included. depth: actions from the root at most.
    blind, complete: shares of the trials that are drawn evenly, and that complete the versions on the way to the best one;
    the others follow the heuristic and the values so far. focus: how closely. See `mtmc.rl.expand.Expand`.
    batch: trials of one tree at once. jobs: trees at once, each in its process; 0: three for each GPU, or one without one.
    minutes: wall time after which no more is evaluated; the same command goes on. null: no limit.
    split: only tasks of this split (train, validation, test), so that held-out trees can be wider; empty: all.
    benchmark: folder of a KernelBench checkout, none of whose problems becomes a task. Empty: not compared.
    suite: whose tasks are taken, as in `mtmc bench`: blocks, builtin, or files with a folder as `path`. Empty: generated.
    licence: of a collection of files: ask refuses one whose licence does not say that it may be used; ack: you have read it.
    """

    tasks: int = 300
    seed: int = 0
    first: int = 0
    evaluations: int = 64
    depth: int = 16
    blind: float = 0.2
    complete: float = 0.4
    focus: float = 6.0
    batch: int = 8
    jobs: int = 0
    minutes: float | None = None
    split: Literal["", "train", "validation", "test"] = ""
    benchmark: str = ""
    suite: Literal["", "blocks", "builtin", "files"] = ""
    path: str = ""
    licence: Literal["ask", "ack"] = "ask"

    def __post_init__(self) -> None:
        """Raises: ConfigError naming the setting, its value and what it may be."""
        at_least(self, tasks=1, first=0, evaluations=2, depth=1, batch=1, jobs=0)
        above_zero(self, "minutes")
        if self.split not in ("", *SPLITS):
            raise ConfigError(f"split cannot be {self.split!r}: use one of {', '.join(SPLITS)}, or nothing for all")
        if self.suite not in LEARNED_FROM:
            raise ConfigError(f"suite cannot be {self.suite!r}: use one of {', '.join(LEARNED_FROM[1:])}, or nothing")
        if self.path and not self.suite:
            raise ConfigError(f"path={self.path} is of a suite: add suite=files")
        Expand(self.blind, self.complete, self.focus)  # its settings are checked there
