"""bench_progress: how a benchmark looks while it goes on: a bar on a terminal, else a line for each problem that ends."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mtmc.export.text import factor, one_line
from mtmc.search.display import best_text, terminal_bars

if TYPE_CHECKING:
    from mtmc.bench import Problem, Row
    from mtmc.bench.worker_pool import Watcher
    from mtmc.search import Progress

WIDTH = 100
"""Characters of a reason in a line."""


@contextmanager
def display() -> Iterator[Watcher]:
    """Something to hand to a benchmark as its watcher. It writes to stderr."""
    if not sys.stderr.isatty():
        yield Lines()
        return
    with terminal_bars("{task.fields[told]}") as bar:
        yield Bars(bar)


class Bars:
    """One bar for all problems, and one below it for each that is under way; what has ended stands above as a line."""

    def __init__(self, bar: Any) -> None:
        self._bar = bar
        self._whole: Any = None
        self._running: dict[str, Any] = {}

    def begin(self, problems: int) -> None:
        """See `Watcher`."""
        if self._whole is not None:
            self._bar.remove_task(self._whole)
        self._whole = self._bar.add_task("problems", total=problems, told="")

    def started(self, problem: Problem) -> None:
        """See `Watcher`."""
        self._running[problem.id] = self._bar.add_task(problem.id, total=None, told="loading")

    def moved(self, problem: Problem, progress: Progress) -> None:
        """See `Watcher`."""
        told = f"best {best_text(progress)}"
        self._bar.update(self._running[problem.id], completed=progress.evaluations, total=progress.budget, told=told)

    def ended(self, row: Row) -> None:
        """See `Watcher`."""
        if row.id in self._running:
            self._bar.remove_task(self._running.pop(row.id))
        self._bar.console.print(line(row), markup=False, highlight=False)
        self._bar.advance(self._whole)


class Lines:
    """A line for each problem that ends."""

    def __init__(self) -> None:
        self._ended, self._problems = 0, 0

    def begin(self, problems: int) -> None:
        """See `Watcher`."""
        self._problems += problems

    def started(self, problem: Problem) -> None:
        """See `Watcher`."""

    def moved(self, problem: Problem, progress: Progress) -> None:
        """See `Watcher`."""

    def ended(self, row: Row) -> None:
        """See `Watcher`."""
        self._ended += 1
        print(f"{self._ended}/{self._problems} {line(row)}", file=sys.stderr, flush=True)


def line(row: Row) -> str:
    """A row in one line: "level1/19_ReLU: 1.02x over eager, 48 evaluations, 31 s"."""
    spent = f"{row.seconds:.0f} s"
    if row.failure is not None:
        return f"{row.id}: {row.failure.kind.replace('_', ' ')}: {one_line(row.failure.message, WIDTH)}, {spent}"
    if not row.evaluations:
        return f"{row.id}: loads, {spent}"
    gain = row.speedup()
    told = f"{factor(gain)} over eager" if gain is not None else "no speedup known" if row.correct else "not right"
    count = f"{row.evaluations} evaluation{'' if row.evaluations == 1 else 's'}"
    return f"{row.id}: {told}, {count}, {spent}"
