"""Does a version get the same runtime each time, and are two versions that are 5% apart ranked right?

    PYTHONPATH=. python benchmarks/repeatability.py --out results/repeatability

First, versions of about 20 us, 200 us and 1 ms are each evaluated 20 times; every evaluation has its own worker process
and its own inputs. The spread is (90th - 10th percentile) / median. Then two versions of one kernel that differ only in a
number of multiply-adds: the number is calibrated until their runtimes are 5% apart, and in each of 100 tries both are
evaluated once, in random order; a try is right if the slower one's runtime is the greater.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Sequence

from benchmarks.common import Deadline, Report, failure, parser, settings_of, stage_table, stream
from benchmarks.figures import header, percentile, row, spread
from benchmarks.workloads import Case, stepped_version, timed_versions
from mtmc.errors import EvaluatorError
from mtmc.outcome import Outcome
from mtmc.protocols import EvaluationRequest, Evaluator

TARGET_SPREAD = 0.02
TARGET_RIGHT = 0.95
GAP = 0.05
CALIBRATION = (200, 400)
BASE_STEPS = 301
PARTS = ("device_ms", "host_ms", "call_ms")
"""Of a runtime: behind the gate, what the host takes for a call, and calls in a row by the oracle's clock."""


def repeated(
    evaluator: Evaluator, case: Case, times: int, seed: int, in_flight: int, deadline: Deadline
) -> list[Outcome]:
    """Outcomes of one version evaluated `times` times, with a seed of its own each time."""
    requests = [EvaluationRequest(case.task, case.source, seed=seed + number) for number in range(times)]
    return [timed.outcome for timed in stream(evaluator, requests, in_flight, deadline)]


def runtimes(outcomes: Sequence[Outcome]) -> list[float]:
    """Runtimes of outcomes that must all be right, ms. Raises: EvaluatorError for one that is not."""
    found = []
    for outcome in outcomes:
        if outcome.runtime_ms is None:
            raise EvaluatorError(f"a version that is right was not found to be: {failure(outcome)}")
        found.append(outcome.runtime_ms)
    return found


def show_spreads(evaluator: Evaluator, arguments: argparse.Namespace, deadline: Deadline, report: Report) -> None:
    """The first table: one row per version."""
    names = ("version", "evaluations", "median ms", "p10", "p90", "(p90 - p10) / median", "mean 95% interval", "trials")
    report.say(header(*names))
    report.data["spreads"] = {}
    every: list[Outcome] = []
    parts = [header("version", *(f"{part}: p10 / p50 / p90, ms" for part in PARTS))]
    for name, case in timed_versions().items():
        outcomes = repeated(evaluator, case, arguments.times, arguments.seed, arguments.in_flight, deadline)
        every += outcomes
        times = [outcome.runtime_ms for outcome in outcomes if outcome.runtime_ms is not None]
        for outcome in outcomes:
            if not outcome.ok:
                report.say(row(name, "one failed:", failure(outcome), *[""] * 5))
        if len(times) < 2:
            continue
        low, middle, high = (percentile(times, p) for p in (10, 50, 90))
        found = spread(times)
        verdict = "" if found <= TARGET_SPREAD else f" (misses {TARGET_SPREAD:.0%})"
        cells = [f"{value:.5f}" for value in (middle, low, high)]
        trials = round(statistics.median(outcome.trials for outcome in outcomes))
        report.say(row(name, len(times), *cells, f"{found:.2%}{verdict}", interval(outcomes), trials))
        told = {part: [outcome.metrics[part] for outcome in outcomes if part in outcome.metrics] for part in PARTS}
        report.data["spreads"][name] = {"spread": found, "runtimes_ms": times, **told}
        parts.append(row(name, *(three(values) for values in told.values())))
    report.say("\n" + "\n".join(parts))
    report.say("\n" + stage_table(every) + "\n")


def three(values: Sequence[float]) -> str:
    """Three percentiles; "" of a metric that the evaluator does not have."""
    return " / ".join(f"{percentile(list(values), p):.5f}" for p in (10, 50, 90)) if values else ""


def interval(outcomes: Sequence[Outcome]) -> str:
    """Mean width of the stated confidence intervals, as a fraction of the runtime."""
    widths = [
        (o.runtime_high_ms - o.runtime_low_ms) / o.runtime_ms
        for o in outcomes
        if o.runtime_ms and o.runtime_low_ms is not None and o.runtime_high_ms is not None
    ]
    return f"{statistics.fmean(widths):.2%}" if widths else "none stated"


def steps_for(gap: float, base: int, at: Sequence[tuple[int, float]]) -> int:
    """Steps of a version that takes `gap` longer than one of `base` steps, by the line through two measured points.

    at: (steps, runtime) twice. Raises: EvaluatorError where more steps take no longer.
    """
    (first, early), (second, late) = at
    slope = (late - early) / (second - first)
    if slope <= 0:
        raise EvaluatorError(f"{second} steps took {late:.5f} ms and {first} took {early:.5f}: the work does not count")
    base_ms = early + slope * (base - first)
    return base + max(1, round(gap * base_ms / slope))


def calibrate(evaluator: Evaluator, arguments: argparse.Namespace, deadline: Deadline) -> tuple[Case, Case, int]:
    """The faster and the slower version, and the steps of the slower one."""
    points = []
    for steps in CALIBRATION:
        outcomes = repeated(evaluator, stepped_version(steps), 3, arguments.seed, arguments.in_flight, deadline)
        points.append((steps, statistics.median(runtimes(outcomes))))
    slower = steps_for(GAP, BASE_STEPS, points)
    return stepped_version(BASE_STEPS), stepped_version(slower), slower


def rank(evaluator: Evaluator, arguments: argparse.Namespace, deadline: Deadline, report: Report) -> None:
    """The second part: how many tries rank the two versions right."""
    faster, slower, steps = calibrate(evaluator, arguments, deadline)
    rng = random.Random(arguments.seed)
    order = [(number, which) for number in range(arguments.tries) for which in rng.sample((0, 1), 2)]
    cases = (faster, slower)
    requests = [
        EvaluationRequest(cases[which].task, cases[which].source, seed=2 * number + which) for number, which in order
    ]
    times: dict[int, dict[int, float]] = {}
    right: list[bool] = []
    for timed in stream(evaluator, requests, arguments.in_flight, deadline):
        number, which = order[timed.index]
        both = times.setdefault(number, {})
        runtime = timed.outcome.runtime_ms
        if runtime is None:
            report.say(f"try {number} counts as wrong: {failure(timed.outcome)}\n")
        both[which] = math.nan if runtime is None else runtime
        if len(both) == 2:
            right.append(both[0] < both[1])
            if len(right) % 10 == 0:
                print(f"{sum(right)} of {len(right)} tries right", flush=True)
                report.data["ranking"] = {"steps": [BASE_STEPS, steps], "right": sum(right), "tries": len(right)}
    if not right:
        return
    pairs = [(both[0], both[1]) for both in times.values() if len(both) == 2]
    measured = [pair for pair in pairs if not math.isnan(sum(pair))]
    if not measured:
        return
    early, late = (statistics.median(values) for values in zip(*measured, strict=True))
    report.say(
        f"Two versions of {BASE_STEPS} and {steps} steps, medians {early:.5f} and {late:.5f} ms ({late / early - 1:.2%} "
        f"apart): **{sum(right)} of {len(right)} tries ranked right** ({_verdict(right)})."
    )
    report.data["ranking"] = {
        "steps": [BASE_STEPS, steps],
        "gap": late / early - 1,
        "right": sum(right),
        "tries": len(right),
        "runtimes_ms": measured,
    }


def _verdict(right: Sequence[bool]) -> str:
    aim = math.ceil(TARGET_RIGHT * len(right))
    return f"{'meets' if sum(right) >= aim else 'misses'} the aim of {aim}"


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--times", type=int, default=20, help="evaluations of each version")
    options.add_argument("--tries", type=int, default=100, help="of ranking; 0 leaves this part out")
    options.add_argument("--in-flight", type=int, default=8, help="evaluations asked for at the same time")
    arguments = options.parse_args()
    with Report("Repeatability of measured runtimes", arguments.out) as report:
        deadline = Deadline(arguments.minutes)
        with settings_of(arguments).open() as evaluator:
            if arguments.times > 1:
                show_spreads(evaluator, arguments, deadline, report)
            if arguments.tries > 0:
                rank(evaluator, arguments, deadline, report)


if __name__ == "__main__":
    main()
