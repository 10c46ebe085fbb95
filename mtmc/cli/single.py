"""One run from the command line: its folder, its progress, and how to go on where it ends before its time."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtmc.cli.command import Interrupted
from mtmc.errors import MtmcError, RunError

if TYPE_CHECKING:
    from mtmc.conf import SearchConfig
    from mtmc.search import SearchResult

RUNS = Path("runs")
"""Where runs go that nobody gives a folder."""


def run(config: SearchConfig, lines: bool = True, evaluator: Any = None) -> SearchResult:
    """One search, with its progress on stderr. lines: whether to tell of it where there is no terminal. evaluator: instead
    of one that is made for this run.

    Raises: MtmcError for bad input, with nothing left on disk; Interrupted for Ctrl-C.
    """
    from mtmc.cli.console import progress_display
    from mtmc.conf import make_search
    from mtmc.search import search
    from mtmc.task import load_task

    keywords = make_search(config)
    keywords["evaluator"] = keywords["evaluator"] if evaluator is None else evaluator
    task = load_task(config.task)
    with run_folder(config.out, task.name) as folder, resumable(folder), progress_display(task.name, lines) as show:
        return search(task, **keywords, store=config.store, out=folder, progress=show)


@contextmanager
def run_folder(out: str | None, name: str) -> Iterator[Path]:
    """The folder to run in: `out`, else a new one, runs/<name>-<date-time>-<n> with the first n that is free.

    A new folder is taken away again if nothing was put into it. Raises: RunError if it cannot be made.
    """
    if out is not None:
        yield Path(out).expanduser()
        return
    fresh = not RUNS.exists()
    folder = _new_folder(f"{name}-{time.strftime('%Y%m%d-%H%M%S')}")
    try:
        yield folder
    finally:
        for each in (folder, RUNS) if fresh else (folder,):
            if not any(each.iterdir()):
                each.rmdir()


def _new_folder(stem: str) -> Path:
    for number in itertools.count(1):
        folder = RUNS / f"{stem}-{number}"
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            continue
        except OSError as error:
            raise RunError(f"the folder {folder} cannot be made ({error.strerror}): give one as out=FOLDER") from error
    raise AssertionError("there is always a next number")


@contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """Say how to go on with the run in `folder` if it ends before its time.

    Raises: Interrupted for Ctrl-C; the MtmcError that came, with the way to go on where a run is left.
    """
    from mtmc.cli.console import resume_hint
    from mtmc.store import has_run

    there = has_run(folder)
    try:
        yield
    except KeyboardInterrupt as stop:
        hint = resume_hint(folder) if has_run(folder) else "nothing was kept, for the root was not evaluated yet"
        raise Interrupted(hint) from stop
    except MtmcError as error:
        if there or not has_run(folder):
            raise
        raise type(error)(f"{error}; when that is fixed, {resume_hint(folder)}") from error
