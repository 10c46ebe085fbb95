"""The report of a sweep: many runs, one row per combination of the settings that vary, seeds aggregated."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
ERROR_FILE = "error.txt"
"""In the folder of a run of a sweep that failed: why."""
PARTS = ("strategy", "policy", "coder", "evaluator")
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
    return varying([record.settings for record in records], ignore)


def varying(given: Sequence[Mapping[str, object]], ignore: Collection[str] = PLACES) -> list[str]:
    """See `varying_settings`. given: the settings of each run."""
    settings = [flat_settings(each) for each in given]
    names = sorted({name for one in settings for name in one} - {SEED, "task"} - set(ignore))
    return [name for name in names if len({repr(one.get(name)) for one in settings}) > 1]


def told_apart(records: Sequence[RunRecord]) -> list[RunRecord]:
    """The records of a sweep with settings that tell them apart in few words, see `in_few_words`."""
    settings = in_few_words([record.settings for record in records])
    return [dataclasses.replace(record, settings=each) for record, each in zip(records, settings, strict=True)]


def in_few_words(given: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    """The settings of each run of a sweep, in few words: "strategy" is its name, and a setting of it is there only if it
    differs between runs with the same name."""
    values: dict[tuple[str, str, str], set[str]] = {}
    for each in given:
        for kind, name, inner in _parts(each):
            for setting, value in inner.items():
                values.setdefault((kind, name, setting), set()).add(repr(value))
    return [_shortened(each, values) for each in given]


def _shortened(
    given: Mapping[str, object], values: Mapping[tuple[str, str, str], Collection[str]]
) -> dict[str, object]:
    settings = dict(given)
    for kind, name, inner in _parts(given):
        settings[kind] = name
        for setting, value in inner.items():
            if len(values[kind, name, setting]) > 1:
                settings[f"{kind}.{setting}"] = value
    return settings


def _parts(given: Mapping[str, object]) -> Iterator[tuple[str, str, Mapping[str, object]]]:
    """(kind, name, settings) of the parts of a run."""
    for kind in PARTS:
        part = given.get(kind)
        if isinstance(part, Mapping):
            yield kind, str(part.get("name", part.get("object"))), part.get("settings", {})


def in_order(path: Path) -> list[tuple[int, int, str]]:
    """A key that sorts run 10 after run 9."""
    parts = re.findall(r"\d+|\D+", str(path))
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]


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
