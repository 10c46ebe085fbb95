"""A suite whose problems go wrong in different ways, and rows to make tables of."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtmc.bench.problem import Problem
from mtmc.bench.row import AUTOTUNE, COMPILE, EAGER, Row
from mtmc.errors import TaskError

TEXT = """\
import torch

rows = 64

VARIANTS = {"small": {"rows": 4}}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(8))

    def forward(self, x):
        return x * self.scale


def get_inputs():
    return [torch.randn(rows, 8)]


def get_init_inputs():
    return []
"""
NAMES = ("good", "hangs", "dies", "no_task", "other")


@dataclass(frozen=True)
class Faults:
    """Problems that hang, end their process, or are no task; "good" and "other" are plain. path: any."""

    path: str = ""

    def problems(self) -> Sequence[Problem]:
        """All in one level."""
        return [problem(name, number) for number, name in enumerate(NAMES, 1)]

    def source(self, problem: Problem) -> str:
        """A text, if it comes to that."""
        if problem.name == "hangs":
            time.sleep(600)
        if problem.name == "dies":
            os.abort()
        if problem.name == "no_task":
            raise TaskError("it is none")
        return TEXT

    def trusted(self, problem: Problem) -> bool:
        """Nothing is run."""
        return True

    def candidate(self, problem: Problem, text: str) -> str:
        """As it is."""
        return text


def problem(name: str = "good", number: int = 1, level: str = "level1") -> Problem:
    """A problem without a file."""
    return Problem(level, number, name, Path(f"{name}.py"))


def row(name: str = "a", gain: float | None = None, level: str = "level1", **more: Any) -> Row:
    """A right row that takes 1 ms, `gain` times as fast as eager, and as torch.compile takes half and a quarter of eager."""
    if gain is None:
        return Row(level, 1, name, "text", **more)
    baselines = {EAGER: gain, COMPILE: gain / 2, AUTOTUNE: gain / 4}
    facts: dict[str, Any] = {"correct": True, "best_ms": 1.0, "baselines_ms": baselines, "runtime_kind": "measured"}
    return Row(level, 1, name, "text", **{**facts, **more})
