"""Does the lab's estimate rank versions as a GPU does? The same versions through both.

    python benchmarks/estimate_quality.py --prepare FOLDER --versions 18      # anywhere: versions and their estimates
    PYTHONPATH=. python benchmarks/estimate_quality.py --measure FOLDER --out results/estimate_quality     # on a GPU
    PYTHONPATH=. python benchmarks/estimate_quality.py --merge A.json B.json --out results/estimate_quality
    python benchmarks/estimate_quality.py --prepare FOLDER --again        # the same versions by a changed estimate
    PYTHONPATH=. python benchmarks/estimate_quality.py --merge A.json --estimates FOLDER    # against the same times

Preparing takes random walks of the rewriter's legal actions from each built-in task's root (the kind drawn first, then one
of that kind) and keeps distinct versions that pass the lab, the root among them. Measuring evaluates them, one version of
every task in turn so that a run cut short has something of every task, and leaves out what a file of `--merge` has
measured. The report: per task the Spearman correlation between estimated and measured runtime, their median, the
correlation over all versions, the geometric mean of the error, and the pairs of versions of one task that the estimate
ranks most wrongly.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations, zip_longest
from pathlib import Path

from benchmarks.common import Deadline, Report, evaluated, failure, origin, parser, settings_of, stream
from benchmarks.figures import geometric_mean, header, row, spearman
from mtmc.agents.coders.rewriter import Rewriter
from mtmc.errors import CoderError, ConfigError
from mtmc.outcome import Outcome, outcome_from_json, outcome_to_json
from mtmc.protocols import Edit, EditRequest, EvaluationRequest, Evaluator, Observation
from mtmc.task import Task, builtin_names, load_task
from mtmc.tree import source_hash

GREATEST_WALK = 7
WALKS_PER_VERSION = 6
"""Walks that are tried for each version that is wanted, before a task is taken to have no more."""
WORST = 15
TELLING = ("kernels", "bytes_moved", "flops", "occupancy", "registers", "spills", "shared_memory", "roofline")
"""Metrics of the estimate that are printed with a pair of versions that it ranks wrongly."""


@dataclass(frozen=True)
class Prepared:
    """A version and what the lab says of it. steps: sentences of the actions that made it."""

    task: str
    steps: tuple[str, ...]
    source: str
    estimate: Outcome

    @property
    def key(self) -> str:
        """Identity: its task and text."""
        return f"{self.task}/{source_hash(self.source)}"


@dataclass(frozen=True)
class Pair:
    """Estimated and measured runtime of one version, and the estimate's metrics."""

    key: str
    task: str
    steps: tuple[str, ...]
    estimated_ms: float
    measured_ms: float
    metrics: dict[str, float]


def walked(task: Task, seed: int, count: int, evaluator: Evaluator) -> Iterator[Prepared]:
    """Up to `count` distinct versions of a task that pass `evaluator`, the root first."""
    coder, rng = Rewriter(), random.Random(f"{task.name}/{seed}")
    root = coder.root(task)
    known: dict[str, Outcome] = {}
    for _ in range(count * WALKS_PER_VERSION):
        edit, steps, outcome = root, tuple[str, ...](), None
        for _ in range(1 + rng.randint(1, GREATEST_WALK)):  # the root itself comes first
            digest = source_hash(edit.source)
            if digest not in known:
                [known[digest]] = evaluator.evaluate([EvaluationRequest(task, edit.source, seed=seed)])
                if known[digest].ok:
                    yield Prepared(task.name, steps, edit.source, known[digest])
                if sum(each.ok for each in known.values()) == count:
                    return
            outcome = known[digest]
            following = _step(coder, task, edit, outcome, evaluator.hardware, rng) if outcome.ok else None
            if following is None:
                break
            edit, steps = following[0], (*steps, following[1])


def _step(
    coder: Rewriter, task: Task, edit: Edit, outcome: Outcome, gpu: str, rng: random.Random
) -> tuple[Edit, str] | None:
    """A random legal action, its kind drawn first, and what it makes; None where nothing is legal."""
    legal = coder.actions(Observation(task, edit.source, edit.plan, outcome, (), gpu), ())[:-1]
    if not legal:
        return None
    kind = rng.choice(sorted({action.kind for action in legal}))
    action = rng.choice([action for action in legal if action.kind == kind])
    try:
        return coder.edit(EditRequest(task, edit.source, edit.plan, outcome, action, gpu)), action.sentence
    except CoderError:
        return None


def prepare(arguments: argparse.Namespace, evaluator: Evaluator) -> None:
    """Write one file per task into the folder; a task whose file is there already is left out."""
    deadline = Deadline(arguments.minutes)
    arguments.prepare.mkdir(parents=True, exist_ok=True)
    for name in arguments.tasks:
        path = arguments.prepare / f"{name}.json"
        if path.exists() or deadline.passed:
            continue
        found = list(walked(load_task(name), arguments.seed, arguments.versions, evaluator))
        _write(path, found)
        print(f"{name}: {len(found)} versions", flush=True)


def estimate_again(arguments: argparse.Namespace, evaluator: Evaluator) -> None:
    """Replace the estimates in the folder by those of `evaluator`; a version that it refuses now keeps its old one."""
    deadline = Deadline(arguments.minutes)
    for name in arguments.tasks:
        path = arguments.prepare / f"{name}.json"
        if not path.exists() or deadline.passed:
            continue
        old, task = _read(path), load_task(name)
        outcomes = [evaluated(evaluator, EvaluationRequest(task, each.source, seed=arguments.seed)) for each in old]
        new = [replace(each, estimate=o) if o.ok else each for each, o in zip(old, outcomes, strict=True)]
        _write(path, new)
        changed = sum(a.estimate.runtime_ms != b.estimate.runtime_ms for a, b in zip(old, new, strict=True))
        print(f"{name}: {changed} of {len(new)} estimates changed", flush=True)
        for outcome in outcomes:
            if not outcome.ok:
                print(f"{name}: {failure(outcome)}", flush=True)


def _write(path: Path, versions: Sequence[Prepared]) -> None:
    data = [{**asdict(each), "estimate": outcome_to_json(each.estimate)} for each in versions]
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def _read(path: Path) -> list[Prepared]:
    data = json.loads(path.read_text(encoding="utf-8"))
    return [Prepared(d["task"], tuple(d["steps"]), d["source"], outcome_from_json(d["estimate"])) for d in data]


def read_prepared(folder: Path, names: Sequence[str]) -> list[Prepared]:
    """The prepared versions of the named tasks, one of each task in turn.

    Raises: ConfigError where the folder has none.
    """
    columns = [[each for each in _read(path) if each.task in names] for path in sorted(folder.glob("*.json"))]
    prepared = [each for turn in zip_longest(*columns) for each in turn if each is not None]
    if not prepared:
        raise ConfigError(f"{str(folder)!r} has no prepared versions: make them with --prepare {folder}")
    return prepared


def measure(
    prepared: Sequence[Prepared], evaluator: Evaluator, in_flight: int, deadline: Deadline, report: Report
) -> Iterator[Pair]:
    """Evaluate versions, print each and yield its times; a failed one is printed and left out."""
    report.data["failed"] = []
    report.say(header("task", "estimated ms", "measured ms", "ratio", "kernels", "last step"))
    requests = [EvaluationRequest(load_task(each.task), each.source) for each in prepared]
    for timed in stream(evaluator, requests, in_flight, deadline):
        version, outcome = prepared[timed.index], timed.outcome
        last = version.steps[-1] if version.steps else "root"
        estimated = version.estimate.runtime_ms
        if outcome.runtime_ms is None or estimated is None:
            report.data["failed"].append({"key": version.key, "steps": version.steps, "why": failure(outcome)})
            report.say(row(version.task, estimated, failure(outcome), "", "", last))
            continue
        measured = outcome.runtime_ms
        kernels = f"{version.estimate.metrics.get('kernels', 0):g}"
        report.say(
            row(version.task, f"{estimated:.4f}", f"{measured:.4f}", f"{estimated / measured:.2f}", kernels, last)
        )
        yield Pair(version.key, version.task, version.steps, estimated, measured, dict(version.estimate.metrics))


def misranked(pairs: Sequence[Pair]) -> list[tuple[float, Pair, Pair]]:
    """Pairs of versions of one task that the estimate ranks wrongly, worst first: (regret, thought faster, is faster).

    regret: measured runtime of the one that the estimate prefers over that of the other, so above 1.
    """
    found = []
    for first, second in combinations(pairs, 2):
        thought, other = (first, second) if first.estimated_ms < second.estimated_ms else (second, first)
        if first.task == second.task and thought.measured_ms > other.measured_ms:
            found.append((thought.measured_ms / other.measured_ms, thought, other))
    return sorted(found, key=lambda each: -each[0])


def summarize(pairs: Sequence[Pair], report: Report) -> None:
    """Correlations, errors, and the worst pairs."""
    report.say("\n" + header("task", "versions", "Spearman", "error (geometric)", "estimate / measured (geometric)"))
    correlations = {}
    for name in sorted({pair.task for pair in pairs}):
        own = [pair for pair in pairs if pair.task == name]
        correlations[name] = spearman([p.estimated_ms for p in own], [p.measured_ms for p in own])
        shown = "none" if correlations[name] is None else f"{correlations[name]:.3f}"
        bias = geometric_mean([pair.estimated_ms / pair.measured_ms for pair in own])
        report.say(row(name, len(own), shown, f"{error_of(own):.2f}x", f"{bias:.2f}"))
    known = [value for value in correlations.values() if value is not None]
    whole = spearman([p.estimated_ms for p in pairs], [p.measured_ms for p in pairs])
    middle = statistics.median(known) if known else None
    report.data.update(tasks=correlations, median_task=middle, all_versions=whole, error=error_of(pairs))
    report.data["pairs"] = [asdict(pair) for pair in pairs]
    report.say(
        f"\n{len(pairs)} versions of {len(correlations)} tasks. Spearman: median over tasks {_number(middle)}, over all "
        f"versions {_number(whole)}. Geometric mean of the error: {error_of(pairs):.2f}x."
    )
    report.say(f"\nThe {WORST} versions most wrongly preferred, one per version:\n")
    report.say(
        header("task", "regret", "preferred: estimated / measured ms", "better: estimated / measured ms", "steps")
    )
    shown_already: set[str] = set()
    for regret, thought, better in misranked(pairs):
        if thought.key in shown_already or len(shown_already) == WORST:
            continue
        shown_already.add(thought.key)
        times = [f"{p.estimated_ms:.4f} / {p.measured_ms:.4f} {_metrics(p)}" for p in (thought, better)]
        report.say(row(thought.task, f"{regret:.2f}x", *times, f"{_steps(thought)} instead of {_steps(better)}"))


def error_of(pairs: Sequence[Pair]) -> float:
    """Geometric mean of max(estimate / measured, measured / estimate): 1 is exact."""
    return math.exp(statistics.fmean(abs(math.log(p.estimated_ms / p.measured_ms)) for p in pairs))


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"


def _metrics(pair: Pair) -> str:
    return ", ".join(f"{name} {pair.metrics[name]:.4g}" for name in TELLING if name in pair.metrics)


def _steps(pair: Pair) -> str:
    return "; ".join(pair.steps) or "root"


def with_estimates(pairs: Sequence[Pair], prepared: Sequence[Prepared]) -> list[Pair]:
    """The pairs with the estimates of prepared versions; a pair without one is left out."""
    known = {each.key: each.estimate for each in prepared}
    found = []
    for pair in pairs:
        estimate = known.get(pair.key)
        if estimate is not None and estimate.runtime_ms is not None:
            found.append(replace(pair, estimated_ms=estimate.runtime_ms, metrics=dict(estimate.metrics)))
    return found


def _read_pairs(paths: Sequence[Path]) -> list[Pair]:
    """Pairs that earlier runs measured, each version once, from the first file that has it."""
    found: dict[str, Pair] = {}
    for path in paths:
        for each in json.loads(path.read_text(encoding="utf-8"))["pairs"]:
            found.setdefault(each["key"], Pair(**{**each, "steps": tuple(each["steps"])}))
    return list(found.values())


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--prepare", type=Path, metavar="FOLDER", help="write versions and estimates; needs no GPU")
    options.add_argument("--measure", type=Path, metavar="FOLDER", help="measure what was prepared")
    options.add_argument("--merge", type=Path, nargs="*", default=[], metavar="JSON", help="what earlier runs wrote")
    options.add_argument("--again", action="store_true", help="with --prepare: only estimate again what is there")
    options.add_argument("--estimates", type=Path, metavar="FOLDER", help="with --merge: whose estimates to take")
    options.add_argument("--tasks", nargs="*", default=builtin_names())
    options.add_argument("--versions", type=int, default=18, help="of each task, to prepare")
    options.add_argument("--limit", type=int, default=100_000, help="versions to measure at most")
    options.add_argument("--in-flight", type=int, default=16, help="evaluations asked for at the same time")
    arguments = options.parse_args()
    if arguments.prepare:
        arguments.evaluator = "lab"
        with settings_of(arguments, workers=1).open() as evaluator:
            (estimate_again if arguments.again else prepare)(arguments, evaluator)
        return
    if not arguments.measure and not arguments.merge:
        options.error("give --prepare FOLDER, --measure FOLDER or --merge JSON ...")
    with Report("Estimated against measured runtime", arguments.out) as report:
        report.data["measured"] = [origin(path, report) for path in arguments.merge]
        pairs = _read_pairs(arguments.merge)
        if arguments.estimates:
            pairs = with_estimates(pairs, read_prepared(arguments.estimates, arguments.tasks))
        report.data["pairs"] = [asdict(pair) for pair in pairs]
        try:
            if arguments.measure:
                done = {pair.key for pair in pairs}
                left = [each for each in read_prepared(arguments.measure, arguments.tasks) if each.key not in done]
                with settings_of(arguments).open() as evaluator:
                    deadline = Deadline(arguments.minutes)
                    for pair in measure(left[: arguments.limit], evaluator, arguments.in_flight, deadline, report):
                        pairs.append(pair)
                        report.data["pairs"] = [asdict(pair) for pair in pairs]
        finally:
            if pairs:
                summarize(pairs, report)


if __name__ == "__main__":
    main()
