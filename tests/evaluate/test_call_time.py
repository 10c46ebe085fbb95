"""Time a call: what a round of calls in a row tells, and that what a candidate says of it is held against the clock."""

from __future__ import annotations

import math
import socket
import time
from types import SimpleNamespace

import pytest

from mtmc.errors import TaskError
from mtmc.evaluate.measure import conversation
from mtmc.evaluate.measure.call_time import (
    COUNTED_LEAST,
    COUNTED_MOST,
    FEW_SLOTS,
    LEAD,
    SLOTS,
    START_MS,
    LoopBudget,
    Moments,
    Rounds,
    Slots,
    at_device,
    call_time,
    counted_calls,
    settled,
    unexplained,
)
from mtmc.evaluate.measure.calls_in_a_row import _compared
from mtmc.evaluate.measure.clock import Overhead, OverheadTable, Timing
from mtmc.evaluate.measure.conversation import Conversation
from mtmc.evaluate.measure.flags import DONE, HOST_LAST, HOST_LED, LED, Flags
from mtmc.evaluate.measure.questions import Measured
from mtmc.evaluate.measure.timing_validation import as_called
from mtmc.evaluate.measure.wire import Line
from mtmc.evaluate.reference.calls import CALLS
from mtmc.task.base import under_cuda_graph

N = COUNTED_MOST
NONE = Overhead(((0, 0.0), (1 << 28, 0.0)))
COPIED = Overhead(((0, 0.0), (1 << 28, (1 << 28) / 1e9)))
REVEALED = Overhead(((0, 0.008), (1 << 28, 0.008 + (1 << 28) / 1e9)))
TABLE = OverheadTable(NONE, NONE, 0.06, COPIED, 0.007, REVEALED)


def rounds(host: float, device: float, output_bytes: int = 4096, times: int = 5, **forged: float) -> Rounds:
    """Rounds as an honest candidate makes them, by the milliseconds that host and device take for a call, but for what it
    forges: when it says that its host or its stream came how far."""
    copies = TABLE.loop.ms(output_bytes, 1) + TABLE.reveal.ms(output_bytes // 2, 1)
    per_host, per_call = host + 0.007, max(host + 0.007, device + copies)
    led = START_MS + LEAD * per_call
    true = {"host_led": LEAD * per_host, "led": led, "host_last": (LEAD + N) * per_host, "done": led + N * per_call}
    found = Rounds(N, 1, output_bytes, output_bytes // 2)
    for _ in range(times):
        found.add(Moments(**{**true, **forged}))
    return found


def timing(ms: float) -> Timing:
    return Timing(ms, 0.99 * ms, 1.01 * ms, 12)


@pytest.mark.parametrize(
    ("host", "device", "output_bytes", "expected"),
    [
        (0.2, 0.118, 1 << 16, 0.2),  # five launches
        (0.04, 0.5, 1 << 16, 0.5),
        (0.1, 0.06, 1 << 26, 0.1),  # handing over takes the device longer than the host's launches
        (0.1, 0.06, 1 << 28, 0.1),
        (0.001, 0.002, 64, 0.002),
    ],
)
def test_a_call_takes_the_larger_of_host_and_device_time(
    host: float, device: float, output_bytes: int, expected: float
):
    found = call_time(rounds(host, device, output_bytes), timing(device), TABLE)
    assert found.timing.median_ms == pytest.approx(expected, rel=1e-6)
    assert found.host_ms == pytest.approx(host)
    if device > host:
        assert found.timing == timing(device)  # the more exact one, with its own interval
    else:
        assert found.timing.trials == 12 + 5 * N


def test_a_last_flag_that_comes_too_early_hides_little():
    """The outputs are taken when it is up, and that waits for the calls that are still at work."""
    honest, early = Rounds(N), Rounds(N)
    last = (LEAD + N) * 0.2
    honest.add(Moments(0.4, 0.41, last, last + 0.01, last + 0.2))
    early.add(Moments(0.0, 0.0, 0.1, 0.1, last + 0.2))
    assert honest.seen == [pytest.approx(0.2)]  # taking is no part of a call
    assert early.seen[0] >= 0.2 * (N + LEAD) / (N + LEAD + 1) - 0.001


def test_a_model_that_keeps_something_is_called_no_more_often_than_it_is_checked_in_a_row():
    assert LEAD + counted_calls(0.01, SLOTS, keeps=True) == CALLS


@pytest.mark.parametrize(
    "forged",
    [
        {"host_led": 0.0, "host_last": 0.0},  # says that its host takes no time
        {"host_led": 3.0, "host_last": 3.0},
        {"host_led": 3.0, "host_last": 3.0, "led": 3.3},  # and that the calls which count began at the end
        {"host_led": 9.0, "host_last": 0.0, "led": 99.0},
    ],
)
def test_a_forged_moment_hides_little_of_the_host_time(forged: dict[str, float]):
    found = call_time(rounds(0.2, 0.05, **forged), timing(0.05), TABLE)
    assert found.timing.median_ms >= 0.2 * (N + LEAD) / (N + LEAD + 1) - 0.01


def test_one_round_that_was_disturbed_tells_nothing():
    found = rounds(0.1, 0.05)
    found.add(Moments(0.2, 0.3, 9.0, 9.1))
    assert call_time(found, timing(0.05), TABLE).timing.median_ms == pytest.approx(0.1)


def test_under_a_cuda_graph_the_device_alone_counts():
    called = call_time(rounds(0.21, 0.118), timing(0.118), TABLE)
    device = Measured(timing(0.118), {"eager_ms": 0.1, "roofline": 0.5})
    alone, host = (as_called(device, called, [0.126], cuda_graph) for cuda_graph in (True, False))
    assert (alone.timing.median_ms, alone.metrics["eager_ms"], alone.metrics["roofline"]) == (0.118, 0.1, 0.5)
    assert host.timing.median_ms == pytest.approx(0.21) == host.metrics["call_ms"] == alone.metrics["call_ms"]
    assert host.metrics["eager_ms"] == 0.126 and host.metrics["eager_device_ms"] == 0.1
    assert host.metrics["roofline"] == pytest.approx(0.5 * 0.118 / 0.21)
    assert host.metrics["device_ms"] == alone.metrics["device_ms"] == 0.118


def test_a_task_says_by_a_constant_that_it_is_called_under_a_cuda_graph():
    assert under_cuda_graph("CUDA_GRAPH: bool = True\nrows = 4", "t") and not under_cuda_graph(
        "CUDA_GRAPH = False", "t"
    )
    assert not under_cuda_graph("text = 'CUDA_GRAPH'", "t")
    with pytest.raises(TaskError, match="line 2: CUDA_GRAPH must be True or False"):
        under_cuda_graph("rows = 4\nCUDA_GRAPH = 1", "t")


def test_slow_calls_are_few_and_all_that_count_can_be_compared():
    assert counted_calls(0.01) == COUNTED_MOST and counted_calls(50.0) == COUNTED_LEAST
    assert counted_calls(0.01, 7) == 7 - LEAD and counted_calls(0.01, 1) == COUNTED_LEAST
    assert Slots.of(4096, 1 << 20, 80 << 30) == Slots(SLOTS, 4096, 1 << 20) == Slots.of(4096, 1 << 20, total=1)
    assert Slots.of(1 << 28, 1 << 28, 80 << 30) == Slots(FEW_SLOTS, 1 << 28, 1 << 28)
    assert Slots.of(2 << 30, 2 << 30, 80 << 30).count == 1
    assert FEW_SLOTS < Slots.of(20 << 20, 20 << 20, 80 << 30).count < SLOTS


def test_inputs_lie_among_the_outputs_before_their_call_where_there_are_several():
    many, one = Slots.of(1000, 300, 80 << 30), Slots.of(2 << 30, 512, 80 << 30)
    assert (many.sources, many.sizes) == (SLOTS * 512, (SLOTS * 1024, SLOTS * (512 + 1024)))
    assert many.revealed and not one.revealed and one.sizes == (2 << 30, 512)


@pytest.mark.parametrize(
    ("hosts", "device_ms", "enough"),
    [
        ([], 0.100, False),
        ([0.050], 0.100, True),  # the device explains what was seen
        ([0.300], 0.100, False),
        ([0.300, 0.200], 0.100, False),
        ([0.300, 0.200, 0.205], 0.100, True),  # 2.4% apart, without the 0.007 that the handing over takes
        ([0.205, 0.300, 0.200], 0.100, True),
        ([0.200, 0.212], 0.100, False),  # 5.8%
    ],
)
def test_rounds_agree_where_the_device_explains_them_or_the_least_two_are_alike(
    hosts: list[float], device_ms: float, enough: bool
):
    found = Rounds(N, 1, 4096, 2048)
    for host in hosts:
        one = rounds(host, device_ms, times=1)
        found.hosts += one.hosts
        found.seen += one.seen
    assert settled(found, timing(device_ms), TABLE) is enough


@pytest.mark.parametrize(
    ("host", "device_ms", "seen_ms", "expected"),
    [
        (0.05, 0.1, 0.1, False),
        (0.30, 0.1, 0.3, False),  # the host explains it
        (0.05, 0.1, 0.14, False),
        (0.05, 0.1, 0.77, True),  # the GPU works for another process
        (0.30, 0.1, 0.77, True),
    ],
)
def test_what_neither_host_nor_device_explains(host: float, device_ms: float, seen_ms: float, expected: bool):
    found = rounds(host, device_ms)
    found.seen = rounds(0.0, seen_ms).seen
    assert unexplained(found, timing(device_ms), TABLE) is expected


@pytest.mark.parametrize(("host", "expected"), [(0.05, True), (0.30, False)])
def test_a_call_that_takes_no_longer_than_the_device(host: float, expected: bool):
    assert at_device(rounds(host, 0.1), timing(0.1), TABLE) is expected


def test_rounds_that_do_not_agree_have_a_budget_of_their_own():
    budget = LoopBudget(3, 5, 0.01, 0.05, doubtful=8, doubtful_seconds=0.3)
    assert not budget.enough(5, 0.1, agree=False) and budget.enough(5, 0.1)
    assert budget.enough(8, 0.1, agree=False) and budget.enough(5, 0.3, agree=False)


def test_rounds_end_with_their_budget():
    budget = LoopBudget(least=3, most=5, seconds=0.01, long_seconds=0.05)
    assert not budget.enough(0, 9.9) and budget.enough(1, 0.06) and not budget.enough(2, 0.02)
    assert budget.enough(3, 0.02) and not budget.enough(4, 0.001) and budget.enough(5, 0.0)


def test_what_is_compared_still_lies_there():
    seen = {tuple(_compared((3, 1, 0, 2), every=False)) for _ in range(200)}
    assert seen == {(0, 3), (1, 3), (2, 3), (3,)}
    assert {tuple(_compared((0, 1, 2, 0, 1), every=False)) for _ in range(100)} == {(2, 4), (3, 4), (4,)}
    assert _compared((3, 1, 0, 2), every=True) == [0, 1, 2, 3]
    assert _compared((0, 1, 2, 0, 1), every=True) == [2, 3, 4] and _compared((0, 0, 0), every=True) == [2]


class Words(dict[int, float]):
    """Each word has the serial from its second on. A look at one takes a thousandth."""

    def __init__(self, serial: int, written: dict[int, float]) -> None:
        super().__init__(written)
        self.serial, self.now = serial, 0.0

    def __getitem__(self, place: int) -> int:  # type: ignore[override]
        self.now += 0.001
        return self.serial if self.now >= self.get(place, math.inf) else 0


def test_the_oracle_sees_each_word_when_it_is_written(monkeypatch):
    own, theirs = socket.socketpair()
    talk = Conversation(Line(own), Flags(), 600.0)
    monkeypatch.setattr(
        conversation, "time", SimpleNamespace(perf_counter=lambda: talk._words.now, monotonic=time.monotonic)
    )
    written = {HOST_LED: 0.2, LED: 0.4, HOST_LAST: 0.6, DONE: 0.8}
    talk._words = Words(7, written)
    found = talk.await_loop(7, 0.0)
    for ms, s in zip((found.host_led, found.led, found.host_last, found.done), written.values(), strict=True):
        assert 1e3 * s <= ms <= 1e3 * s + 5
    talk._words = Words(8, {DONE: 0.1})  # no other word: they count as written then
    late = talk.await_loop(8, 0.0)
    assert late.host_led == late.led == late.host_last == late.done
    theirs.close()
