"""builtin: our own tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from mtmc.bench.problem import Problem
from mtmc.bench.suites.shipped import Shipped
from mtmc.task import builtin_names
from mtmc.task.load import BUILTIN_FOLDER


@dataclass(frozen=True)
class Builtin(Shipped):
    """The built-in tasks, all in one level."""

    name: ClassVar[str] = "builtin"

    def problems(self) -> Sequence[Problem]:
        """By name; the number is the place in that order."""
        names = enumerate(builtin_names(), 1)
        return [Problem("builtin", number, name, BUILTIN_FOLDER / f"{name}.py") for number, name in names]
