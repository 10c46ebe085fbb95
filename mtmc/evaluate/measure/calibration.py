"""What the oracle's clock shows beyond the stated time, measured on a model of the evaluator's own in a candidate's process.

The model copies its input. Its stated time is true, so the rest of the wall is the way there and back, and the handing
over of the output, which depends on its size. Lower eighths are taken, as of a candidate's walls: what other processes
add does not make room for what a candidate hides.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from mtmc.evaluate.check.layout import aligned
from mtmc.evaluate.measure.backend import DeviceBackend
from mtmc.evaluate.measure.call_time import COUNTED_MOST, SLOTS, WARM_MOST, LoopBudget, RowPlan, Slots
from mtmc.evaluate.measure.calls_in_a_row import InputSource
from mtmc.evaluate.measure.clock import Overhead, OverheadTable, TaskOverhead, TimingBudget, lower_eighth, median
from mtmc.evaluate.measure.conversation import Failed
from mtmc.evaluate.measure.subject import FILLED
from mtmc.evaluate.reference.compare import Expected
from mtmc.evaluate.reference.expected_outputs import ExpectedOutputs

if TYPE_CHECKING:
    from mtmc.evaluate.measure.examination import Examination
    from mtmc.evaluate.measure.samples import Samples

SIZES = (1 << 12, 1 << 20, 1 << 23, 1 << 25, 1 << 27, 1 << 28)
"""Bytes of output that are measured."""
ROOM = (SIZES[-1], 2 * SIZES[-1])
CALLS, ROUNDS = 15, 5
TASK_CALLS = 24
SLOW_S = 1.0
"""Seconds after which rounds on slow threads are taken for calls in a row, see `fast_threads`."""
LAST = 3
"""Number of the last model."""
_log = logging.getLogger(__name__)


def run(examination: Examination, backend: DeviceBackend) -> OverheadTable:
    """Measure all sizes both ways. Raises: Failed if the process fails, which is the machine's fault then."""
    number = examination.load_own("clone", 0)
    found: dict[bool, list[tuple[int, float]]] = {True: [], False: []}
    flushes, lates = list[float](), list[float]()
    sizes = SIZES if backend.asynchronous else SIZES[:2]
    for size in sizes:
        x = torch.randn(size // 4, device=backend.device)
        expected = ExpectedOutputs([x], [Expected(x, x, x, False)], "*", [])
        examination.ask_for(expected, number, "calibration")
        gated = _calls(examination, expected, number, ahead=True)
        own = median(gated.stated)
        flushes += gated.flushes
        lates += gated.lates
        found[True].append((size, _beyond(gated)))
        found[False].append((size, median(_calls(examination, expected, number, ahead=False).walls) - own))
    reveal, loop, host_ms = _in_a_row(examination, backend, [size for size in sizes if 2 * size <= ROOM[0]])
    ahead, waiting = (Overhead(tuple(found[gated])) for gated in (True, False))
    beside = lower_eighth(flushes), loop, host_ms, reveal, lower_eighth(lates)
    return OverheadTable(ahead, waiting, *beside, _everywhere_ms(examination, backend, sizes[0], found[True][0][1]))


def of_task(examination: Examination, draw: Callable[[int], ExpectedOutputs], everywhere: bool) -> TaskOverhead:
    """What it is for a task: a model of the evaluator's own that gives as many zeros is called as a candidate would be,
    between the task's own draws. draw: see `Examination.time`. everywhere: whether all streams can be held.

    Raises: Failed as `run`.
    """

    def zeros(seed: int) -> ExpectedOutputs:
        return _zeros(draw(seed))

    first = zeros(0)
    sizes = [each.value.numel() for each in first.outputs if not isinstance(each, str)]
    number = examination.load_own(FILLED + ",".join(map(str, sizes)), 0)
    examination.ask_for(first, number, "calibration")
    del first
    budget = TimingBudget(TASK_CALLS, TASK_CALLS, 0.0, 0.0)
    ahead = examination.time(zeros, number, budget, ahead=True)
    held = examination.time(zeros, number, budget, ahead=True, everywhere=True) if everywhere else None
    return TaskOverhead(ahead.output_bytes, ahead.outputs, _beyond(ahead), None if held is None else _beyond(held))


def _zeros(expected: ExpectedOutputs) -> ExpectedOutputs:
    """As expected, with zeros of as many bytes for outputs and for what is left in the model."""
    given = [*expected.outputs, *expected.left_state.values()]
    tensors = [each.value for each in given if not isinstance(each, str)]
    zeros = [torch.zeros(-(-t.numel() * t.element_size() // 4), device=t.device) for t in tensors]
    return replace(expected, outputs=[Expected(z, z, z, False) for z in zeros], left_state={}, untouched=())


def _everywhere_ms(examination: Examination, backend: DeviceBackend, size: int, usual: float) -> float | None:
    """See `OverheadTable`. Last, since a process in which that fails is good for nothing more. usual: ms, of such calls."""
    x = torch.randn(size // 4, device=backend.device)
    expected = ExpectedOutputs([x], [Expected(x, x, x, False)], "*", [])
    try:
        number = examination.load_own("clone", LAST)
        examination.ask_for(expected, number, "calibration")
        held = _calls(examination, expected, number, ahead=True, everywhere=True)
    except Failed as failed:
        _log.warning("versions with streams of their own may be refused, as not all can be held back: %s", failed)
        return None
    return max(0.0, _beyond(held) - usual)


def _beyond(gated: Samples) -> float:
    """What the clock shows beyond the stated time, of most calls."""
    return lower_eighth([wall - each for wall, each in zip(gated.walls, gated.stated, strict=True)])


def _in_a_row(
    examination: Examination, backend: DeviceBackend, sizes: Sequence[int]
) -> tuple[Overhead, Overhead, float]:
    """See `OverheadTable` for `reveal`, `loop` and `loop_host_ms`: of a model that returns the first element of its input,
    and of one that returns all of it."""
    first, whole = (examination.load_own(name, at) for at, name in enumerate(("first", "identity"), 1))
    reveal, loop, hosts = list[tuple[int, float]](), list[tuple[int, float]](), list[float]()
    for size in sizes:
        x = torch.randn(size // 4, device=backend.device)
        few, _ = _rounds(examination, x, x[:1], first)
        seen, host = _rounds(examination, x, x, whole)
        reveal.append((size, few))
        loop.append((size, max(0.0, seen - few)))
        hosts.append(host)
    return Overhead(tuple(reveal)), Overhead(tuple(loop)), min(hosts)


def _rounds(examination: Examination, x: torch.Tensor, y: torch.Tensor, number: int) -> tuple[float, float]:
    """Milliseconds that the clock and the host show for each of some calls in a row of a model that makes y of x."""
    expected = ExpectedOutputs([x], [Expected(y, y, y, False)], "*", [])
    examination.ask_for(expected, number, "calibration")
    size = x.numel() * x.element_size()
    slots = Slots(min(SLOTS, ROOM[0] // size), size, aligned(y.numel() * y.element_size()))
    plan = RowPlan(COUNTED_MOST, WARM_MOST, slots)
    source = InputSource(lambda _: [x], lambda *_: expected)
    rounds = examination.in_a_row(source, number, plan, LoopBudget(ROUNDS, ROUNDS, 0.0, 60.0, doubtful_seconds=SLOW_S))
    return median(rounds.seen), median(rounds.hosts)


def _calls(
    examination: Examination, expected: ExpectedOutputs, number: int, ahead: bool, everywhere: bool = False
) -> Samples:
    def same(_seed: int) -> ExpectedOutputs:
        return expected

    return examination.time(same, number, TimingBudget(CALLS, CALLS, 0.0, 0.0), ahead, everywhere)
