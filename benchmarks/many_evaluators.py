"""How many evaluators one asynchronous search keeps busy, and where its own work is the limit: simulated, up to 1,024.

    PYTHONPATH=. python benchmarks/many_evaluators.py --out results/many_evaluators

Fakes on all boundaries but time: an evaluation takes as long as real ones took. By default its stages (build, check, time,
...) are drawn from lognormal distributions with the median and the 90th percentile that `results/sustained_rate.md` has of
an H100; with `--recorded RUN` the whole times of a recorded run are drawn from. A time follows from the version's text.

For each number of evaluators: versions a second between the first evaluation of each and the last; what that many could do
if nothing ever waited; the share of it that is reached; and the search's own CPU milliseconds a version, whose inverse is
the most that one process can do. The search saturates where the share falls below `SATURATED`.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import NormalDist
from typing import Any

from benchmarks.common import Report
from benchmarks.figures import header, row
from benchmarks.search_overhead import LOADED_ON_FIRST_USE
from benchmarks.utilization import grown
from mtmc.fakes import FakeEvaluator, draw
from mtmc.outcome import Outcome
from mtmc.protocols import EvaluationRequest
from mtmc.store import Store

SATURATED = 0.9
"""Share of what the evaluators could do below which the search is the limit."""
P90 = NormalDist().inv_cdf(0.9)
STAGES = ("build", "ready", "check", "time", "loop")
"""What one evaluation goes through in turn; what it waits for others (queued) is left out, as each evaluator is alone."""
RECORD = Path(__file__).parent.parent / "results" / "sustained_rate.md"

Times = Callable[[str], float]
"""Seconds that the evaluation of a version takes, by its text."""


@dataclass
class Timed(FakeEvaluator):
    """An evaluator whose evaluations take given times. ended: when each did, by `perf_counter`, but the root's own."""

    times: Times = lambda source: 0.0
    ended: list[float] = field(default_factory=list)
    guard: threading.Lock = field(default_factory=threading.Lock)

    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
        """See `protocols.Evaluator.evaluate`."""
        [request] = requests
        if not any(line.startswith("# ") for line in request.source.splitlines()):
            return super().evaluate(requests)
        time.sleep(self.times(request.source))
        outcomes = super().evaluate(requests)
        with self.guard:
            self.ended.append(time.perf_counter())
        return outcomes


def lognormal(median: float, p90: float, at: float) -> float:
    """The value of the lognormal distribution with this median and 90th percentile below which a share `at` lies:
    median * (p90 / median) ** (z(at) / z(0.9))."""
    return median * (p90 / median) ** (NormalDist().inv_cdf(min(max(at, 1e-9), 1 - 1e-9)) / P90)


def of_stages(stages: dict[str, tuple[float, float]]) -> Times:
    """Times that are sums over stages, each with its median and 90th percentile in seconds."""
    return lambda source: sum(lognormal(*stages[name], draw(name, source)) for name in stages)


def of_run(folder: Path) -> Times:
    """Times of a recorded run's screenings, each as likely as the others."""
    store = Store.read(folder)
    seconds = sorted(seconds for _, gate, seconds, _ in store.evaluations_made() if gate == "screen")
    store.close()
    return lambda source: seconds[int(draw("seconds", source) * len(seconds))]


def recorded_stages(record: Path) -> dict[str, tuple[float, float]]:
    """Median and 90th percentile (s) of the stages of an evaluation, from the table of a record."""
    found: dict[str, tuple[float, float]] = {}
    for line in record.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) in (5, 6) and cells[0] in STAGES and float(cells[1]) > 0:
            found[cells[0]] = (float(cells[1]), float(cells[2]))
    return found


def rate(ended: Sequence[float], evaluators: int) -> float:
    """Evaluations a second in between: after each evaluator has ended one, and before the last have nothing left."""
    inner = sorted(ended)[evaluators : len(ended) - evaluators]
    return (len(inner) - 1) / (inner[-1] - inner[0])


def measure(evaluators: int, rounds: int, times: Times, strategy: str) -> dict[str, float]:
    """The figures of one search with so many evaluators."""
    evaluator = Timed(failing=0.1, times=times)
    cpu = time.process_time()
    result = grown(evaluator, 1 + evaluators * rounds, evaluators, True, strategy)
    cpu = time.process_time() - cpu
    mean = statistics.mean(times(str(number)) for number in range(20_000))
    found = rate(evaluator.ended, evaluators)
    could = evaluators / mean
    own = 1e3 * cpu / len(result.tree)
    return {
        "evaluations": result.evaluations,
        "per_second": found,
        "could": could,
        "share": found / could,
        "cpu_ms": own,
    }


def saturation(shares: Sequence[tuple[int, float]]) -> str:
    """Where a search saturates, in words. shares: of each number of evaluators, in ascending order."""
    enough = [evaluators for evaluators, share in shares if share >= SATURATED]
    over = [evaluators for evaluators, share in shares if share < SATURATED]
    if not over:
        return f"It keeps up to {shares[-1][0]} evaluators at least {SATURATED:.0%} busy: it does not saturate here."
    best = max(enough, default=0)
    return f"It keeps {best} evaluators at least {SATURATED:.0%} busy, and saturates before {min(over)}."


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evaluators", type=int, nargs="+", default=[16, 64, 128, 256, 512, 1024])
    parser.add_argument("--rounds", type=int, default=10, help="evaluations of a search, per evaluator")
    parser.add_argument("--recorded", type=Path, help="folder of a run whose times are drawn from")
    parser.add_argument("--strategy", default="mcts")
    parser.add_argument("--scale", type=float, default=1.0, help="factor on all times")
    parser.add_argument("--out", type=Path, help="write OUT.md and OUT.json")
    arguments = parser.parse_args()
    for name in LOADED_ON_FIRST_USE:
        importlib.import_module(name)
    stages = recorded_stages(RECORD)
    drawn = of_run(arguments.recorded) if arguments.recorded else of_stages(stages)

    def times(source: str) -> float:
        return arguments.scale * drawn(source)

    sample = sorted(times(str(number)) for number in range(20_000))
    p50, p90, p99 = (sample[int(share * len(sample))] for share in (0.5, 0.9, 0.99))
    with Report("One asynchronous search with many evaluators", arguments.out) as report:
        whence = f"the run {arguments.recorded}" if arguments.recorded else f"the stages in {RECORD.name}, lognormal"
        report.say(
            f"Evaluations take the times of {whence}: {statistics.mean(sample):.3f} s in the mean, p50 {p50:.3f}, "
            f"p90 {p90:.3f}, p99 {p99:.3f}. Strategy {arguments.strategy}. Simulated: only the time is real.\n"
        )
        report.say(header("evaluators", "evaluations", "a second", "they could", "share", "own CPU ms a version"))
        shares = []
        for evaluators in sorted(arguments.evaluators):
            found: dict[str, Any] = measure(evaluators, arguments.rounds, times, arguments.strategy)
            shares.append((evaluators, found["share"]))
            figures = (
                f"{found['per_second']:.1f}",
                f"{found['could']:.1f}",
                f"{found['share']:.3f}",
                f"{found['cpu_ms']:.2f}",
            )
            report.say(row(evaluators, found["evaluations"], *figures))
            report.data[str(evaluators)] = found
        report.say(f"\n{saturation(shares)}")
        report.data["stages"] = {} if arguments.recorded else stages
    return 0


if __name__ == "__main__":
    sys.exit(main())
