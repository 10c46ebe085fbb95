"""tritonbench: TritonBench T and G from a checkout, repaired.

A problem is a gold file (a function: torch in T, Triton in G) and, in another folder, the speed test that calls it. Here the
two become one task in KernelBench's format (`speed_task`): the gold function is what `forward` calls, the speed test's own
code draws the inputs, at one of its sizes. What the benchmark's scripts lack follows from that, since the task goes through
the same evaluator as any other: inputs are drawn from seeds (fresh ones for every call), results are compared as values and
not as what a script prints, the gold function is timed on the same GPU in turn with the candidate, and everything has a time
limit. Problems are found by their exact names, and both folders are looked for by what they hold.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mtmc.bench.problem import Problem
from mtmc.bench.suites.files import read_text
from mtmc.bench.suites.speed_task import task_text, with_model_new
from mtmc.errors import ConfigError, TaskError

_GOLD = {"T": "data/TritonBench_T_v1", "G": "data/TritonBench_G_v1"}
_SPEED = {"T": "performance_metrics/perf_T/golden_metrics", "G": "performance_metrics/perf_G/golden_metrics"}
_SEPARATOR = re.compile(r"^#{100,}[ \t]*$", re.MULTILINE)
"""Between a gold function and its test."""


@dataclass(frozen=True)
class TritonBench:
    """TritonBench, levels T and G. path: a checkout of it."""

    path: str

    def problems(self) -> Sequence[Problem]:
        """T before G, by name; the number is the place in that order. Raises: ConfigError where there are none."""
        if not self.path:
            raise ConfigError("suite=tritonbench needs a path: give path=FOLDER of a checkout of TritonBench")
        found = []
        for level, folder in _GOLD.items():
            files = sorted((Path(self.path).expanduser() / folder).glob("*.py"))
            found += [Problem(level, number, file.stem, file) for number, file in enumerate(files, 1)]
        if not found:
            fix = f"give a checkout, which has {' and '.join(_GOLD.values())}"
            raise ConfigError(f"{self.path!r} holds no TritonBench: {fix}")
        return found

    def source(self, problem: Problem) -> str:
        """The gold function and its speed test as a task's text. Raises: TaskError where they do not make one."""
        own_sizes = self.trusted(problem)
        return task_text(_gold(problem.path), self._speed_test(problem), problem.name, own_sizes)

    def trusted(self, problem: Problem) -> bool:
        """Those of G are the speed test's own: a gold function in Triton may not run without a GPU."""
        return problem.level == "G"

    def candidate(self, problem: Problem, text: str) -> str:
        """A candidate with its test cut off, and with a ModelNew that calls its function where it has none of its own.

        Raises: TaskError where it is no Python or lacks the gold function's name.
        """
        return with_model_new(_SEPARATOR.split(text)[0], self.source(problem), problem.name)

    def _speed_test(self, problem: Problem) -> str:
        path = Path(self.path).expanduser() / _SPEED[problem.level] / f"{problem.name}_perf.py"
        if not path.is_file():
            where = f"{_SPEED[problem.level]}/{path.name}"
            raise TaskError(f"{problem.id} has no speed test, and so no sizes: the checkout lacks {where}")
        return read_text(path)


def _gold(path: Path) -> str:
    """The gold function's file without its test."""
    return _SEPARATOR.split(read_text(path))[0].rstrip() + "\n"
