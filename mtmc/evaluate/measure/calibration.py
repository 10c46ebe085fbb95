"""What the oracle's clock shows beyond the stated time, measured on a model of the evaluator's own in a candidate's process.

The model copies its input. Its stated time is true, so the rest of the wall is the way there and back, and the handing
over of the output, which depends on its size. Lower eighths are taken, as of a candidate's walls: what other processes
add does not make room for what a candidate hides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from mtmc.evaluate.measure.backend import DeviceBackend
from mtmc.evaluate.measure.call_time import COUNTED_MOST, SLOTS, LoopBudget, Slots
from mtmc.evaluate.measure.clock import Overhead, OverheadTable, TimingBudget, lower_eighth, median
from mtmc.evaluate.reference.compare import Expected
from mtmc.evaluate.reference.reference import ExpectedOutputs

if TYPE_CHECKING:
    from mtmc.evaluate.measure.examination import Examination, Samples

SIZES = (1 << 12, 1 << 20, 1 << 23, 1 << 25, 1 << 27, 1 << 28)
"""Bytes of output that are measured."""
ROOM = (SIZES[-1], SIZES[-1])
CALLS, ROUNDS = 15, 5


def run(examination: Examination, backend: DeviceBackend) -> OverheadTable:
    """Measure all sizes both ways. Raises: Failed if the process fails, which is the machine's fault then."""
    number = examination.load_own("clone", 0)
    found: dict[bool, list[tuple[int, float]]] = {True: [], False: []}
    flushes: list[float] = []
    sizes = SIZES if backend.asynchronous else SIZES[:2]
    for size in sizes:
        x = torch.randn(size // 4, device=backend.device)
        expected = ExpectedOutputs([x], [Expected(x, x, x, False)], "*", [])
        examination.ask_for(expected, number, "calibration")
        gated = _calls(examination, expected, number, ahead=True)
        own = median(gated.stated)
        flushes += gated.flushes
        beyond = [wall - each for wall, each in zip(gated.walls, gated.stated, strict=True)]
        found[True].append((size, lower_eighth(beyond)))
        found[False].append((size, median(_calls(examination, expected, number, ahead=False).walls) - own))
    loops, host_ms = _in_a_row(examination, backend, sizes)
    return OverheadTable(
        Overhead(tuple(found[True])), Overhead(tuple(found[False])), lower_eighth(flushes), loops, host_ms
    )


def _in_a_row(examination: Examination, backend: DeviceBackend, sizes: Sequence[int]) -> tuple[Overhead, float]:
    """Milliseconds that handing over takes of each of some calls in a row, and of that on the host: of a model that returns
    its input."""
    number, points, hosts = examination.load_own("identity", 1), list[tuple[int, float]](), list[float]()
    for size in sizes:
        x = torch.randn(size // 4, device=backend.device)
        expected = ExpectedOutputs([x], [Expected(x, x, x, False)], "*", [])
        examination.ask_for(expected, number, "calibration")
        slots = Slots(max(1, min(SLOTS, ROOM[0] // size)), size, size)
        budget = LoopBudget(ROUNDS, ROUNDS, 0.0, 60.0)
        rounds = examination.in_a_row(lambda _, own=expected: own, number, COUNTED_MOST, budget, slots)  # type: ignore[misc]
        points.append((size, median(rounds.seen)))
        hosts.append(median(rounds.hosts))
    return Overhead(tuple(points)), min(hosts)


def _calls(examination: Examination, expected: ExpectedOutputs, number: int, ahead: bool) -> Samples:
    def same(_seed: int) -> ExpectedOutputs:
        return expected

    return examination.time(same, number, TimingBudget(CALLS, CALLS, 0.0, 0.0), ahead)
