"""blocks: parts of published architectures, in bf16 and fp16, written for this benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from mtmc.bench.problem import Problem
from mtmc.bench.suites.shipped import Shipped

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
class Blocks(Shipped):
    """The blocks, a level for each folder."""

    name: ClassVar[str] = "blocks"

    def problems(self) -> Sequence[Problem]:
        """By level and name; the number is the place within the level."""
        found = [(level, sorted((FOLDER / level).glob("*.py"))) for level in LEVELS]
        return [
            Problem(level, number, file.stem, file) for level, files in found for number, file in enumerate(files, 1)
        ]
