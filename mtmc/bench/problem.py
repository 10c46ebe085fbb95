"""Problem and Suite: what a benchmark is made of. A suite is one file in `mtmc/bench/suites` and one line in its table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Problem:
    """One problem of a suite.

    level: the group it belongs to, as the tables name it ("level1", "T", ...). number: within its level, from 1.
    name: usable as a file's name ("19_ReLU"). path: its file.
    """

    level: str
    number: int
    name: str
    path: Path

    @property
    def id(self) -> str:
        """Its name within the suite: "level1/19_ReLU"."""
        return f"{self.level}/{self.name}"


class Suite(Protocol):
    """A collection of problems. Frozen data, so that it can be handed to another process."""

    def problems(self) -> Sequence[Problem]:
        """All problems, by level and number. Raises: ConfigError where the path does not hold the suite."""
        ...

    def source(self, problem: Problem) -> str:
        """The problem as a task's text in KernelBench's format. Raises: TaskError, with the reason, where it is none."""
        ...

    def trusted(self, problem: Problem) -> bool:
        """Whether the shapes that the problem's text declares are taken as they are. Otherwise they are tried, or found, by
        running the reference on the CPU."""
        ...

    def candidate(self, problem: Problem, text: str) -> str:
        """A candidate made elsewhere as a text with `ModelNew`. Raises: TaskError, with the reason, where it is none."""
        ...
