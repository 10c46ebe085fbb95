"""Strategies of search, and Triton's own autotuner, at equal evaluations: the best version so far.

    PYTHONPATH=. python benchmarks/strategies.py --out results/strategies

Every strategy searches the same tasks with the rewriter and the heuristic policy, several times with different seeds. The
autotuner is given a kernel written by hand (`benchmarks/autotuned.py`) and the first 1, 2, 4, ... configurations of a list
in random order; each configuration that it may try counts as one evaluation, and what it chooses is timed like any version.
Speedups are over the root. Curves: OUT_TASK.png.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks.autotuned import SPACES
from benchmarks.common import Deadline, Report, evaluated, failure, parser, settings_of
from benchmarks.figures import geometric_mean, header, row
from mtmc.export import best_so_far
from mtmc.export.plots import sweep_png
from mtmc.protocols import EvaluationRequest, Evaluator
from mtmc.search import Budget, search
from mtmc.task import load_task

Curve = list[float]
"""Best speedup over the root after 0, 1, 2, ... evaluations."""
AUTOTUNER = "triton.autotune"


def searched(task: str, strategy: str, seed: int, evaluator: Evaluator, arguments: argparse.Namespace) -> Curve:
    """One search's curve."""
    budget = Budget(arguments.evaluations)
    result = search(
        task,
        strategy=strategy,
        policy="heuristic",
        evaluator=evaluator,
        budget=budget,
        seed=seed,
        batch=arguments.batch,
    )
    return [1.0, *(value for value in best_so_far(result.record) if value is not None)]


def autotuned(task: str, seed: int, root_ms: float, evaluator: Evaluator, evaluations: int, report: Report) -> Curve:
    """The autotuner's curve: flat between the numbers of configurations that it was given."""
    space = SPACES[task]
    configs = space.configs(seed)
    curve: Curve = [1.0]
    count = 1
    while len(curve) <= evaluations:
        given = min(count, evaluations, len(configs))
        outcome = evaluated(evaluator, EvaluationRequest(load_task(task), space.source(configs[:given]), seed))
        if not outcome.ok:
            report.say(f"{AUTOTUNER} with {given} configurations of {task}: {failure(outcome)}\n")
        found = root_ms / outcome.runtime_ms if outcome.ok and outcome.runtime_ms else curve[-1]
        curve += [curve[-1]] * (given - len(curve)) + [max(curve[-1], found)]
        if given in (evaluations, len(configs)):
            break
        count *= 2
    return curve + [curve[-1]] * (evaluations + 1 - len(curve))


def root_ms(task: str, evaluator: Evaluator) -> float:
    """Runtime of the reference as it is."""
    from mtmc.rewrite.source import root_source

    loaded = load_task(task)
    outcome = evaluated(evaluator, EvaluationRequest(loaded, root_source(loaded)))
    if outcome.runtime_ms is None:
        raise SystemExit(f"the root of {task} has no runtime: {failure(outcome)}")
    return outcome.runtime_ms


def compare(task: str, evaluator: Evaluator, arguments: argparse.Namespace, report: Report) -> dict[str, list[Curve]]:
    """Curves of one task by name, a run each. They are made in turn, seed by seed, so that a cut leaves equal numbers."""
    base = root_ms(task, evaluator)
    curves: dict[str, list[Curve]] = {}
    deadline = Deadline(arguments.minutes)
    for seed in range(arguments.seed, arguments.seed + arguments.seeds):
        for strategy in arguments.strategies:
            if deadline.passed:
                return curves
            curves.setdefault(strategy, []).append(searched(task, strategy, seed, evaluator, arguments))
        if not deadline.passed:
            found = autotuned(task, seed, base, evaluator, arguments.evaluations, report)
            curves.setdefault(AUTOTUNER, []).append(found)
    return curves


def marks(evaluations: int) -> list[int]:
    """Numbers of evaluations that the table shows: powers of two, and the last."""
    return [*(2**power for power in range(2, evaluations.bit_length()) if 2**power < evaluations), evaluations]


def show(task: str, curves: dict[str, list[Curve]], evaluations: int, report: Report) -> None:
    """The table of one task: geometric mean of the best speedup over the seeds."""
    columns = marks(evaluations)
    report.say(f"\n## {task}\n")
    report.say(header("best speedup after evaluations", *(str(mark) for mark in columns), "seeds"))
    for name, runs in curves.items():
        cells = [f"{geometric_mean([at(run, mark) for run in runs]):.2f}x" for mark in columns]
        report.say(row(name, *cells, len(runs)))
    report.data[task] = curves


def at(curve: Sequence[float], evaluations: int) -> float:
    """The best after so many; a search that ended before has nothing better to show later."""
    return curve[min(evaluations, len(curve) - 1)]


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--tasks", nargs="*", default=list(SPACES), choices=list(SPACES))
    options.add_argument("--strategies", nargs="*", default=["mcts", "greedy", "best_of_n"])
    options.add_argument("--evaluations", type=int, default=64)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--batch", type=int, default=8, help="trials at once")
    arguments = options.parse_args()
    with (
        Report("Strategies and Triton's autotuner at equal evaluations", arguments.out) as report,
        settings_of(arguments).open() as evaluator,
    ):
        kind = "estimated" if arguments.evaluator == "lab" else "measured"
        for task in arguments.tasks:
            curves = compare(task, evaluator, arguments, report)
            show(task, curves, arguments.evaluations, report)
            if arguments.out and curves:
                sweep_png(curves, kind, arguments.out.with_name(f"{arguments.out.name}_{task}.png"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
