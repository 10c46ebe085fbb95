"""competition: GPU MODE's competitions (`suite=gpumode`): a folder for each problem, with `task.yml` and `reference.py`.

`task.yml` lists shapes, `reference.py` draws inputs (`generate_input(**shape, seed)`) and computes what is wanted
(`ref_kernel(data)`). The two become one task (`mtmc.bench.suites.reference_task`) at the first of the benchmark's shapes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mtmc.bench.problem import Problem
from mtmc.bench.suites.files import read_text
from mtmc.bench.suites.reference_task import reference_task
from mtmc.errors import ConfigError, TaskError

SHAPES, REFERENCE = "task.yml", "reference.py"


@dataclass(frozen=True)
class Competition:
    """The problems of a checkout. path: of it, or of any folder with problems below it."""

    path: str

    def problems(self) -> Sequence[Problem]:
        """By group, the folder around a problem's own, and by name. Raises: ConfigError where there are none."""
        if not self.path:
            raise ConfigError("suite=gpumode needs a path: give path=FOLDER of a checkout with problems/*/*/task.yml")
        root = Path(self.path).expanduser()
        folders = sorted(each.parent for each in root.rglob(SHAPES)) if root.is_dir() else []
        levels: dict[str, list[Path]] = {}
        for folder in folders:
            levels.setdefault(_plain(folder.resolve().parent.name), []).append(folder)
        if not levels:
            raise ConfigError(f"{self.path!r} holds no problem with a {SHAPES}: give a checkout of reference-kernels")
        return [
            Problem(level, number, _plain(folder.name), folder / REFERENCE)
            for level, inside in levels.items()
            for number, folder in enumerate(inside, 1)
        ]

    def source(self, problem: Problem) -> str:
        """The reference at the first shape of the benchmark as a task. Raises: TaskError where it makes none."""
        if not problem.path.exists():
            raise TaskError(f"{problem.id} has no {REFERENCE}: the checkout lacks it")
        return reference_task(read_text(problem.path), _shape(problem), problem.name)

    def trusted(self, problem: Problem) -> bool:
        """The shapes of a problem's tests may be large."""
        return False

    def candidate(self, problem: Problem, text: str) -> str:
        """As it is: one with `ModelNew`."""
        return text


def _shape(problem: Problem) -> dict[str, Any]:
    """The arguments of `generate_input` at the first benchmark, or the first test where there is none."""
    file = problem.path.parent / SHAPES
    try:
        data = yaml.safe_load(file.read_text(encoding="utf-8"))
        shapes = (data.get("benchmarks") or []) + (data.get("tests") or [])
        shape = dict(shapes[0])
    except (OSError, ValueError, AttributeError, TypeError, IndexError, yaml.YAMLError) as error:
        raise TaskError(f"{problem.id}: {SHAPES} has no shapes ({type(error).__name__}: {error})") from error
    return {str(name): value for name, value in shape.items()}


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text).strip("._-") or "problems"
