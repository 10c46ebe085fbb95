"""Display: a bar of a search's progress, on a terminal and in a notebook."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

from mtmc.search.run_state import Progress

OnProgress = Callable[[Progress], None]


@contextmanager
def display(given: OnProgress | Literal[False] | None, name: str) -> Iterator[OnProgress | None]:
    """What a search tells of its progress. given: as `mtmc.search.search` takes it. name: what is searched."""
    if callable(given):
        yield given
    elif given is False or not seen():
        yield None
    else:
        with bar(name) as show:
            yield show


def seen() -> bool:
    """Whether somebody sees a bar: stderr is a terminal, or this is a notebook."""
    return sys.stderr.isatty() or _in_notebook()


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    return shell is not None and type(shell.get_ipython()).__name__ == "ZMQInteractiveShell"


@contextmanager
def bar(name: str) -> Iterator[OnProgress]:
    """A bar on stderr, or in a notebook's cell, gone at the end."""
    with terminal_bars("best {task.fields[best]}") as bars:
        task = bars.add_task(name, total=None, best="not known yet")

        def show(progress: Progress) -> None:
            best = best_text(progress)
            what = told(name, progress)
            bars.update(task, description=what, completed=progress.evaluations, total=progress.budget, best=best)

        yield show


@contextmanager
def terminal_bars(told: str, remaining: bool = False) -> Iterator[Any]:
    """A `rich.progress.Progress` on a terminal's stderr, gone at the end: what, bar, counts, words, time.

    told: the words, as a format of the task. remaining: the time that is left instead of the time so far.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns: tuple[Any, ...] = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(told),
        TimeRemainingColumn() if remaining else TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        yield bars


def told(name: str, progress: Progress) -> str:
    """What is searched, in words, and what it waits for."""
    what = f"{name}, {progress.what}" if progress.what else name
    return f"{what}, waits for {progress.waits}" if progress.waits else what


def best_text(progress: Progress) -> str:
    """The best so far in few words: "1.52x (0.123 ms estimated)"."""
    from mtmc.export.text import factor, runtime

    if progress.runtime_ms is None:
        return "none"
    gain = "" if progress.speedup is None else f"{factor(progress.speedup)} "
    return f"{gain}({runtime(progress.runtime_ms)} {progress.runtime_kind})"
