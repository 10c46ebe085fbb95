"""The zoo by one command: `python -m tests.zoo.run --out results/zoo.md`.

Each module goes through capture and a short search in a process of its own, which is ended when its time is up. What
comes of it is a line in zoo.jsonl beside the page, so that a run that was killed goes on where it was; `--again` drops
the lines of the modules that are asked for. The page and zoo.json are written at the end, from all lines.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests.zoo.registry import LIBRARIES, entries
from tests.zoo.row import Row, append_row, read_rows, write_rows
from tests.zoo.table import page, reason
from tests.zoo.worker import Work, run_all


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is not done yet, and write the page. Returns the exit status."""
    asked = _parser().parse_args(arguments)
    lines = asked.out.with_suffix(".jsonl")
    known = read_rows(lines)
    wanted = _wanted(asked)
    if asked.again:
        gone = {row.key for row in wanted}
        write_rows(lines, [row for key, row in known.items() if key not in gone])
        known = read_rows(lines)
    todo = [row for row in wanted if row.key not in known]
    if todo:
        with _Progress(len(todo)) as progress:

            def done(row: Row) -> None:
                append_row(lines, row)
                progress.advance(row)

            run_all(todo, Work(asked.evaluator, asked.budget, asked.limit), asked.workers, done)
    rows = _ordered(read_rows(lines).values())
    asked.out.write_text(page(rows), encoding="utf-8")
    text = json.dumps([asdict(row) for row in rows], indent=1, sort_keys=True)
    asked.out.with_suffix(".json").write_text(text + "\n", encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.zoo.run", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/zoo.md"), help="the page (%(default)s)")
    parser.add_argument("--only", nargs="+", default=(), metavar="NAME", help="modules whose names hold one of these")
    parser.add_argument("--library", nargs="+", default=tuple(LIBRARIES), choices=tuple(LIBRARIES))
    parser.add_argument("--dtype", nargs="+", default=("fp32", "bf16"), choices=("fp32", "bf16"))
    parser.add_argument("--evaluator", default="lab", choices=("lab", "gpu"), help="gpu: runtimes are measured")
    parser.add_argument("--budget", type=int, default=4, help="evaluations of one search, the root's included")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds that one module may take")
    parser.add_argument("--workers", type=int, default=1, help="modules at the same time")
    parser.add_argument("--again", action="store_true", help="also what has been done")
    return parser


def _wanted(asked: argparse.Namespace) -> list[Row]:
    """Empty rows of the modules that are asked for. A library that is missing is told, and left out."""
    rows = []
    for library in asked.library:
        try:
            names = list(entries(library))
        except ImportError as error:
            sys.stderr.write(f"{library} is left out ({error}): pip install 'mtmc[zoo]'\n")
            continue
        names = [name for name in names if not asked.only or any(part in name for part in asked.only)]
        rows += [Row(name, library, dtype, asked.evaluator) for name in names for dtype in asked.dtype]
    return rows


def _ordered(rows: Sequence[Row] | object) -> list[Row]:
    """By library, then as they stand in the registry."""
    libraries = list(LIBRARIES)
    return sorted(rows, key=lambda row: libraries.index(row.library))  # type: ignore[call-overload, attr-defined]


class _Progress:
    """A bar on a terminal, with a line above it for each module that ends; elsewhere the lines alone."""

    def __init__(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("zoo"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        console = Console(stderr=True)
        self._bar = Progress(*columns, console=console, disable=not console.is_terminal)
        self._console = console
        self._task = self._bar.add_task("zoo", total=total)

    def __enter__(self) -> _Progress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def advance(self, row: Row) -> None:
        """Tell of a module that has ended."""
        told = f"{row.right} of {sum(row.statuses.values())} right" if row.root == "ok" else row.root or "nothing"
        text = f"{row.name} {row.dtype}: {told}, {row.seconds:.0f} s"
        self._console.print(f"{text}; {reason(row)[:200]}".rstrip("; "), markup=False, highlight=False, soft_wrap=True)
        self._bar.advance(self._task)


if __name__ == "__main__":
    sys.exit(main())
