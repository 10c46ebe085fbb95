"""blocks: parts of published architectures, in bf16 and fp16, written for this benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mtmc.bench.problem import Problem
from mtmc.bench.suites.files import read_text
from mtmc.errors import ConfigError

FOLDER = Path(__file__).parents[1] / "blocks"
LEVELS = (
    "decoder",
    "moe",
    "encoder",
    "vision",
    "diffusion",
    "recurrent",
    "loss",
    "optimizer",
    "quantized",
    "science",
)
"""The folders, in the order of the tables."""


@dataclass(frozen=True)
class Blocks:
    """The blocks, a level for each folder. Needs no path. Raises (constructor): ConfigError where one is given."""

    path: str = ""

    def __post_init__(self) -> None:
        if self.path:
            raise ConfigError(f"suite=blocks takes no path, got {self.path!r}: leave it out")

    def problems(self) -> Sequence[Problem]:
        """By level and name; the number is the place within the level."""
        found = [(level, sorted((FOLDER / level).glob("*.py"))) for level in LEVELS]
        return [
            Problem(level, number, file.stem, file) for level, files in found for number, file in enumerate(files, 1)
        ]

    def source(self, problem: Problem) -> str:
        """The block's file, which is a task already."""
        return read_text(problem.path)

    def trusted(self, problem: Problem) -> bool:
        """Their shapes are known to run."""
        return True

    def candidate(self, problem: Problem, text: str) -> str:
        """As it is."""
        return text
