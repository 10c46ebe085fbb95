"""Timing validation: from timed calls to a runtime, and whether it holds: the oracle's clock, the device, the profiler."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from mtmc.evaluate.measure.call_time import CallTime
from mtmc.evaluate.measure.clock import (
    OverheadTable,
    TimingBudget,
    disturbed_share,
    floor_ms,
    hidden_ms,
    lower_eighth,
    median,
    summarize,
)
from mtmc.evaluate.measure.conversation import Failed
from mtmc.evaluate.measure.questions import Measured
from mtmc.evaluate.measure.reference_state import Work
from mtmc.evaluate.measure.samples import Samples
from mtmc.evaluate.measure.wire import Profiled
from mtmc.hardware import Hardware
from mtmc.outcome import Diagnosis

FLOOR_SHARE = 0.9
"""A time below this share of the floor is refused."""
BUSY_FACTOR, BUSY_MS = 2.0, 0.05
"""The oracle's own work beside a candidate that waits takes at most so much longer."""
LATE_MS = 0.3
"""How much longer than usual, and twice that, the last piece of the inputs may take: contexts take turns on the device, and
who has a kernel there holds it for a millisecond or so."""
BEHIND_MS = 0.004
"""What other streams may do when a call's own stream is done; a wait for them that finds nothing to wait for can look like
that. It counts as time of the call."""
SECOND_LOOK = TimingBudget(least=24, most=100, precision=0.0, seconds=0.5)
"""Calls that are timed anew where the first ones are in doubt: what disturbs a few milliseconds is over by then."""
CHARGED_SHARE = 0.05
"""Part of its time that a version may leave unexplained and is charged for, where it was examined again and again: on a
busy machine 3 of 100 calls of 2 to 20 ms show 0.04 to 0.13 ms more by the oracle's clock (H100, twelve searches)."""
SCREENED_SHARE = 0.02
"""The same of one that is screened, at once: to look again takes seconds, and stops what is built beside it. What would be
the best version is verified, where it is looked at again."""
SOME_WORK_MS = 2e-3
"""A stated time above which the profiler must have seen something."""


def runtime(samples: Samples, eager: list[float], work: Work, overheads: OverheadTable, gpu: Hardware) -> Measured:
    """The time of one call with its interval and metrics: what the device takes, behind the gate.

    Of calls whose host code waits for the device, host time is a part, so the oracle's clock alone can tell it.
    """
    overhead = _overhead_ms(samples, overheads)
    clocks = [max(wall - overhead, 0.0) for wall in samples.walls]
    timing = summarize(samples.stated if samples.ahead else clocks)
    metrics = {
        "waits_for_device": 0.0 if samples.ahead else 1.0,
        "clock_ms": (lower_eighth if samples.ahead else median)(samples.walls) - overhead,
        "bytes_min": float(work.input_bytes + work.weight_bytes + work.output_bytes),
        "dot_flops": float(work.flops),
    }
    if samples.ahead:
        metrics["disturbed"] = disturbed_share(samples.walls, samples.stated, overhead)
    if timing.median_ms > 0:
        metrics["roofline"] = work.least_ms(gpu) / timing.median_ms
        metrics["achieved_gbs"] = metrics["bytes_min"] / timing.median_ms / 1e6
        metrics["achieved_tflops"] = work.flops / timing.median_ms / 1e9
    if eager:
        metrics["eager_ms"] = median(eager)
    return Measured(timing, metrics)


def as_called(found: Measured, called: CallTime, eager_hosts: Sequence[float], cuda_graph: bool) -> Measured:
    """The runtime that a version's user has: the larger of device and host time for each of many calls, or the device's
    alone where the task is called under a CUDA graph. The reference's in the same way.

    found: of `runtime`. eager_hosts: of the reference, see `ReferenceClock`.
    """
    device_ms = found.timing.median_ms
    timing = found.timing if cuda_graph else called.timing
    metrics = {**found.metrics, "device_ms": device_ms, "host_ms": called.host_ms, "call_ms": called.timing.median_ms}
    if "roofline" in metrics and timing.median_ms > 0:
        metrics["roofline"] *= device_ms / timing.median_ms
    if "eager_ms" in metrics:
        metrics["eager_device_ms"] = metrics["eager_ms"]
        if eager_hosts:
            metrics["eager_host_ms"] = lower_eighth(eager_hosts)
            if not cuda_graph:
                metrics["eager_ms"] = max(metrics["eager_ms"], metrics["eager_host_ms"])
    return replace(found, timing=timing, metrics=metrics)


def timed(
    time: Callable[[TimingBudget, bool], Samples],
    budget: TimingBudget,
    overheads: OverheadTable,
    quiet: Callable[[], AbstractContextManager[None]] = nullcontext,
    charge: float = 0.0,
) -> Samples:
    """The samples to be judged: more of them where the first ones are in doubt, with all streams behind the gate. time:
    takes them, see `Examination.time` for its budget and "everywhere". quiet: while it is open, nothing else is done on the
    machine: a process that makes its context beside the first calls would be in the way of these, too. charge: the part of
    its time that a version is going to be charged for where it is not explained, so that nobody looks again.

    A candidate that notices the second look gains nothing: the same bound holds for the calls of that one.
    """
    samples = time(budget, False)
    if doubt(charged(samples, overheads, charge)[0], overheads) is None:
        return samples
    with quiet():
        return time(SECOND_LOOK, overheads.everywhere_ms is not None)


def doubt(samples: Samples, overheads: OverheadTable) -> Failed | None:
    """Whether the oracle's clock or the device contradict the stated times: kind WorkLeftBehind, WorksAhead or HiddenTime.

    A version could be at work before some of its calls, so that the clock shows little, and forge the times of the others.
    So calls before which the device was busy do not count for the clock, and they must not be more than half. A second
    stream that waits for the first one, behind the gate, looks as if it were at work (the device goes over to it for a turn
    of two milliseconds). Where all streams stood still until the gate opened, nothing was at work, and that does not count.
    What a version leaves to other streams counts as its time; it may leave as much as the reference does.
    Of calls that were not enqueued there is no doubt: the clock alone tells their time.
    """
    behind = median(samples.behind) if samples.behind else 0.0
    if behind > BEHIND_MS + samples.reference_behind:
        return _rejected(
            "WorkLeftBehind",
            f"other streams are at work for {behind:.4f} ms after the forward's own is done: let the stream that called the "
            "forward wait for them (torch.cuda.current_stream().wait_stream(...))",
        )
    if not samples.ahead:
        return None
    flush, usual = median(samples.flushes), overheads.flush_ms
    if flush > _most_flush_ms(overheads):
        return _rejected(
            "WorksAhead",
            f"the evaluator's own work before a call took {flush:.3f} ms instead of {usual:.3f}: the version uses the "
            "device before its inputs are released",
        )
    late = median(samples.lates)
    if late > _latest_ms(samples, overheads):
        return _rejected(
            "WorksAhead",
            f"writing the last piece of the inputs took {late:.3f} ms instead of {overheads.late_ms:.3f}: the version uses "
            "the device before its inputs are released",
        )
    walls, stated = _walls_that_count(samples, overheads), median(samples.stated)
    calls = len(samples.walls)
    busy = calls - len(walls)
    if 2 * busy > calls:  # by one of the two before less than half of the calls, by the one or the other before more
        return _rejected(
            "WorksAhead",
            f"the device was at work before {busy} of {calls} calls: the version uses it before its inputs are released",
        )
    hidden = hidden_ms(walls, samples.stated, _overhead_ms(samples, overheads))
    if hidden > 0:
        return _rejected(
            "HiddenTime",
            f"the device events tell {stated:.4f} ms a call, the evaluator's own clock {stated + hidden:.4f} ms or more in "
            f"seven of eight of {len(walls)} calls: work outside of the timed interval, or a forged time",
        )
    return None


def charged(samples: Samples, overheads: OverheadTable, share: float = CHARGED_SHARE) -> tuple[Samples, float]:
    """Samples whose stated times explain the oracle's clock, and what was added to each, in milliseconds: nothing where
    they do already, or where that would be more than a share of the whole.

    The clock is the oracle's own, so nobody gains by it: what was hidden, or what the machine did beside it, counts now.
    """
    if not samples.ahead:
        return samples, 0.0
    walls = _walls_that_count(samples, overheads)
    hidden = hidden_ms(walls, samples.stated, _overhead_ms(samples, overheads)) if walls else 0.0
    if hidden > share * (median(samples.stated) + hidden):
        return samples, 0.0
    return replace(samples, stated=[each + hidden for each in samples.stated]), hidden


def _most_flush_ms(overheads: OverheadTable) -> float:
    return BUSY_FACTOR * overheads.flush_ms + BUSY_MS


def _latest_ms(samples: Samples, overheads: OverheadTable) -> float:
    return math.inf if samples.everywhere else BUSY_FACTOR * overheads.late_ms + LATE_MS


def _walls_that_count(samples: Samples, overheads: OverheadTable) -> list[float]:
    """By the oracle's clock, of calls before which the device was not busy."""
    most, latest = _most_flush_ms(overheads), _latest_ms(samples, overheads)
    own = zip(samples.walls, samples.flushes, samples.lates, strict=True)
    return [wall for wall, flushed, written in own if flushed <= most and written <= latest]


def _overhead_ms(samples: Samples, overheads: OverheadTable) -> float:
    """What the clock shows beyond the time of such calls."""
    known = overheads.of(samples.ahead).ms(samples.output_bytes, samples.outputs)
    return known + ((overheads.everywhere_ms or 0.0) if samples.ahead and samples.everywhere else 0.0)


def validate(
    samples: Samples,
    found: Measured,
    overheads: OverheadTable,
    gpu: Hardware,
    work: Work,
    mattering: Callable[[], int],
) -> None:
    """Hold a runtime against the oracle's clock and the device. found: of `runtime`. work: of the task. mattering: bytes of
    the inputs that its result hangs on, asked for where the time is too short for all that the reference reads.

    Raises: Failed ("rejected") with kind WorkLeftBehind, WorksAhead, HiddenTime or FasterThanMemory.
    """
    doubtful = doubt(samples, overheads)
    if doubtful is not None:
        raise doubtful
    stated, eager = found.timing.median_ms, found.metrics.get("eager_ms")
    # Of another draw there may be less, where numbers in memory say how much there is.
    read = min(work.input_bytes, samples.input_bytes)
    written = min(work.output_bytes, samples.output_bytes + samples.changed_bytes)

    def impossible(read: int) -> float | None:
        floor = floor_ms(read, written, gpu.l2_bytes, gpu.dram_gbs)
        return floor if stated < FLOOR_SHARE * floor and (eager is None or eager > floor) else None

    if impossible(read) is None:
        return
    read = min(read, mattering())
    if (floor := impossible(read)) is not None:
        raise _rejected(
            "FasterThanMemory",
            f"{stated:.4f} ms is less than {FLOOR_SHARE:g} of the {floor:.4f} ms that reading {read} bytes of the inputs "
            f"and writing {written} of the outputs once takes on this GPU ({gpu.dram_gbs:g} GB/s): some of it was not done",
        )


def profiler_check(seen: Profiled, samples: Samples) -> dict[str, float]:
    """What the profiler says of a forward, which must not contradict its time.

    Returns: metrics "profiled_ms" and "activities", each with what handing over the outputs adds. Raises: Failed.
    """
    if seen.count <= samples.outputs + samples.kept and median(samples.stated) > SOME_WORK_MS:
        message = (
            f"the profiler saw {seen.count:g} device activities a call, no more than handing over the outputs takes"
        )
        raise _rejected("NoDeviceWork", message, "verify")
    return {"profiled_ms": seen.busy_ms, "activities": seen.count}


def _rejected(kind: str, message: str, stage: str = "time") -> Failed:
    return Failed("rejected", Diagnosis(stage, kind, message))
