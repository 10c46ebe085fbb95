"""shipped: what a suite whose tasks come with mtmc has in common with others of the kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mtmc.bench.problem import Problem
from mtmc.bench.suites.files import read_text
from mtmc.errors import ConfigError


@dataclass(frozen=True)
class Shipped:
    """Needs no path. Raises (constructor): ConfigError where one is given. name: of the suite."""

    name: ClassVar[str]

    path: str = ""

    def __post_init__(self) -> None:
        if self.path:
            raise ConfigError(f"suite={self.name} takes no path, got {self.path!r}: leave it out")

    def source(self, problem: Problem) -> str:
        """The file, which is a task already."""
        return read_text(problem.path)

    def trusted(self, problem: Problem) -> bool:
        """Their shapes are known to run."""
        return True

    def candidate(self, problem: Problem, text: str) -> str:
        """As it is."""
        return text
