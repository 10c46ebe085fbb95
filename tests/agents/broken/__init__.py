"""Kernels that are broken the way models break them, and which of them rules mend.

Each is a right version (`right/`) with a few places of its text exchanged. Its row says why no rule may mend it, or
nothing where rules have to: then what they make of it passes the lab's whole evaluation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

from packaging.version import Version

from mtmc.task import Task, load_task

RIGHT = Path(__file__).parent / "right"
TASKS = Path(__file__).parents[1] / "failures" / "tasks"


TAKEN = "3.9"
"""The Triton that takes chained comparisons, and floating-point numbers of Python's modules."""


@dataclass(frozen=True)
class Broken:
    """One row. right: name of the version that it was. changes: pairs of a text, which stands there, and what replaces it.

    left_alone: why no rule may change it, one clause; "" where rules have to mend it. taken_from: the version of Triton from
    which on it is right as it stands; "" for none.
    """

    name: str
    right: str
    changes: tuple[tuple[str, str], ...]
    left_alone: str = ""
    taken_from: str = ""

    @property
    def is_taken(self) -> bool:
        """Whether the Triton that is installed takes it as it stands."""
        return bool(self.taken_from) and Version(version("triton")) >= Version(self.taken_from)

    @property
    def source(self) -> str:
        """The broken text. Raises: ValueError where a text to exchange is not there."""
        text = (RIGHT / f"{self.right}.py").read_text(encoding="utf-8")
        for old, new in self.changes:
            if old not in text:
                raise ValueError(f"{self.name}: {old!r} is not in {self.right}")
            text = text.replace(old, new)
        return text

    @property
    def task(self) -> Task:
        """What it is to compute. Raises: ValueError where the right version names none; TaskError where it is none."""
        found = re.search(r"^\"\"\"task: (\w+)\"\"\"", self.source, re.MULTILINE)
        if found is None:
            raise ValueError(f"{self.right} begins with no task")
        return _task(found[1])


@cache
def _task(name: str) -> Task:
    return load_task(str(TASKS / f"{name}.py"))


def corpus() -> list[Broken]:
    """All rows, kind by kind."""
    from tests.agents.broken import beyond, functions, habits, host, launches, types

    return [*functions.ROWS, *types.ROWS, *launches.ROWS, *host.ROWS, *habits.ROWS, *beyond.ROWS]
