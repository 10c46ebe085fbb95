"""When a reference has a time of its own: its host code must return while the device waits at the gate."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mtmc.evaluate.measure import reference_time
from mtmc.evaluate.measure.call_time import LoopBudget, RowPlan, Slots
from mtmc.evaluate.measure.fast_threads import FastThreads
from mtmc.evaluate.measure.flags import OWN_GATE, Flags
from mtmc.evaluate.measure.reference_time import AGAIN, ReferenceClock

QUEUE = 1024


class _Device:
    """A device that takes `QUEUE` launches while it waits; the next one holds the host up until the gate is open."""

    asynchronous = True

    def __init__(self) -> None:
        self.flags = Flags()
        self.queued = 0
        self.shut, self.opens = False, False

    def launch(self, kernels: int) -> None:
        self.queued += kernels
        if self.shut and self.queued > QUEUE:
            assert self.opens, "the host waits for ever"
            self._open()

    def wait(self, word: int, serial: int) -> None:
        assert word == OWN_GATE
        self.shut, self.queued, self.serial = True, 0, serial

    def signal_after(self, word: int, serial: int, milliseconds: float) -> None:
        assert word == OWN_GATE and milliseconds > 0 and not self.shut, "a first launch waits for the device"
        self.serial, self.opens = serial, True

    def synchronize(self) -> None:
        if self.shut:
            assert self.opens or self.flags.words[OWN_GATE] >= self.serial, "the device waits for ever"
            self._open()
        self.queued = 0

    def _open(self) -> None:
        self.flags.words[OWN_GATE] = self.serial
        self.shut = self.opens = False

    def flush(self) -> None: ...

    def mark(self) -> float:
        return 0.0

    def join(self) -> None: ...

    def beyond_ms(self, first: float, last: float) -> float:
        return 0.25

    def elapsed_ms(self, first: float, last: float) -> float:
        return 1.25


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> _Device:
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", lambda mode: None)
    return _Device()


def _expected_outputs(changed: bool = False) -> Any:
    return SimpleNamespace(inputs=(), changed_inputs=changed)


@pytest.mark.parametrize(("kernels", "gateable"), [(300, True), (QUEUE, True), (3072, False)])
def test_the_host_code_of_a_reference_of_more_launches_than_a_queue_counts(
    device: _Device, kernels: int, gateable: bool
) -> None:
    clock = ReferenceClock(device, device.flags, lambda: device.launch(kernels))  # type: ignore[arg-type]
    assert clock.enqueues(_expected_outputs()) is gateable
    for _ in range(2):
        clock.timed(lambda: device.launch(kernels))
    assert clock.gateable is gateable and len(clock.times) == 2
    assert (clock.times == [1.5, 1.5]) is gateable


def test_what_is_known_is_not_asked_again(device: _Device) -> None:
    calls: list[int] = []
    clock = ReferenceClock(device, device.flags, lambda: calls.append(1), gateable=True)  # type: ignore[arg-type]
    assert clock.enqueues(_expected_outputs()) and not calls
    clock.timed(lambda: calls.append(1))
    assert len(calls) == 1 and clock.times == [1.5]


def test_the_result_is_that_of_the_timed_call_and_no_call_is_timed_beyond_enough(device: _Device) -> None:
    clock = ReferenceClock(device, device.flags, None, gateable=True, most=3)  # type: ignore[arg-type]
    calls = iter(range(100))
    enough = []
    for number in range(5):
        assert clock.timed(lambda: next(calls)) == number
        enough.append(clock.enough)
    assert len(clock.times) == 3 and enough == [False, False, True, True, True]


@pytest.mark.parametrize(("known", "rounds"), [(0, 4), (3, 4), (4, AGAIN), (16, AGAIN)])
def test_where_the_hosts_time_is_known_of_candidates_before_few_rounds_are_added(
    device: _Device, known: int, rounds: int
) -> None:
    clock = ReferenceClock(device, device.flags, None, gateable=True)  # type: ignore[arg-type]
    clock.times, clock.hosts = [1.0], [9.0] * known
    plan = RowPlan(4, 0, Slots.of(64, 64, 1 << 30))
    clock.in_a_row(lambda: None, lambda: None, [], LoopBudget(4, 4, 0.0, 60.0), plan, FastThreads())
    assert len(clock.hosts) == known + rounds and clock.hosts[:known] == [9.0] * known


def test_a_call_that_fails_leaves_the_gate_open(device: _Device) -> None:
    clock = ReferenceClock(device, device.flags, None, gateable=True)  # type: ignore[arg-type]

    def fails() -> None:
        raise ValueError("no such input")

    with pytest.raises(ValueError, match="no such input"):
        clock.timed(fails)
    device.synchronize()
    assert clock.times == []


def test_a_reference_that_waits_is_timed_by_the_host_and_one_that_changes_its_inputs_is_not_asked(
    device: _Device,
) -> None:
    asked: list[str] = []

    def waits() -> None:
        asked.append("")
        if len(asked) == 1:  # the look whether it does
            raise RuntimeError("called a synchronizing CUDA operation")
        time.sleep(0.002)

    clock = ReferenceClock(device, device.flags, waits)  # type: ignore[arg-type]
    assert not clock.enqueues(_expected_outputs()), "nor are the calls of its versions"
    clock.timed(waits)
    assert clock.gateable is False and len(clock.times) == 1 and clock.times[0] >= 2.0
    clock = ReferenceClock(device, device.flags, waits)  # type: ignore[arg-type]
    assert clock.enqueues(_expected_outputs(changed=True)) and clock.gateable is None and clock.times == []


def test_gaps_of_an_output_are_closed_within_the_time(device: _Device, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(reference_time, "without_gaps", seen.append)
    monkeypatch.setattr(device, "mark", lambda: seen.append("mark"))
    monkeypatch.setattr(device, "join", lambda: seen.append("join"))
    output = torch.randn(4, 8)[:, :5]
    for gateable in (True, False):
        clock = ReferenceClock(device, device.flags, None, gateable)  # type: ignore[arg-type]
        assert clock.timed(lambda: [output]) == [output]
        assert clock.behind_ms == (0.25 if gateable else 0.0)
    assert seen == ["mark", output, "mark", "join", "mark", output]
