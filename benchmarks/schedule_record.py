"""schedule_record: what `schedules.py` found, as data, as JSON with a line for each schedule, and as tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.figures import header, row

EAGER = "eager"
WITHIN = 1e-2
"""Most error of a kernel that counts as right: TF32 has 1e-3, and what forgets a tap or a tile far more than this."""


@dataclass(frozen=True)
class Row:
    """One schedule. schedule: settings that replace the start's. error: greatest difference over the greatest result."""

    schedule: str
    ms: float | None = None
    error: float | None = None
    failure: str = ""

    @property
    def right(self) -> bool:
        """Whether it was timed and is no further off than `WITHIN`."""
        return self.ms is not None and self.error is not None and self.error <= WITHIN


@dataclass(frozen=True)
class Measured:
    """One task. begins: all settings that a search starts with. start: the row that has these, "" where none has.
    refused: combinations that were not timed, by reason."""

    task: str
    begins: str
    start: str
    rows: tuple[Row, ...]
    refused: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """One run. about: gpu, torch, triton, date, command, and what else there is to know."""

    about: Mapping[str, Any]
    tasks: tuple[Measured, ...]


def table(found: Measured, best: int = 5) -> str:
    """A task's start and its best schedules, as Markdown."""
    eager = min(row.ms for row in found.rows if row.schedule == EAGER and row.ms is not None)
    ranked = sorted((row for row in found.rows if row.right and row.schedule != EAGER), key=lambda row: row.ms or 0.0)
    start = next((each for each in ranked if each.schedule == found.start), None)
    failed = len([each for each in found.rows if not each.right])
    lines = [f"### {found.task}\n", f"Starts with `{found.begins}`. Eager {eager:.3f} ms; {len(ranked)} schedules timed, "
             f"{failed} failed or wrong, {sum(found.refused.values())} not printed.\n"]  # fmt: skip
    lines.append(header("", "schedule", "ms", "start / ms", "eager / ms", "error"))
    for label, each in (("start", start), *((str(at + 1), each) for at, each in enumerate(ranked[:best]))):
        if each is None or each.ms is None:
            lines.append(row(label, "not among them", "", "", "", ""))
            continue
        over = f"{start.ms / each.ms:.2f}x" if start and start.ms else ""
        lines.append(
            row(label, each.schedule, f"{each.ms:.3f}", over, f"{eager / each.ms:.2f}x", f"{each.error or 0:.1e}")
        )
    return "\n".join(lines)


def page(runs: Iterable[Run], best: int = 5) -> str:
    """All tables, each run with what it ran on."""
    parts = ["# Schedules of single kernels"]
    for run in runs:
        parts += [
            *(table(each, best) for each in run.tasks),
            ", ".join(f"{k}: {v}" for k, v in run.about.items()) + ".",
        ]
    return "\n\n".join(parts) + "\n"


def to_text(runs: Iterable[Run]) -> str:
    """JSON with a line for each row."""
    parts = []
    for run in runs:
        tasks = []
        for each in run.tasks:
            rows = ",\n".join(
                json.dumps({k: v for k, v in asdict(r).items() if v not in (None, "")}) for r in each.rows
            )
            about = {"task": each.task, "begins": each.begins, "start": each.start, "refused": dict(each.refused)}
            tasks.append(f'{json.dumps(about)[:-1]}, "rows": [\n{rows}\n]}}')
        parts.append(f'{json.dumps(run.about)[:-1]}, "tasks": [\n' + ",\n".join(tasks) + "\n]}")
    return '{"runs": [\n' + ",\n".join(parts) + "\n]}\n"


def from_text(text: str) -> list[Run]:
    """Inverse of `to_text`."""
    runs = []
    for run in json.loads(text)["runs"]:
        tasks = [Measured(**{**each, "rows": tuple(Row(**r) for r in each["rows"])}) for each in run.pop("tasks")]
        runs.append(Run(run, tuple(tasks)))
    return runs
