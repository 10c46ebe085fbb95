"""The report of a sweep: many runs, one row per combination of the settings that vary, seeds aggregated."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mtmc.action import Scalar
from mtmc.errors import RunError
from mtmc.export.plots import sweep_png
from mtmc.export.record import RunRecord, best_so_far, flat_settings, speedup_kind
from mtmc.export.report import table
from mtmc.export.text import factor, number
from mtmc.files import write_whole

SEED = "seed"
PLACES = frozenset({"folder", "run", "run_dir", "run_folder", "out"})
"""Settings that say where a run lives: they differ in every run of a sweep and choose nothing."""


@dataclass(frozen=True)
class SweepRow:
    """All runs of one combination of settings.

    task: the task's name. choices: the settings that vary within the sweep, by name; absent where a run lacks one.
    seeds: of its runs, in the runs' order, those that are known. runs: how many.
    speedups: best speedup over the root of each run, in the runs' order; a run whose root has no runtime has none.
    evaluations: how many each run used.
    runtime_kind: "measured", "estimated" or "mixed"; None where no run has a speedup.
    curves: per run the best speedup after 0, 1, 2, ... evaluations.
    """

    task: str
    choices: tuple[tuple[str, Scalar], ...]
    runs: int
    seeds: tuple[Scalar, ...]
    speedups: tuple[float, ...]
    evaluations: tuple[int, ...]
    runtime_kind: str | None
    curves: tuple[tuple[float, ...], ...]

    @property
    def name(self) -> str:
        """The combination in words: "softmax, strategy=mcts"."""
        return self.told(one_task=False)

    def told(self, one_task: bool) -> str:
        """The combination in words, without the task where all rows have the same and the settings tell them apart."""
        task = [] if one_task and self.choices else [self.task]
        return ", ".join([*task, *(f"{name}={value}" for name, value in self.choices)])


def varying_settings(records: Sequence[RunRecord], ignore: Collection[str] = PLACES) -> list[str]:
    """Dotted names of the settings that differ between runs, sorted; the seed and `ignore` are not among them.

    A setting that some runs lack differs, too. Raises: RunError where a setting is not plain data.
    """
    settings = [flat_settings(record.settings) for record in records]
    names = sorted({name for one in settings for name in one} - {SEED, "task"} - set(ignore))
    return [name for name in names if len({repr(one.get(name)) for one in settings}) > 1]


def sweep_rows(records: Iterable[RunRecord], ignore: Collection[str] = PLACES) -> list[SweepRow]:
    """One row per task and combination of varying settings, in the order in which the combinations first appear.

    Raises: RunError where there is no run at all, or a setting is not plain data.
    """
    runs = list(records)
    if not runs:
        raise RunError("a sweep report needs at least one run: pass a folder that holds runs")
    names = varying_settings(runs, ignore)
    groups: dict[tuple[str, tuple[tuple[str, Scalar], ...]], list[RunRecord]] = {}
    for record in runs:
        settings = flat_settings(record.settings)
        choices = tuple((name, settings[name]) for name in names if name in settings)
        groups.setdefault((record.tree.task_name, choices), []).append(record)
    return [_row(task, choices, members) for (task, choices), members in groups.items()]


def sweep_markdown(rows: Sequence[SweepRow]) -> str:
    """The sweep as a Markdown document with one table; speedups are those of the best version over the root."""
    names = _choice_names(rows)
    head = ["task", *names, "runs", "evaluations", "mean", "min", "max", "runtimes"]
    numeric = [False] * (1 + len(names)) + [True] * 5
    lines = []
    for row in rows:
        choices = dict(row.choices)
        speeds = [factor(value) for value in _summary(row.speedups)] if row.speedups else ["", "", ""]
        used = number(sum(row.evaluations) / row.runs)
        texts = [str(choices.get(name, "")) for name in names]
        lines.append([row.task, *texts, str(row.runs), used, *speeds, row.runtime_kind or "none"])
    intro = (
        "Best speedup over the root: mean, least and greatest over the runs of a row, which differ by seed only. "
        "Evaluations: mean over the runs. Runtimes are measured on a device or estimated by a model of it."
    )
    return f"# Report of a sweep\n\n{intro}\n\n{table(head, lines, numeric)}\n"


def sweep_csv(rows: Sequence[SweepRow]) -> str:
    """The sweep as CSV, one line a row, speedups in full precision, empty where not known."""
    names = _choice_names(rows)
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    measures = ["best_speedup_mean", "best_speedup_min", "best_speedup_max", "evaluations_mean", "runtime_kind"]
    writer.writerow(["task", *names, "runs", "seeds", *measures])
    for row in rows:
        choices = dict(row.choices)
        values = [choices.get(name, "") for name in names]
        speeds: Sequence[object] = _summary(row.speedups) if row.speedups else ("", "", "")
        used = sum(row.evaluations) / row.runs
        seeds = " ".join(str(seed) for seed in row.seeds)
        writer.writerow([row.task, *values, row.runs, seeds, *speeds, used, row.runtime_kind or ""])
    return buffer.getvalue()


def sweep_report(records: Iterable[RunRecord], folder: Path | str, ignore: Collection[str] = PLACES) -> list[Path]:
    """Write sweep.md, sweep.csv and, where any speedup is known, sweep.png into `folder`; returns their paths.

    Raises: RunError where there is no run, a setting is not plain data, or a file cannot be written.
    """
    folder = Path(folder)
    rows = sweep_rows(records, ignore)
    paths = [
        write_whole(folder / "sweep.md", sweep_markdown(rows)),
        write_whole(folder / "sweep.csv", sweep_csv(rows)),
    ]
    one_task = len({row.task for row in rows}) == 1
    curves = {row.told(one_task): row.curves for row in rows if row.curves}
    if curves:
        kinds = sorted({row.runtime_kind for row in rows if row.runtime_kind})
        paths.append(sweep_png(curves, " and ".join(kinds), folder / "sweep.png"))
    return paths


def _row(task: str, choices: tuple[tuple[str, Scalar], ...], runs: Sequence[RunRecord]) -> SweepRow:
    best = [(run, gain) for run in runs if (gain := run.tree.speedup(run.tree.best.id)) is not None]
    kinds = {speedup_kind(run.tree, run.tree.best.id) for run, _ in best}
    settings = [flat_settings(run.settings) for run in runs]
    curves = ((1.0, *(value for value in best_so_far(run) if value is not None)) for run, _ in best)
    return SweepRow(
        task=task,
        choices=choices,
        runs=len(runs),
        seeds=tuple(one[SEED] for one in settings if SEED in one),
        speedups=tuple(gain for _, gain in best),
        evaluations=tuple(len(run.evaluations) for run in runs),
        runtime_kind=(kinds.pop() if len(kinds) == 1 else "mixed") if kinds else None,
        curves=tuple(curves),
    )


def _choice_names(rows: Sequence[SweepRow]) -> list[str]:
    return sorted({name for row in rows for name, _ in row.choices})


def _summary(speedups: Sequence[float]) -> tuple[float, float, float]:
    return sum(speedups) / len(speedups), min(speedups), max(speedups)
