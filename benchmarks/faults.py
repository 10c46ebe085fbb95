"""Honest versions with faulty ones among them: does each get the right status, and is nothing else disturbed?

    PYTHONPATH=. python benchmarks/faults.py --limit 200 --out results/faults

The faults are those of `fault_kinds.py`, equally many of each kind, in an order that the seed draws, several evaluations
asked for at a time. An honest evaluation must end "ok" with a time of the device within 2% of the median of the other runs
of the same version, and a runtime within 15%: of these small kernels the host decides that, and a rented one has neighbours.
When the evaluator is closed no process that it started may be left, orphans included (they fall to this
process), and the GPUs' used memory must be what it was. Exit status 1 if any of it does not hold.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice

import psutil

from benchmarks.common import EVALUATOR, Deadline, Report, Timed, failure, gpu_query, parser, settings_of, stream
from benchmarks.fault_kinds import FAULTS, faulty, task
from benchmarks.figures import header, percentile, row
from benchmarks.workloads import Case, small_versions
from mtmc.protocols import EvaluationRequest, Evaluator

HONEST = "honest"
BAND, CALL_BAND = 0.02, 0.15
MEMORY_BAND_MIB = 64
LEAVING_S = 10.0
"""How long processes and memory are given to go away after the evaluator is closed."""
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Item:
    """One evaluation of the mix. kind: of fault, or `HONEST`. version: which honest one, or the fault's serial number."""

    kind: str
    version: int


def mix(count: int, share: float, seed: int, kinds: Sequence[str], honest: int) -> list[Item]:
    """`count` evaluations, `share` of them faults, equally many of each kind (the first kinds one more), shuffled."""
    faults = [Item(kind, serial) for serial, kind in enumerate(islice(cycle(kinds), round(count * share)))]
    rest = [Item(HONEST, number % honest) for number in range(count - len(faults))]
    items = faults + rest
    random.Random(seed).shuffle(items)
    return items


def deviations(runtimes: Sequence[float]) -> list[float]:
    """Of each runtime from the median of the others, as a fraction of that; [] where there are fewer than two."""
    if len(runtimes) < 2:
        return []
    found = []
    for index, value in enumerate(runtimes):
        others = statistics.median([*runtimes[:index], *runtimes[index + 1 :]])
        found.append(abs(value - others) / others)
    return found


def honest_versions() -> list[Case]:
    """Three right versions of about 50 us on an H100."""
    return list(small_versions(3, rows=8192, cols=2048))


def adopt_orphans() -> None:
    """Make processes whose parent has ended children of this one, so that none escapes the count (Linux)."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "this process cannot adopt orphans: run on Linux")


def left_processes(seconds: float) -> list[str]:
    """Command lines of processes below this one that live `seconds` from now, or less long if all are gone earlier."""
    me = psutil.Process()
    end = time.monotonic() + seconds
    while True:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:  # adopted ones that have ended are ours to bury
                pass
        found = []
        for child in me.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if child.status() != psutil.STATUS_ZOMBIE:
                    found.append(" ".join(child.cmdline())[:120] or child.name())
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.2)


def used_memory() -> list[int]:
    """MiB in use on each GPU."""
    return [int(text) for text in gpu_query("memory.used") if text.isdigit()]


def memory_left(before: Sequence[int], seconds: float) -> list[int]:
    """MiB more than `before` on each GPU, as soon as it is within `MEMORY_BAND_MIB`, at the latest in `seconds`."""
    end = time.monotonic() + seconds
    while True:
        more = [now - then for now, then in zip(used_memory(), before, strict=True)]
        if max(more, default=0) <= MEMORY_BAND_MIB or time.monotonic() > end:
            return more
        time.sleep(0.5)


def run(evaluator: Evaluator, items: Sequence[Item], arguments: argparse.Namespace, report: Report) -> list[Timed]:
    """Evaluate the mix; wrong statuses are said at once. An evaluator that fails itself is wrong whatever the version."""
    honest = honest_versions()
    deadline = Deadline(arguments.minutes)
    requests = []
    for number, item in enumerate(items):
        case = honest[item.version] if item.kind == HONEST else Case(task(), faulty(item.kind, item.version))
        requests.append(EvaluationRequest(case.task, case.source, seed=arguments.seed + number))
    found = []
    for timed in stream(evaluator, requests, arguments.in_flight, deadline):
        found.append(timed)
        item = items[timed.index]
        if not right(item, timed):
            report.say(f"wrong status for {item.kind}: {failure(timed.outcome)} after {timed.seconds:.1f} s\n")
        if len(found) % 10 == 0:
            print(f"{len(found)} of {len(items)} after {timed.ended:.1f} s", flush=True)
    return found


def right(item: Item, timed: Timed) -> bool:
    """Whether an evaluation got a status that is right for it."""
    if timed.outcome.diagnosis is not None and timed.outcome.diagnosis.stage == EVALUATOR:
        return False
    return timed.outcome.ok if item.kind == HONEST else timed.outcome.status in FAULTS[item.kind].statuses


def summarize(items: Sequence[Item], found: Sequence[Timed], report: Report) -> bool:
    """The two tables; whether everything in them is as it should be."""
    report.say(header("kind", "evaluations", "right status", "statuses", "found at", "median s", "greatest s"))
    good = True
    for kind in dict.fromkeys(item.kind for item in sorted(items, key=lambda each: each.kind)):
        own = [timed for timed in found if items[timed.index].kind == kind]
        if not own:
            continue
        count = sum(right(items[timed.index], timed) for timed in own)
        good &= count == len(own)
        statuses = ", ".join(f"{name} {n}" for name, n in Counter(t.outcome.status for t in own).items())
        places = Counter(f"{d.stage}/{d.kind}" for t in own if (d := t.outcome.diagnosis) is not None)
        at = ", ".join(f"{place} {n}" for place, n in places.items())
        seconds = [timed.seconds for timed in own]
        middle, most = statistics.median(seconds), max(seconds)
        report.say(row(kind, len(own), count, statuses, at, f"{middle:.2f}", f"{most:.2f}"))
    return disturbances(items, found, report) and good


def disturbances(items: Sequence[Item], found: Sequence[Timed], report: Report) -> bool:
    """The table of honest times; whether all lie within the bands."""
    report.say("\n" + header("honest version", "of", "runs", "median ms", "greatest deviation", "p90", "within"))
    report.data["honest"] = {}
    good = True
    for number, case in enumerate(honest_versions()):
        own = [t.outcome for t in found if items[t.index] == Item(HONEST, number) and t.outcome.runtime_ms is not None]
        devices = [float(each.metrics.get("device_ms", each.runtime_ms or 0.0)) for each in own]
        calls = [each.runtime_ms or 0.0 for each in own]
        for what, times, band in (("device", devices, BAND), ("call", calls, CALL_BAND)):
            off = deviations(times)
            if not off:
                continue
            within = sum(each <= band for each in off)
            good &= within == len(off)
            cells = [f"{statistics.median(times):.5f}", f"{max(off):.2%}", f"{percentile(off, 90):.2%}"]
            report.say(row(case.task.name, what, len(off), *cells, f"{band:.0%}: {within} of {len(off)}"))
        report.data["honest"][case.task.name] = {"device_ms": devices, "call_ms": calls}
    return good


def check_leftovers(before: Sequence[int], report: Report) -> bool:
    """After the evaluator is closed: whether processes and GPU memory are as before."""
    left = left_processes(LEAVING_S)
    report.say(f"\nProcesses left: {len(left)}{''.join(f'; {name}' for name in left)}.")
    report.data["processes_left"] = left
    if not before:
        report.say("GPU memory was not looked at: this machine has no NVIDIA GPU.")
        return not left
    more = memory_left(before, LEAVING_S)
    report.say(f"GPU memory in use before: {', '.join(map(str, before))} MiB; after, more than that: {more} MiB.")
    report.data["gpu_memory_more_mib"] = more
    return not left and max(more) <= MEMORY_BAND_MIB


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--limit", type=int, default=200, help="evaluations in all")
    options.add_argument("--share", type=float, default=0.36, help="of them faults")
    options.add_argument("--in-flight", type=int, default=16, help="evaluations asked for at the same time")
    options.add_argument("--kinds", nargs="*", choices=list(FAULTS), default=list(FAULTS), metavar="KIND")
    options.add_argument("--timeout", type=float, default=10.0, help="the evaluator's timeout_s: endless ones cost it")
    arguments = options.parse_args()
    adopt_orphans()
    before = used_memory()
    items = mix(arguments.limit, arguments.share, arguments.seed, arguments.kinds, len(honest_versions()))
    good = False
    with Report("Faults among honest evaluations", arguments.out) as report:
        with settings_of(arguments, timeout_s=arguments.timeout).open() as evaluator:
            found = run(evaluator, items, arguments, report)
            good = summarize(items, found, report) and len(found) == len(items)
        good &= check_leftovers(before, report)
        report.data["evaluations"] = [
            [items[t.index].kind, items[t.index].version, t.outcome.status, t.outcome.runtime_ms, round(t.ended, 2)]
            for t in found
        ]
        report.data["holds"] = good
        total = max((t.ended for t in found), default=0.0)
        report.say(f"\n{len(found)} of {len(items)} evaluations in {total:.1f} s. Everything holds: {good}.")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
