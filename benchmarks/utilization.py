"""How much of its places a search keeps busy, batch by batch and asynchronously, and what its own work costs a node.

    PYTHONPATH=. python benchmarks/utilization.py --out results/utilization

Fakes on all boundaries. For each batch size, evaluations take times drawn from an exponential distribution, which follow
from the version's text. Utilization is the time that evaluations took, summed, as a share of batch x wall time, from the
first after the root's own to the end of the last: the search's own work, waiting for the slowest, and the last trials, after
which none begins, are all in what is missing. Then the same without any time for evaluations, for the search's own work:
milliseconds a node, of wall time and of CPU. Exit status 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import importlib
import math
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.common import Report
from benchmarks.figures import header, row
from benchmarks.search_overhead import LOADED_ON_FIRST_USE
from mtmc.fakes import FAKE_TASK, FakeCoder, FakeEvaluator, FakePolicy, draw
from mtmc.outcome import Outcome
from mtmc.protocols import EvaluationRequest
from mtmc.search import Budget, SearchResult, search

TARGET_UTILIZATION = 0.9
"""At least, for asynchronous searches."""
TARGET_MS = 2.0
"""Milliseconds a node at most, of asynchronous searches."""


@dataclass
class Slow(FakeEvaluator):
    """An evaluator whose evaluations take exponentially distributed times.

    mean: seconds. busy: seconds that its evaluations took so far. began, ended: the first and the last, by `perf_counter`.
    """

    mean: float = 0.1
    busy: float = 0.0
    began: float = math.inf
    ended: float = 0.0
    guard: threading.Lock = field(default_factory=threading.Lock)

    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
        """See `protocols.Evaluator.evaluate`."""
        if not any(line.startswith("# ") for line in requests[0].source.splitlines()):
            return super().evaluate(requests)  # the root's own, beside which nothing can be under way
        began = time.perf_counter()
        for request in requests:
            time.sleep(exponential(self.mean, request.source))
        outcomes = super().evaluate(requests)
        ended = time.perf_counter()
        with self.guard:
            self.busy += ended - began
            self.began, self.ended = min(self.began, began), max(self.ended, ended)
        return outcomes


def exponential(mean: float, source: str) -> float:
    """A time with this mean (seconds) that follows from a version's text: minus mean times log of a number in 0 to 1."""
    return -mean * math.log(1.0 - draw("seconds", source))


def grown(evaluator: FakeEvaluator, evaluations: int, batch: int, asynchronous: bool, strategy: str) -> SearchResult:
    """A search in a folder that is gone afterwards."""
    coder = FakeCoder(width=10, commuting=False, usd=0.0)
    budget = Budget(evaluations, depth=12)
    parts: dict[str, Any] = {"strategy": strategy, "policy": FakePolicy(), "coder": coder, "evaluator": evaluator}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        return search(FAKE_TASK, **parts, budget=budget, batch=batch, asynchronous=asynchronous, out=out, dumps=False)


def utilization(evaluations: int, mean: float, batch: int, asynchronous: bool, strategy: str) -> float:
    """Share of the places that evaluations kept busy."""
    evaluator = Slow(failing=0.1, mean=mean)
    grown(evaluator, evaluations, batch, asynchronous, strategy)
    return evaluator.busy / (batch * (evaluator.ended - evaluator.began))


def overhead(nodes: int, batch: int, asynchronous: bool, strategy: str) -> tuple[float, float]:
    """Milliseconds a node without evaluations: wall time and CPU time."""
    began, cpu = time.perf_counter(), time.process_time()
    result = grown(FakeEvaluator(failing=0.1), nodes + nodes // 12, batch, asynchronous, strategy)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return 1e3 * seconds / len(result.tree), 1e3 * cpu / len(result.tree)


def compare(batch: int, arguments: argparse.Namespace, report: Report) -> list[str]:
    """The rows of one batch size; returns the targets that are missed."""
    missed = []
    for asynchronous in (False, True):
        way = "asynchronous" if asynchronous else "batch by batch"
        trials = arguments.rounds * batch
        share = utilization(trials, arguments.mean, batch, asynchronous, arguments.strategy)
        wall, cpu = overhead(arguments.nodes, batch, asynchronous, arguments.strategy)
        report.say(row(batch, way, trials, f"{share:.3f}", f"{wall:.2f}", f"{cpu:.2f}"))
        report.data[f"{way}, {batch}"] = {"trials": trials, "utilization": share, "ms": wall, "cpu_ms": cpu}
        if asynchronous and share < TARGET_UTILIZATION:
            missed.append(f"utilization at batch {batch}")
        if asynchronous and wall > TARGET_MS:
            missed.append(f"milliseconds at batch {batch}")
    return missed


def main() -> int:
    """Print the figures; 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--rounds", type=int, default=100, help="evaluations of a timed search, per place")
    parser.add_argument("--mean", type=float, default=0.2, help="seconds that an evaluation takes in the mean")
    parser.add_argument("--nodes", type=int, default=10_000, help="versions of a search whose own work is timed")
    parser.add_argument("--strategy", default="mcts")
    parser.add_argument("--out", type=Path, help="write OUT.md and OUT.json")
    arguments = parser.parse_args()
    for name in LOADED_ON_FIRST_USE:
        importlib.import_module(name)
    with Report("Utilization of a search's places, and its own work", arguments.out) as report:
        report.say(
            f"Evaluations take {arguments.mean:g} s in the mean, exponentially distributed; strategy {arguments.strategy}.\n"
            f"Targets, asynchronous: {TARGET_UTILIZATION:g} at least, and {TARGET_MS:g} ms a node at most, "
            f"at {arguments.nodes:,} nodes.\n"
        )
        report.say(header("batch", "search", "evaluations", "utilization", "ms a node", "CPU ms a node"))
        missed = [each for batch in arguments.batches for each in compare(batch, arguments, report)]
        report.say(f"\n{'Missed: ' + ', '.join(missed) if missed else 'All targets are met'}.")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
