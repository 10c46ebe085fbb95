"""builtin: our own tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mtmc.bench.problem import Problem
from mtmc.bench.suites.files import read_text
from mtmc.errors import ConfigError
from mtmc.task import builtin_names
from mtmc.task.load import BUILTIN_FOLDER


@dataclass(frozen=True)
class Builtin:
    """The built-in tasks, all in one level. Needs no path. Raises (constructor): ConfigError where one is given."""

    path: str = ""

    def __post_init__(self) -> None:
        if self.path:
            raise ConfigError(f"suite=builtin takes no path, got {self.path!r}: leave it out")

    def problems(self) -> Sequence[Problem]:
        """By name; the number is the place in that order."""
        names = enumerate(builtin_names(), 1)
        return [Problem("builtin", number, name, BUILTIN_FOLDER / f"{name}.py") for number, name in names]

    def source(self, problem: Problem) -> str:
        """The task's file."""
        return read_text(problem.path)

    def trusted(self, problem: Problem) -> bool:
        """Their shapes are known to run."""
        return True

    def candidate(self, problem: Problem, text: str) -> str:
        """As it is."""
        return text
