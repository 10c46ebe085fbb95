"""Benchmark runs that differ in their policy or strategy, problem by problem: is one at least as good as the other?

    PYTHONPATH=. python benchmarks/policy_transfer.py heuristic=bench/h compact=bench/c greedy=bench/g \\
        --out results/policy_transfer

The runs, on a GPU, with the same budget for each policy (and strategy=greedy for the policy alone, without a search):

    mtmc bench suite=kernelbench path=KernelBench levels=[1,2,3] every=5 budget=16 batch=4 evaluator=gpu \\
        evaluator.baselines=[eager] evaluator.reuse=16 jobs=10 policy=compact out=bench/c

Each LABEL=FOLDER is what `mtmc bench` wrote; several folders, of machines that shared the problems, with commas. Compared
are the speedups over eager of what is handed back, on the problems for which all runs have one; the reference itself counts
as 1. "over" is the geometric mean of the quotient of two runs' speedups with its 95% interval, problems drawn anew. Better,
worse: problems that differ by more than 2%.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import Report
from benchmarks.figures import header, row
from mtmc.bench.row import Row, row_from_json
from mtmc.errors import ConfigError

DRAWS, BAND = 2000, 0.02
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Run:
    """rows: by problem. made: how and with what, as the folders' settings say."""

    rows: dict[str, Row]
    made: str


def read(text: str) -> tuple[str, Run]:
    """Label and run of "LABEL=FOLDER[,FOLDER ...]". Raises: ConfigError."""
    label, equals, folders = text.partition("=")
    if not equals:
        raise ConfigError(f"{text!r} names no run: write LABEL=FOLDER")
    rows: dict[str, Row] = {}
    made: list[str] = []
    for folder in folders.split(","):
        path = Path(folder).expanduser() / "bench.json"
        if not path.is_file():
            raise ConfigError(f"there is no {path}: name a folder that mtmc bench wrote")
        found = json.loads(path.read_text(encoding="utf-8"))
        rows |= {each.id: each for each in map(row_from_json, found["rows"])}
        made.append(how(found["settings"]))
    return label, Run(rows, "; ".join(dict.fromkeys(made)))


def how(settings: Mapping[str, Any]) -> str:
    """A benchmark's settings in one line."""
    parts = [settings[each]["name"] for each in ("strategy", "policy", "coder")]
    most = f"at most {settings['budget']['evaluations']} evaluations, {settings['batch']} at once"
    versions = [f"{name} {version}" for name, version in settings["versions"].items()]
    dtype, seed = settings["dtype"], settings["seed"]
    return ", ".join([settings["hardware"], *parts, most, dtype, f"seed {seed}", *versions, settings["date"]])


def shared(runs: Mapping[str, Run]) -> list[str]:
    """The problems that have a speedup in every run. Raises: ConfigError for none."""
    every = [{name for name, each in run.rows.items() if each.speedup() is not None} for run in runs.values()]
    names = sorted(set.intersection(*every))
    if not names:
        raise ConfigError("no problem has a speedup in all runs: name runs of the same problems")
    return names


def quotient(over: Floats, under: Floats, rng: np.random.Generator) -> tuple[float, float, float]:
    """Geometric mean of over / under and its 95% interval. Both: [problems]."""
    logs = np.log(over / under)
    drawn = logs[rng.integers(len(logs), size=(DRAWS, len(logs)))].mean(axis=1)
    low, high = np.exp(np.percentile(drawn, [2.5, 97.5]))
    return float(np.exp(logs.mean())), float(low), float(high)


def tell(report: Report, runs: Mapping[str, Run], names: Sequence[str], seed: int) -> None:
    """The tables, and the same as data."""
    rng = np.random.default_rng(seed)
    speedups = {label: np.asarray([run.rows[name].speedup() for name in names]) for label, run in runs.items()}
    base = next(iter(runs))
    report.say(header("run", "over eager", f"over {base}", "better", "worse", "evaluations", "GPU seconds"))
    summary: dict[str, Any] = {}
    for label, values in speedups.items():
        mean, low, high = quotient(values, speedups[base], rng)
        ratio = values / speedups[base]
        better, worse = int((ratio > 1 + BAND).sum()), int((ratio < 1 / (1 + BAND)).sum())
        evaluations = float(np.mean([runs[label].rows[name].evaluations for name in names]))
        seconds = sum(runs[label].rows[name].gpu_seconds for name in names)
        overall = float(np.exp(np.log(values).mean()))
        cells = (f"{overall:.3f}x", f"{mean:.3f}x [{low:.3f}, {high:.3f}]", better, worse)
        report.say(row(label, *map(str, cells), f"{evaluations:.1f}", f"{seconds:.0f}"))
        summary[label] = {"over_eager": overall, "over_first": [mean, low, high], "better": better, "worse": worse}
    report.say("\n" + header("problem", *runs))
    for at, name in enumerate(names):
        report.say(row(name, *(f"{values[at]:.3f}x" for values in speedups.values())))
    report.data["runs"] = summary
    report.data["speedups"] = {
        label: dict(zip(names, values.tolist(), strict=True)) for label, values in speedups.items()
    }


def main() -> None:
    """See the text of this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "runs", nargs="+", metavar="LABEL=FOLDER", help="the first one is what the others are held against"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the intervals")
    parser.add_argument("--out", type=Path, help="write OUT.md and OUT.json")
    arguments = parser.parse_args()
    runs = dict(map(read, arguments.runs))
    names = shared(runs)
    with Report("Searches that differ in their policy", arguments.out) as report:
        report.say("".join(f"- {label}: {run.made}\n" for label, run in runs.items()))
        left = ", ".join(f"{label} {len(run.rows) - len(names)}" for label, run in runs.items())
        report.say(f"{len(names)} problems; problems without a speedup in all runs: {left}.\n")
        tell(report, runs, names, arguments.seed)


if __name__ == "__main__":
    main()
