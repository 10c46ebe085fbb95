"""kernelbench: KernelBench from a checkout or an installed copy, any revision that keeps its problems as files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mtmc.bench.problem import Problem
from mtmc.bench.suites.files import read_text
from mtmc.errors import ConfigError

_LEVEL = re.compile(r"level_?(\d+)")
_FILE = re.compile(r"(\d+)_(.+)\.py")
_INSIDE = ("", "KernelBench", "KernelBench/KernelBench")
"""Where the levels may lie below what is named: the folder itself, a checkout, a checkout's parent."""


@dataclass(frozen=True)
class KernelBench:
    """KernelBench. path: a checkout, or the folder that holds level1, level2, ..."""

    path: str

    def problems(self) -> Sequence[Problem]:
        """By level and by the number in front of the file's name. Raises: ConfigError where there are none."""
        if not self.path:
            raise ConfigError("suite=kernelbench needs a path: give path=FOLDER of a checkout of KernelBench")
        root = Path(self.path).expanduser()
        for inside in _INSIDE:
            levels = _levels(root / inside)
            if levels:
                return [problem for number, folder in levels for problem in _problems(number, folder)]
        raise ConfigError(f"{self.path!r} holds no KernelBench: give the folder that has level1/*.py, or its checkout")

    def source(self, problem: Problem) -> str:
        """The problem's file, which is a task already. Raises: TaskError where it cannot be read."""
        return read_text(problem.path)

    def trusted(self, problem: Problem) -> bool:
        """They declare none."""
        return False

    def candidate(self, problem: Problem, text: str) -> str:
        """As it is: answers to KernelBench define ModelNew."""
        return text


def _levels(folder: Path) -> list[tuple[int, Path]]:
    """The levels of a folder, by number. Raises: ConfigError where it cannot be read."""
    try:
        if not folder.is_dir():
            return []
        found = [(int(match[1]), each) for each in folder.iterdir() if (match := _LEVEL.fullmatch(each.name))]
        return sorted((number, each) for number, each in found if any(each.glob("*.py")))
    except OSError as error:
        raise ConfigError(f"{str(folder)!r} cannot be read ({error.strerror}): give another path") from error


def _problems(level: int, folder: Path) -> list[Problem]:
    found = [(int(match[1]), each) for each in folder.glob("*.py") if (match := _FILE.fullmatch(each.name))]
    return [Problem(f"level{level}", number, _name(each.stem), each) for number, each in sorted(found)]


def _name(stem: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", stem).rstrip("_")
