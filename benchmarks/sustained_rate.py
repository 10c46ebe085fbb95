"""How many evaluations a second one machine sustains, over distinct small-kernel versions: nothing is cached.

    PYTHONPATH=. python benchmarks/sustained_rate.py --limit 500 --out results/sustained_rate

The versions are made up from templates over five small tasks (2048 x 1024, fp32): every text and every compiled kernel
differs. The rate counts the evaluations that end after the first `--warm-up` ones have, over the time from there to the
last one's end, so it includes the end of the stream, when the builders have nothing left to do.

A second table has the longest gaps between two ends, with what the evaluation that ended each of them says of itself: how
many versions its process had had before, how often its calls were timed, and the seconds of its stages, the longest first.
With one GPU nothing else was examined in that gap. `again` is what was done before its last examination where there was more
than one, of which `calibrate` went to the clock; `ready_process` is the wait for its process.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from benchmarks.common import Deadline, Report, Timed, failure, parser, settings_of, stage_seconds, stage_table, stream
from benchmarks.figures import header, percentile, row
from benchmarks.workloads import small_versions
from mtmc.protocols import EvaluationRequest, Evaluator

PROGRESS = 25
"""Evaluations between two lines of progress."""
LONGEST = 5
"""Gaps that are shown one by one."""
SHORT_S = 0.001
"""Stages that took less are not shown there."""


@dataclass(frozen=True)
class Rate:
    """evaluations: counted ones. seconds: in which they ended."""

    evaluations: int
    seconds: float

    @property
    def per_second(self) -> float:
        """Evaluations a second."""
        return self.evaluations / self.seconds


def rate_of(ends: Sequence[float], warm_up: int) -> Rate:
    """Rate of evaluations that ended at `ends` (seconds, any order), leaving out the first `warm_up`.

    Raises: ValueError where fewer than two are left to count from.
    """
    ordered = sorted(ends)[max(0, warm_up - 1) :]
    if len(ordered) < 2:
        raise ValueError(f"{len(ends)} evaluations with a warm-up of {warm_up} leave no rate: ask for more of them")
    return Rate(len(ordered) - 1, ordered[-1] - ordered[0])


def run(evaluator: Evaluator, arguments: argparse.Namespace, report: Report) -> list[Timed]:
    """Evaluate the versions, saying how it goes."""
    cases = list(small_versions(arguments.warm_up + arguments.limit, arguments.seed))
    requests = [EvaluationRequest(case.task, case.source, seed=index) for index, case in enumerate(cases)]
    deadline = Deadline(arguments.minutes)
    found: list[Timed] = []
    try:
        for timed in stream(evaluator, requests, arguments.in_flight, deadline):
            found.append(timed)
            if not timed.outcome.ok:
                report.say(f"version {timed.index} ({cases[timed.index].task.name}): {failure(timed.outcome)}\n")
            if len(found) % PROGRESS == 0:
                print(f"{len(found)} evaluations in {timed.ended:.1f} s", flush=True)
    finally:
        if len(found) > arguments.warm_up + 1:
            summarize(found, arguments, report)
    return found


def summarize(found: Sequence[Timed], arguments: argparse.Namespace, report: Report) -> Rate:
    """Rate, latencies, statuses and stages."""
    rate = rate_of([timed.ended for timed in found], arguments.warm_up)
    late = sorted(found, key=lambda timed: timed.ended)[arguments.warm_up :]
    statuses = Counter(timed.outcome.status for timed in found)
    report.say(
        f"**{rate.per_second:.2f} evaluations a second** ({rate.evaluations} in {rate.seconds:.1f} s, after a warm-up of "
        f"{arguments.warm_up} that took {sorted(t.ended for t in found)[max(0, arguments.warm_up - 1)]:.1f} s). "
        f"Statuses: {dict(statuses)}. {len(os.sched_getaffinity(0))} cores, {arguments.in_flight} asked for at a time, "
        f"settings: {' '.join(arguments.setting) or 'the defaults'}.\n"
    )
    report.say(header("what", "p10", "p50", "p90", "p99", "greatest"))
    seconds = [timed.seconds for timed in late]
    gaps = [after - before for before, after in pairwise(timed.ended for timed in late)]
    runtimes = [1000 * t.outcome.runtime_ms for t in late if t.outcome.runtime_ms is not None]
    for name, values in (("asked to answered, s", seconds), ("between two ends, s", gaps), ("runtime, us", runtimes)):
        if values:
            report.say(row(name, *(f"{percentile(values, p):.3f}" for p in (10, 50, 90, 99, 100))))
    report.say("\n" + stage_table(timed.outcome for timed in late))
    report.say("\n" + gap_table(late))
    report.data.update(per_second=rate.per_second, evaluations=rate.evaluations, seconds=rate.seconds)
    report.data.update(statuses=dict(statuses), median_seconds=statistics.median(seconds))
    report.data["versions"] = [
        [t.index, t.outcome.status, t.outcome.runtime_ms, round(t.started, 3), round(t.ended, 3)] for t in found
    ]
    return rate


def gap_table(late: Sequence[Timed]) -> str:
    """Markdown table of the longest gaps between two ends. late: evaluations in the order in which they ended."""
    gaps = sorted(pairwise(late), key=lambda pair: pair[0].ended - pair[1].ended)[:LONGEST]
    lines = [
        header(
            "gap, s", "ended at, s", "version", "process had had", "looks", "rounds", "stages that it went through, s"
        )
    ]
    for before, after in gaps:
        metrics = after.outcome.metrics
        stages = sorted(((values[0], name) for name, values in stage_seconds([after.outcome]).items()), reverse=True)
        shown = ", ".join(f"{name} {seconds:.3f}" for seconds, name in stages if seconds >= SHORT_S)
        counts = (f"{metrics[name]:.0f}" if name in metrics else "" for name in ("process_used", "looks", "rounds"))
        lines.append(row(f"{after.ended - before.ended:.3f}", f"{after.ended:.1f}", after.index, *counts, shown))
    return "\n".join(lines)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--limit", type=int, default=500, help="versions after the warm-up")
    options.add_argument("--warm-up", type=int, default=20)
    options.add_argument("--in-flight", type=int, default=32, help="evaluations asked for at the same time")
    arguments = options.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")  # says why one was examined again
    with (
        Report("Sustained rate over distinct small-kernel versions", arguments.out) as report,
        settings_of(arguments).open() as evaluator,
    ):
        run(evaluator, arguments, report)


if __name__ == "__main__":
    main()
