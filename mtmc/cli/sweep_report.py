"""The report of a sweep: all runs below a folder, those that failed too."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtmc.cli.command import CUT_SHORT
from mtmc.cli.documents import run_document
from mtmc.errors import MtmcError, RunError

if TYPE_CHECKING:
    from mtmc.search import SearchResult


def report_sweep(folder: Path, answer: dict[str, Any], expected: int | None = None) -> int:
    """Write and print the report of all runs below `folder`; returns the exit status: 2 where one has failed, 3 where one
    was cut short.

    answer: gets what --json says. expected: how many runs there should be, None if that is not known.
    Raises: RunError if there is none that can be read.
    """
    from mtmc import export

    results, failures = read_runs(folder)
    if expected is None:  # a sweep that ends now has told of them already
        for failure in failures:
            print(f"mtmc: {failure}", file=sys.stderr)
    if failures and not results:
        raise RunError(f"all {len(failures)} runs below {folder} have failed, the last one so: {failures[-1]}")
    if not results:
        raise RunError(f"there is no run below {folder} to report on: name a run's folder, or one that holds runs")
    unfinished = [str(result.run_dir) for result in results if result.finished is None]
    if unfinished:
        print(f"mtmc: {len(unfinished)} runs have not ended: {', '.join(unfinished)}", file=sys.stderr)
    records = export.sweep.told_apart([result.record for result in results])
    paths = export.sweep_report(records, folder)
    answer.update(
        folder=folder,
        runs=[run_document(result) for result in results],
        rows=export.sweep_rows(records),
        failures=failures,
        unfinished=unfinished,
        files=paths,
    )
    print(paths[0].read_text(encoding="utf-8"), end="")
    print()
    print(f"wrote {', '.join(str(path) for path in paths)}")
    lacking = len(failures) if expected is None else expected - len(results) + len(unfinished)
    if lacking:
        total = len(results) + len(failures) if expected is None else expected
        print(f"mtmc: {lacking} of {total} runs failed", file=sys.stderr)
    return 2 if lacking else CUT_SHORT if any(result.cut_short for result in results) else 0


def read_runs(folder: Path) -> tuple[list[SearchResult], list[str]]:
    """All runs below `folder` in the order of their names, and what is to be said of those that cannot be read."""
    from mtmc.export.sweep import ERROR_FILE, in_order
    from mtmc.search import load
    from mtmc.store import has_run, runs_below

    if not folder.is_dir():
        raise RunError(f"there is no folder {folder}: name a run's folder, or one that holds runs")
    results: list[SearchResult] = []
    failures: list[str] = []
    failed = {path.parent for path in folder.rglob(ERROR_FILE)}
    for path in sorted({*runs_below(folder), *failed}, key=in_order):
        if (path / ERROR_FILE).exists() and not has_run(path):
            failures.append(f"{path} failed: {(path / ERROR_FILE).read_text(encoding='utf-8').strip()}")
            continue
        try:
            results.append(load(path))
        except MtmcError as error:
            failures.append(f"{path} is left out: {error}")
    return results, failures
