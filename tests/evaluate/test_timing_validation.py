"""Which stated times pass: hand-made samples against the clock, the device and the profiler."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from mtmc.evaluate.measure import calibration
from mtmc.evaluate.measure.call_time import LoopBudget, Rounds, RowPlan
from mtmc.evaluate.measure.clock import Overhead, OverheadTable, TimingBudget
from mtmc.evaluate.measure.conversation import Failed
from mtmc.evaluate.measure.flops import Product
from mtmc.evaluate.measure.host_backend import HostBackend
from mtmc.evaluate.measure.reference_state import Work
from mtmc.evaluate.measure.samples import Samples
from mtmc.evaluate.measure.timing_validation import (
    CHARGED_SHARE,
    SECOND_LOOK,
    _latest_ms,
    _most_flush_ms,
    charged,
    profiler_check,
    runtime,
    timed,
    validate,
)
from mtmc.evaluate.measure.wire import Profiled
from mtmc.hardware import HARDWARE
from mtmc.outcome import Diagnosis

H100 = HARDWARE["H100"]
TABLE = OverheadTable(Overhead(((0, 0.15), (1 << 28, 0.15))), Overhead(((0, 0.5), (1 << 28, 0.5))), 0.06)
WORK = Work(335_000_000, 0, 1000)  # 0.1 ms to read at 3350 GB/s


LATE = {"lates": [0.02] * 12}


def samples(
    stated: float, wall: float, flush: float = 0.06, ahead: bool = True, late: tuple[float, ...] = (0.02,) * 12
) -> Samples:
    flushes = [flush] * 12 if ahead else []
    own = list(late) if ahead else []
    return Samples([stated] * 12, [wall] * 12, flushes, ahead, 1000, 1, input_bytes=WORK.input_bytes, lates=own)


def by_turns(calls: int) -> Samples:
    """The device is busy for a little too long before the first calls, and writing takes too long before the last ones."""
    flush, late = 1.2 * _most_flush_ms(TABLE), 1.2 * _latest_ms(samples(0.2, 0.35), TABLE)
    given = samples(0.2, 0.35, late=(0.02,) * (12 - calls) + (late,) * calls)
    return dataclasses.replace(given, flushes=[flush] * calls + [0.06] * (12 - calls))


def judged(given: Samples, eager: list[float] | None = None, read: int = WORK.input_bytes) -> dict[str, float]:
    work = dataclasses.replace(WORK, input_bytes=read)
    found = runtime(given, eager or [0.3], work, TABLE, H100)
    validate(given, found, TABLE, H100, work, lambda: work.input_bytes)
    return {"runtime_ms": found.timing.median_ms, **found.metrics}


def test_an_honest_time_is_taken_with_its_share_of_the_roofline():
    found = judged(samples(0.2, 0.35))
    assert found["runtime_ms"] == 0.2
    assert found["clock_ms"] == pytest.approx(0.2)
    assert found["roofline"] == pytest.approx(0.5, rel=1e-3)
    assert found["eager_ms"] == 0.3


def test_of_calls_that_wait_for_the_device_the_clock_alone_counts():
    assert judged(samples(0.01, 0.9, ahead=False))["runtime_ms"] == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (samples(0.1, 0.35), "HiddenTime"),  # 0.2 ms by the clock
        (by_turns(5), "WorksAhead"),  # each in less than half of the calls
        (by_turns(6), "WorksAhead"),  # no call is left
        (samples(0.2, 0.35, flush=0.5), "WorksAhead"),
        (samples(0.2, 0.35, late=(0.02,) * 5 + (1.5,) * 7), "WorksAhead"),  # the other context holds the device
        (samples(0.05, 0.2), "FasterThanMemory"),  # half of what reading the inputs takes
    ],
)
def test_what_cannot_be_is_rejected(given: Samples, kind: str):
    with pytest.raises(Failed) as caught:
        judged(given)
    assert (caught.value.status, caught.value.diagnosis.kind) == ("rejected", kind)


def test_rows_of_a_table_that_nobody_asks_for_need_not_be_read():
    assert judged(samples(0.05, 0.2), read=1000)["runtime_ms"] == 0.05
    with pytest.raises(Failed, match=r"than 0\.9 of the 0\.0600 ms that reading"):
        judged(samples(0.05, 0.2), read=201_000_000)


def test_a_second_stream_that_stood_still_is_not_at_work():
    """It takes a turn on the device while it waits, which is no work; work ahead would show in the clock as before."""
    given = samples(0.2, 0.35, late=(2.09,) * 12)
    with pytest.raises(Failed, match="writing the last piece"):
        judged(given)
    held = dataclasses.replace(given, everywhere=True)
    assert judged(held)["runtime_ms"] == 0.2
    for wrong, kind in (({"walls": [0.6] * 12}, "HiddenTime"), ({"flushes": [0.5] * 12}, "WorksAhead")):
        with pytest.raises(Failed) as caught:
            judged(dataclasses.replace(held, **wrong))
        assert caught.value.diagnosis.kind == kind


@pytest.mark.parametrize(("wall", "refused"), [(0.395, False), (0.415, True)])
def test_what_a_gate_for_all_streams_takes_is_no_time_of_the_version(wall: float, refused: bool):
    table = dataclasses.replace(TABLE, everywhere_ms=0.05)
    given = dataclasses.replace(samples(0.2, wall), everywhere=True)
    found = runtime(given, [0.3], WORK, table, H100)
    assert found.metrics["clock_ms"] == pytest.approx(wall - 0.2)
    if refused:
        with pytest.raises(Failed, match=r"0\.2150 ms or more"):
            validate(given, found, table, H100, WORK, lambda: WORK.input_bytes)
    else:
        validate(given, found, table, H100, WORK, lambda: WORK.input_bytes)


@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize(("behind", "refused"), [(0.003, False), (0.005, True)])
def test_work_left_on_other_streams_is_rejected_in_microseconds(behind: float, refused: bool, ahead: bool):
    given = samples(0.2, 0.35 if ahead else 0.9, ahead=ahead)
    given.behind += [0.0] * 5 + [behind] * 7
    if not refused:
        assert judged(given)["runtime_ms"] > 0
        return
    with pytest.raises(Failed, match=r"other streams are at work for 0\.0050 ms") as caught:
        judged(given)
    assert (caught.value.status, caught.value.diagnosis.kind) == ("rejected", "WorkLeftBehind")


@pytest.mark.parametrize(("behind", "refused"), [(0.063, False), (0.07, True)])
def test_a_version_may_leave_as_much_on_other_streams_as_the_reference(behind: float, refused: bool):
    given = samples(0.2, 0.35)
    given.behind += [behind] * 12
    given.reference_behind = 0.06
    if not refused:
        assert judged(given)["runtime_ms"] > 0
        return
    with pytest.raises(Failed, match="other streams are at work"):
        judged(given)


def test_an_honest_time_is_taken_though_most_calls_were_disturbed():
    given = Samples([0.2] * 12, [0.35, 0.49, 0.49, 0.49] * 3, [0.06] * 12, True, 1000, 1, WORK.input_bytes, **LATE)
    found = judged(given)
    assert (found["runtime_ms"], found["disturbed"]) == (0.2, 0.75)
    assert found["clock_ms"] == pytest.approx(0.2)


def test_calls_before_which_the_device_was_busy_do_not_tell_the_time():
    """Of 12 calls of 0.2 ms five have their work done ahead, and two of the others state nothing: seven of 12 state 0."""
    ahead, forged, honest = (0.0, 0.15, 0.5), (0.0, 0.35, 0.06), (0.2, 0.35, 0.06)
    calls = [ahead] * 5 + [forged] * 2 + [honest] * 5
    stated, walls, flushes = (list(each) for each in zip(*calls, strict=True))
    with pytest.raises(Failed) as caught:
        judged(Samples(stated, walls, flushes, True, 1000, 1, WORK.input_bytes, **LATE))
    assert caught.value.diagnosis.kind == "HiddenTime"
    lates = [1.0] * 5 + [0.02] * 7  # or the last piece of the inputs waited for such a call
    with pytest.raises(Failed) as caught:
        judged(Samples(stated, walls, [0.06] * 12, True, 1000, 1, WORK.input_bytes, lates=lates))
    assert caught.value.diagnosis.kind == "HiddenTime"


def test_a_little_that_is_not_explained_is_charged_and_no_more_than_that():
    # By the clock 2.35 - 0.15 = 2.2 ms and 2.27 - 0.15 = 2.12 ms; of 2.0 ms stated the first hides 9%, the second 5.7%.
    for wall, share in ((2.35, 0.2 / 2.2), (2.27, 0.12 / 2.12)):
        assert share > CHARGED_SHARE
        assert charged(samples(2.0, wall), TABLE) == (samples(2.0, wall), 0.0)
    given, added = charged(samples(2.0, 2.25), TABLE)  # 4.8%
    assert added == pytest.approx(0.1) and given.stated == pytest.approx([2.1] * 12)
    found = judged(given)
    assert found["runtime_ms"] == pytest.approx(2.1) == found["clock_ms"]
    with pytest.raises(Failed, match="more in seven of eight"):
        judged(samples(2.0, 2.25))
    for explained in (samples(2.0, 2.15), samples(2.0, 0.9, ahead=False)):
        assert charged(explained, TABLE) == (explained, 0.0)


def test_calls_before_which_the_device_was_busy_do_not_lower_what_is_charged():
    """Two of 12 had their work done ahead, and show less than they took: the lower eighth of the others counts."""
    walls, flushes = [2.0] * 2 + [2.25] * 10, [0.5] * 2 + [0.06] * 10
    given = Samples([2.0] * 12, walls, flushes, True, 1000, 1, WORK.input_bytes, **LATE)
    assert charged(given, TABLE)[1] == pytest.approx(0.1)
    busy = dataclasses.replace(given, flushes=[0.5] * 12)
    assert charged(busy, TABLE) == (busy, 0.0)


@pytest.mark.parametrize(
    ("first", "looks"),
    [
        (samples(0.2, 0.35), 1),
        (samples(0.2, 0.6), 2),
        (samples(0.2, 0.35, flush=0.5), 2),
        (samples(9.0, 9.0, 0, False), 1),
    ],
)
def test_calls_that_are_in_doubt_are_taken_anew_and_only_those(first: Samples, looks: int):
    usual, second = TimingBudget(12, 60, 0.005, 0.15), samples(0.2, 0.35)
    asked: list[TimingBudget] = []

    def take(budget: TimingBudget, everywhere: bool) -> Samples:
        asked.append(budget)
        assert everywhere == (len(asked) > 1)
        return first if len(asked) == 1 else second

    assert timed(take, usual, TABLE) is (first if looks == 1 else second)
    assert asked == [usual, SECOND_LOOK][:looks]


@pytest.mark.parametrize(("wall", "share", "looks"), [(2.18, 0.02, 1), (2.18, 0.0, 2), (2.25, 0.02, 2), (2.15, 0.0, 1)])
def test_nobody_looks_again_for_what_is_charged_anyway(wall: float, share: float, looks: int):
    """By the clock 2.03 ms of 2.0 stated, 1.5% more, and 2.1 ms, 4.8% more."""
    asked: list[TimingBudget] = []

    def take(budget: TimingBudget, everywhere: bool) -> Samples:
        asked.append(budget)
        return samples(2.0, wall + (0.05 if everywhere else 0.0))

    found = timed(take, TimingBudget(12, 60, 0.005, 0.15), TABLE, charge=share)
    assert len(asked) == looks
    if looks == 1:
        assert judged(charged(found, TABLE, share)[0])["runtime_ms"] == pytest.approx(wall - 0.15)


def test_the_second_look_is_taken_while_nothing_else_is_done():
    quiet, seen = list[str](), list[list[str]]()

    @contextlib.contextmanager
    def silent() -> Iterator[None]:
        quiet.append("nothing is built")
        yield
        quiet.clear()

    def take(budget: TimingBudget, everywhere: bool) -> Samples:
        seen.append(list(quiet))
        return samples(0.2, 0.6 if len(seen) == 1 else 0.35)

    timed(take, SECOND_LOOK, TABLE, silent)
    assert seen == [[], ["nothing is built"]] and not quiet


class Disturbed:
    """An examination of the evaluator's own model where 11 of 15 calls, and as many flushes, take longer."""

    def load_own(self, baseline: str, number: int) -> int:
        return number

    def ask_for(self, *_: object) -> float:
        return 0.0

    def time(self, _draw: object, _number: int, budget: TimingBudget, ahead: bool, everywhere: bool = False) -> Samples:
        assert budget.most == 15
        late = [0.14] * 11 + [0.0] * 4
        flushes = [0.06 + 2 * each for each in late] if ahead else []
        lates = [0.02 + 2 * each for each in late] if ahead else []
        held = 0.03 if everywhere else 0.0
        return Samples([0.02] * 15, [0.17 + held + each for each in late], flushes, ahead, lates=lates)

    def in_a_row(self, draw: object, number: int, plan: RowPlan, budget: LoopBudget) -> Rounds:
        assert budget.least == budget.most == 5
        usual = [0.01, 0.01, 0.01, 0.4, 0.5]
        return Rounds(plan.counted, hosts=usual, seen=[plan.slots.output_step / 1e9 + each for each in usual])


def test_the_overhead_is_that_of_undisturbed_calls():
    table = calibration.run(Disturbed(), HostBackend())  # type: ignore[arg-type]
    assert [ms for _, ms in table.ahead.points] == pytest.approx([0.15] * 2)
    assert table.flush_ms == pytest.approx(0.06)
    assert table.everywhere_ms == pytest.approx(0.03)


def test_where_not_all_streams_can_be_held_back_the_second_look_is_like_the_first(caplog: pytest.LogCaptureFixture):
    class Refusing(Disturbed):
        def time(self, *given: Any, everywhere: bool = False) -> Samples:
            if (given[4:] or (everywhere,))[0]:
                raise Failed("crash", Diagnosis("check", "EvaluatorError", "the CUDA driver refused a call"))
            return super().time(*given[:4])

    table = calibration.run(Refusing(), HostBackend())  # type: ignore[arg-type]
    assert table.everywhere_ms is None and "streams of their own may be refused" in caplog.text
    asked: list[bool] = []

    def take(budget: TimingBudget, everywhere: bool) -> Samples:
        asked.append(everywhere)
        return samples(0.2, 0.6)

    timed(take, SECOND_LOOK, dataclasses.replace(TABLE, everywhere_ms=None))
    assert asked == [False, False]
    least = 0.01 + 512 / 1e9  # of a model that returns one number
    assert [ms for _, ms in table.reveal.points] == pytest.approx([least] * 2)
    assert [ms for _, ms in table.loop.points] == pytest.approx([(size - 512) / 1e9 for size in (1 << 12, 1 << 20)])
    assert table.loop_host_ms == 0.01 and table.late_ms == pytest.approx(0.02)


def test_the_floor_holds_only_where_the_reference_keeps_it():
    """A reference that reads a part of its inputs is faster than the floor, and so may a version be."""
    assert judged(samples(0.05, 0.2), eager=[0.06])["runtime_ms"] == 0.05


def test_a_forward_without_device_work_is_rejected():
    assert profiler_check(Profiled(3.0, ("k",), 0.2), samples(0.2, 0.35)) == {"profiled_ms": 0.2, "activities": 3.0}
    with pytest.raises(Failed, match="no more than handing over"):
        profiler_check(Profiled(1.0, ("k",), 0.1), samples(0.2, 0.35))


def test_least_time_is_bytes_or_products_whichever_is_longer():
    def least_ms(*products: Product) -> float:
        return Work(0, 0, 0, products=products).least_ms(H100)

    assert Work(3_350_000_000, 0, 0).least_ms(H100) == pytest.approx(1.0)
    # fp32 products run as three in TF32: 494.7 / 3 TFLOP/s
    assert least_ms(Product("fp32", "tf32x3", 164_900_000_000)) == pytest.approx(1.0)
    assert least_ms(Product("fp32", "tf32", 164_900_000_000)) == pytest.approx(1 / 3)
    half = Product("fp16", None, 494_700_000_000)
    assert least_ms(half, half) == pytest.approx(1.0)
    assert least_ms(half, Product("fp32", "tf32x3", 164_900_000_000)) == pytest.approx(1.5)
