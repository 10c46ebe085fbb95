"""Is an honest version rejected for its clock on a busy machine, and is a forged time believed?

    PYTHONPATH=. python benchmarks/clock_verdicts.py --out results/clock_verdicts

One honest version of a built-in task (its own text, several kernels of a millisecond together) is evaluated again and again,
and between these three versions that forge what the device's events tell; the audit, which refuses such texts, is left out
for them. Meanwhile threads keep the builders busy with versions that compile long and then ask for too much shared memory,
so that none of them comes to the device. "disturbed" is the share of a version's calls whose clock showed more than their
stated time explains. With two GPUs, run it twice at once (`--setting devices=0`, `--setting devices=1`): contexts that are
made for the one disturb the other. At last a version whose time is launches is evaluated, and the same one in a process that
says nothing of what its host takes: it may be accepted, with 0.8 of the honest time a call at least. Exit status 1 if an
honest evaluation is not accepted, or another forged one is.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from unittest import mock

from benchmarks.common import Deadline, Report, Timed, evaluated, failure, parser, settings_of, stage_table, stream
from benchmarks.figures import header, percentile, row
from benchmarks.workloads import SILU, make_task
from mtmc.evaluate.compiling.build import compiled
from mtmc.outcome import Outcome
from mtmc.protocols import EvaluationRequest, Evaluator
from mtmc.task import Task, load_task

HONEST = "honest"
_MODEL = "\n\nclass ModelNew(Model):\n    pass\n"

_STATES_LESS = """
import sys


def forge(share):
    backend, calls = sys.modules.get("mtmc.evaluate.measure.cuda_backend"), iter(range(1 << 30))
    if backend is None:
        return
    true = backend._elapsed

    def elapsed(first, last):
        if true(first, last) < {least}:
            return true(first, last)
        call = next(calls)
        forged = int((call + 1) * share) > int(call * share)
        return true(first, last) * (0.1 if forged else 1.0)

    backend._elapsed = elapsed


forge({share})
"""
_LEAST_MS = 0.1
"""What is shorter is no call: how long other streams are at work behind each is asked in the same way, and not forged."""

_STARTS_LATE = """
import sys

backend = sys.modules.get("mtmc.evaluate.measure.cuda_backend")
if backend is not None:
    marks, record = [], backend._record

    def remember(event, stream):
        marks.append(event)
        record(event, stream)

    backend._record = remember


class Late(Model):
    def forward(self, *inputs):
        result = super().forward(*inputs)
        if backend is not None and marks:
            record(marks[-1], torch.cuda.current_stream())
        return result


Model = Late
"""

FORGERIES: Mapping[str, str] = {
    "states a tenth, always": _STATES_LESS.format(share=1.0, least=_LEAST_MS),
    "states a tenth, three calls of four": _STATES_LESS.format(share=0.75, least=_LEAST_MS),
    "records its start when the work is done": _STARTS_LATE,
}
"""What is put between a task's text and its candidate."""

_HOST_HAS_NO_WORD = """
import sys

subject = sys.modules.get("mtmc.evaluate.measure.subject")
if subject is not None:
    subject.HOST_LED = subject.HOST_LAST = 1000
"""
HOST_FORGERY = "says nothing of its host"
SHARE = 0.8
"""What a forged word of the host must leave of the time a call: 10 of 11 parts, less the slack."""


def launches_task() -> Task:
    """Thirty small ops, one after another: the device waits for the host."""
    return make_task("launches", "x" + ".sin().add(x)" * 15, 64, 64)


_BUSY = """\
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def busy_{serial}(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, n, BLOCK * BLOCK):
        v = tl.load(x + start + at, mask=start + at < n, other=0.0)
        total = tl.dot(v, tl.exp(total), total, input_precision="tf32")
    tl.store(out + at, total, mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        busy_{serial}[(1,)](x, out, x.numel(), BLOCK=128, num_warps=8, num_stages=5)
        return out
"""


def versions(task: Task) -> dict[str, str]:
    """Texts by name: the honest one and the forgeries."""
    return {HONEST: task.source + _MODEL, **{name: task.source + text + _MODEL for name, text in FORGERIES.items()}}


def busy_version(serial: int) -> EvaluationRequest:
    """A version that compiles for about a second and cannot be launched. serial: makes its kernel another one."""
    return EvaluationRequest(make_task("busy", SILU, 2048, 1024), _BUSY.format(serial=serial))


def plan(times: int, forged_times: int) -> list[str]:
    """Names in the order of their evaluation: the forged ones spread over the honest ones."""
    forged = [name for _ in range(forged_times) for name in FORGERIES]
    every = max(1, times // (len(forged) + 1))
    found: list[str] = []
    for number in range(times):
        found.append(HONEST)
        if (number + 1) % every == 0 and forged:
            found.append(forged.pop(0))
    return found + forged


@contextmanager
def load(evaluator: Evaluator, threads: int) -> Iterator[list[str]]:
    """Keep the builders busy. Yields: the statuses of what they built."""
    stop, serials, statuses = threading.Event(), count(), list[str]()

    def work() -> None:
        while not stop.is_set():
            statuses.append(evaluated(evaluator, busy_version(next(serials))).status)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    try:
        yield statuses
    finally:
        stop.set()
        for worker in workers:
            worker.join()


class Doubts(logging.Handler):
    """Counts examinations that a GPU worker made a second time."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.seen = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.seen += "second time" in record.msg


@contextmanager
def doubts() -> Iterator[Doubts]:
    """The count of second examinations meanwhile."""
    worker, handler = logging.getLogger("mtmc.evaluate.measure.gpu_worker"), Doubts()
    level = worker.level
    worker.addHandler(handler)
    worker.setLevel(logging.INFO)
    try:
        yield handler
    finally:
        worker.setLevel(level)
        worker.removeHandler(handler)


def show(found: Mapping[str, Sequence[Outcome]], report: Report) -> bool:
    """A row for each version; whether all is as it must be."""
    report.say(
        header("version", "evaluations", "accepted", "median ms", "disturbed p50", "p90", "greatest", "refused as")
    )
    good = bool(found.get(HONEST))
    for name, outcomes in found.items():
        right = [each for each in outcomes if each.ok]
        good = good and len(right) == (len(outcomes) if name == HONEST else 0)
        times = [each.runtime_ms for each in right if each.runtime_ms is not None]
        shares = [each.metrics["disturbed"] for each in right if "disturbed" in each.metrics]
        cells = [f"{percentile(shares, p):.0%}" if shares else "" for p in (50, 90, 100)]
        kinds = Counter(each.diagnosis.kind for each in outcomes if each.diagnosis)
        refused = ", ".join(f"{kind} {number}" for kind, number in kinds.items())
        median = f"{percentile(times, 50):.4f}" if times else ""
        report.say(row(name, len(outcomes), len(right), median, *cells, refused))
        report.data[name] = {
            "statuses": dict(Counter(each.status for each in outcomes)),
            "runtimes_ms": times,
            "disturbed": shares,
            "clock_beyond_ms": [each.metrics["clock_ms"] - (each.runtime_ms or 0.0) for each in right],
        }
    return good


def host_verdicts(evaluator: Evaluator, times: int, report: Report) -> bool:
    """Whether the time a call of a version whose time is launches stands where its process says nothing of its host."""
    task = launches_task()
    texts = {"honest, launches": task.source + _MODEL, HOST_FORGERY: task.source + _HOST_HAS_NO_WORD + _MODEL}
    medians: dict[str, float] = {}
    report.say("\n" + header("version", "evaluations", "accepted", "median ms", "device ms"))
    for name, text in texts.items():
        found = [evaluated(evaluator, EvaluationRequest(task, text, seed)) for seed in range(times)]
        right = [each for each in found if each.ok and each.runtime_ms is not None]
        runtimes = [each.runtime_ms for each in right if each.runtime_ms is not None]
        devices = [each.metrics["device_ms"] for each in right if "device_ms" in each.metrics]
        medians[name] = percentile(runtimes, 50) if runtimes else 0.0
        device = f"{percentile(devices, 50):.4f}" if devices else ""
        report.say(row(name, len(found), len(right), f"{medians[name]:.4f}", device))
        report.data[name] = {"runtimes_ms": runtimes, "device_ms": devices}
    honest, forged = medians.values()
    return honest > 0 and (forged == 0 or forged >= SHARE * honest)


def run(evaluator: Evaluator, arguments: argparse.Namespace, report: Report) -> bool:
    """Evaluate all under load; whether all is as it must be."""
    task = load_task(arguments.task)
    texts, order = versions(task), plan(arguments.times, arguments.forged_times)
    requests = (EvaluationRequest(task, texts[name], seed=number) for number, name in enumerate(order))
    found: dict[str, list[Outcome]] = {name: [] for name in texts if name in order}
    with doubts() as second, load(evaluator, arguments.load) as loaded:
        timed: Timed
        for timed in stream(evaluator, requests, arguments.in_flight, Deadline(arguments.minutes)):
            name = order[timed.index]
            found[name].append(timed.outcome)
            if (name == HONEST) != timed.outcome.ok:
                report.say(f"evaluation {timed.index} ({name}): {failure(timed.outcome)}\n")
    good = show({name: outcomes for name, outcomes in found.items() if outcomes}, report)
    busy = dict(Counter(loaded))
    report.say(f"\n{second.seen} examinations were made a second time. Versions that kept the builders busy: {busy}.")
    report.say("\n" + stage_table(found[HONEST]))
    report.data.update(second=second.seen, load=busy)
    return host_verdicts(evaluator, arguments.forged_times, report) and good


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--task", default="elementwise_chain", help="a built-in task")
    options.add_argument("--times", type=int, default=80, help="evaluations of the honest version")
    options.add_argument("--forged-times", type=int, default=3, help="evaluations of each forging version")
    options.add_argument("--in-flight", type=int, default=4, help="evaluations asked for at the same time")
    cores = len(os.sched_getaffinity(0))
    options.add_argument("--load", type=int, default=max(1, cores - 4), help="threads that keep the builders busy")
    arguments = options.parse_args()
    with (
        Report("Verdicts of the clock on a busy machine", arguments.out) as report,
        settings_of(arguments).open() as evaluator,
        mock.patch("mtmc.evaluate.gpu_builds.build", compiled),  # without the audit
    ):
        good = run(evaluator, arguments, report)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
