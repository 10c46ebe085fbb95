"""A search on each built-in task with measured runtimes: the best version beside eager PyTorch and torch.compile.

    PYTHONPATH=. python benchmarks/gpu_searches.py --tasks softmax linear --out results/gpu_searches_a
    PYTHONPATH=. python benchmarks/gpu_searches.py --merge results/gpu_searches_*.json --out results/gpu_searches

Every best version's text is written to OUT_best/TASK.py. Runtimes of the best version are those of its verification, and
so is "eager", which was timed in turn with it. "roofline" is what the evaluator states; where it states none, the share of
the DRAM's peak rate that the least traffic gets, which says little of matrix products. Exit status 1 where a best version
was not verified or is more than 2% slower than eager.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.common import Deadline, Report, origin, parser, settings_of
from benchmarks.figures import geometric_mean, header, row
from mtmc.errors import MtmcError
from mtmc.hardware import hardware
from mtmc.outcome import Outcome
from mtmc.protocols import Evaluator
from mtmc.search import Budget, search
from mtmc.search.result import SearchResult
from mtmc.store import Store
from mtmc.task import builtin_names
from mtmc.tree import ROOT_ID

BAND = 0.02


@dataclass(frozen=True)
class Row:
    """One task. Times in ms; None where there is none. baselines: by name. eager_ms: timed in turn with the best.

    screened_ms: of the best version when it was found. best_ms: when it was verified. roofline: fraction, 0 to 1.
    seconds: wall time of the search.
    """

    task: str
    baselines: Mapping[str, float | None]
    root_ms: float | None
    eager_ms: float | None
    screened_ms: float | None
    best_ms: float | None
    roofline: float | None
    best_id: int
    verified: bool
    evaluations: int
    statuses: Mapping[str, int]
    seconds: float

    @property
    def speedup(self) -> float | None:
        """Of the best version over eager."""
        return self.eager_ms / self.best_ms if self.eager_ms and self.best_ms else None

    @property
    def over_compile(self) -> float | None:
        """Of the best version over the fastest of torch.compile's modes."""
        compiled = [value for name, value in self.baselines.items() if "compile" in name and value]
        return min(compiled) / self.best_ms if compiled and self.best_ms else None

    @property
    def problem(self) -> str | None:
        """What is wrong with this result, if anything."""
        if not self.verified:
            return "the best version was not verified"
        if self.speedup is None:
            return "there is no runtime of eager or of the best version"
        if self.speedup < 1 - BAND:
            return f"the best version is slower than eager: {self.speedup:.3f}x"
        return None


def roofline_of(outcome: Outcome, gpu: str) -> float | None:
    """The fraction that the outcome states; else the share of the DRAM's peak rate that it states to have reached."""
    if "roofline" in outcome.metrics:
        return outcome.metrics["roofline"]
    achieved = outcome.metrics.get("achieved_gbs")
    return None if achieved is None else achieved / hardware(gpu).dram_gbs


def row_of(task: str, result: SearchResult, seconds: float, gpu: str) -> Row:
    """The figures of one search. The root is the reference itself: as the best version it needs no verification."""
    best, tree = result.best, result.tree
    store = Store.read(result.run_dir)
    try:
        recorded = store.outcome(tree[best.node_id].hash, "verify")
    finally:
        store.close()
    at_root = best.node_id == ROOT_ID
    verification = recorded[1] if recorded is not None else None
    shown = verification if verification is not None and verification.ok else tree[best.node_id].outcome
    baselines = {name: outcome.runtime_ms for name, outcome in result.baselines.items()}
    statuses: dict[str, int] = {}
    for node in tree:
        statuses[node.outcome.status] = statuses.get(node.outcome.status, 0) + 1
    return Row(
        task=task,
        baselines=baselines,
        root_ms=result.root.runtime_ms,
        eager_ms=shown.metrics.get("eager_ms", baselines.get("eager")),
        screened_ms=best.runtime_ms,
        best_ms=shown.runtime_ms,
        roofline=roofline_of(shown, gpu),
        best_id=best.node_id,
        verified=at_root or (verification is not None and verification.ok),
        evaluations=result.evaluations,
        statuses=statuses,
        seconds=seconds,
    )


def show(rows: Sequence[Row], report: Report) -> bool:
    """The table, and what is wrong; whether nothing is."""
    names = list(dict.fromkeys(name for each in rows for name in each.baselines))
    report.say(
        "\n" + header("task", *names, "best", "over eager", "over compile", "roofline", "evaluations", "seconds")
    )
    for each in rows:
        report.say(table_row(each, names))
    for what, values in (
        ("eager", [each.speedup for each in rows]),
        ("the faster torch.compile", [each.over_compile for each in rows]),
    ):
        known = [value for value in values if value]
        if known:
            faster = sum(value > 1 for value in known)
            mean = geometric_mean(known)
            report.say(f"\nOver {what}: geometric mean {mean:.2f}x over {len(known)} tasks, faster on {faster}.")
    problems = {each.task: each.problem for each in rows if each.problem}
    for task, problem in problems.items():
        report.say(f"\n**{task}: {problem}.**")
    report.data["rows"] = [asdict(each) for each in rows]
    report.data["problems"] = problems
    return not problems


def table_row(each: Row, names: Sequence[str]) -> str:
    """One row: times in ms."""
    times = [_ms(each.baselines.get(name)) for name in names]
    roofline = "" if each.roofline is None else f"{each.roofline:.0%}"
    best = f"{_ms(each.best_ms)}{' (root)' if each.best_id == ROOT_ID else ''}"
    rest = [_times(each.speedup), _times(each.over_compile), roofline, each.evaluations, f"{each.seconds:.0f}"]
    return row(each.task, *times, best, *rest)


def _ms(value: float | None) -> str:
    return "none" if value is None else f"{value:.4f}"


def _times(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}x"


def run(evaluator: Evaluator, arguments: argparse.Namespace, report: Report) -> list[Row]:
    """Search task by task. A search that fails is said, and the next one goes on."""
    deadline = Deadline(arguments.minutes)
    rows: list[Row] = []
    for task in arguments.tasks:
        if deadline.passed:
            report.say(f"\n{task} and all after it: no time left.")
            break
        started = time.monotonic()
        out = arguments.runs / task if arguments.runs else None
        try:
            result = search(
                task,
                evaluator=evaluator,
                budget=Budget(arguments.evaluations, wall_seconds=arguments.search_s),
                seed=arguments.seed,
                batch=arguments.batch,
                strategy=arguments.strategy,
                policy=arguments.policy,
                out=out,
            )
        except MtmcError as error:
            report.say(f"\n**{task}: {type(error).__name__}: {error}**")
            continue
        rows.append(row_of(task, result, time.monotonic() - started, evaluator.hardware))
        keep_best(arguments.out, task, result.best.source)
        print(table_row(rows[-1], list(rows[-1].baselines)), dict(rows[-1].statuses), flush=True)
        report.data["rows"] = [asdict(each) for each in rows]
    return rows


def keep_best(out: Path | None, task: str, source: str) -> None:
    """Write a best version to OUT_best/TASK.py."""
    if out is not None:
        folder = Path(f"{out}_best")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{task}.py").write_text(source, encoding="utf-8")


def merged(paths: Sequence[Path]) -> list[Row]:
    """Rows of several runs by task; of a task that is in more than one, the last."""
    found: dict[str, Row] = {}
    for path in paths:
        for each in json.loads(path.read_text(encoding="utf-8")).get("rows", []):
            found[each["task"]] = Row(**each)
    return [found[task] for task in sorted(found)]


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--tasks", nargs="*", default=builtin_names())
    options.add_argument("--evaluations", type=int, default=64)
    options.add_argument("--search-s", type=float, help="wall seconds of one search at most")
    options.add_argument("--batch", type=int, default=16, help="trials at once")
    options.add_argument("--strategy", default="mcts")
    options.add_argument("--policy", default="compact")
    options.add_argument("--runs", type=Path, metavar="FOLDER", help="keep each run's folder as FOLDER/TASK")
    options.add_argument(
        "--merge", type=Path, nargs="*", default=[], metavar="JSON", help="tables of earlier runs only"
    )
    arguments = options.parse_args()
    with Report("Searches with measured runtimes", arguments.out) as report:
        if arguments.merge:
            report.data["measured"] = [origin(path, report) for path in arguments.merge]
            return 0 if show(merged(arguments.merge), report) else 1
        rows: list[Row] = []
        with settings_of(arguments).open() as evaluator:
            rows = run(evaluator, arguments, report)
        good = show(rows, report) and len(rows) == len(arguments.tasks)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
