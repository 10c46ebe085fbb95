"""The moment of the answer: what the oracle takes when a flag is raised, and what a candidate can reach before that."""

from __future__ import annotations

import itertools
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from mtmc.evaluate.check.judge import judge
from mtmc.evaluate.check.layout import dense_places, view
from mtmc.evaluate.measure import examination as examination_module
from mtmc.evaluate.measure import output_buffer
from mtmc.evaluate.measure.backend import Window
from mtmc.evaluate.measure.clock import TimingBudget
from mtmc.evaluate.measure.conversation import Conversation, Failed
from mtmc.evaluate.measure.examination import Examination
from mtmc.evaluate.measure.flags import DONE, GATE, Flags
from mtmc.evaluate.measure.host_backend import HostBackend
from mtmc.evaluate.measure.output_buffer import OutputBuffer
from mtmc.evaluate.measure.samples import Samples
from mtmc.evaluate.measure.subject import Subject
from mtmc.evaluate.measure.wire import Call, Enqueued, Gone, Line, Output, Returned
from mtmc.evaluate.reference.compare import Expected
from mtmc.evaluate.reference.expected_outputs import ExpectedOutputs

SIZE = 4096
WORK_S = 0.03
"""Seconds that the work of an honest candidate takes."""


class Hand:
    """What a candidate could do if it reached outputs and flags."""

    def __init__(self, backend: HostBackend, flags: Flags, inputs: torch.Tensor, window: Window) -> None:
        self.backend, self.flags, self.inputs, self.window = backend, flags, inputs, window
        self.turn, self.looked, self.over = 0, False, False
        self.taken = threading.Event()
        self.seen = torch.zeros_like(inputs)

    def look(self) -> float:
        """At the inputs, when the oracle begins with its last work before the gate is opened."""
        if not self.looked:
            self.looked, self.seen = True, self.inputs.clone()
        return time.perf_counter()

    def write(self, request: Call) -> None:
        [spot] = request.inputs
        outputs = self.window.show()
        view(outputs, spot).copy_(view(self.inputs, spot) * 2)

    def done(self, request: Call) -> None:
        self.taken.clear()
        self.flags.words[DONE] = request.done

    def work_on(self) -> None:
        """Until the oracle has taken what there was when the flag was raised."""
        while not self.taken.wait(0.1):  # nothing is taken any more of a call that was asked for before another failed
            if self.over:
                return


def honest(hand: Hand, request: Call) -> None:
    time.sleep(WORK_S)
    hand.write(request)
    hand.done(request)


def flag_first(hand: Hand, request: Call) -> None:
    hand.done(request)
    hand.work_on()
    hand.write(request)


def stale(hand: Hand, request: Call) -> None:
    """The outputs of the call before, written again; the true ones come late."""
    hand.turn += 1
    [spot] = request.inputs
    if hand.turn == 1:
        hand.write(request)
        hand.before = view(hand.window.show(), spot).clone()
    else:
        view(hand.window.show(), spot).copy_(hand.before)
    hand.done(request)
    hand.work_on()
    hand.write(request)


def half(hand: Hand, request: Call) -> None:
    """All but the last element in time."""
    [spot] = request.inputs
    view(hand.window.show(), spot)[:-1].copy_(view(hand.inputs, spot)[:-1] * 2)
    hand.done(request)
    hand.work_on()
    hand.write(request)


def opens_gates(hand: Hand, request: Call) -> None:
    """Raises every flag there is, so that the next call's work can begin before its inputs are given out."""
    hand.write(request)
    hand.flags.words[:] = 0xFFFFFFF0
    hand.done(request)


def ahead(hand: Hand, request: Call) -> None:
    """What it made of the inputs before the gate was opened."""
    [spot] = request.inputs
    view(hand.window.show(), spot).copy_(view(hand.seen, spot) * 2)
    hand.looked = False
    hand.done(request)


@pytest.fixture
def shared() -> Iterator[tuple[HostBackend, Flags, list[Any]]]:
    backend, flags = HostBackend(), Flags()
    backend.share(flags)
    pieces = [backend.create(SIZE) for _ in range(2)]
    yield backend, flags, pieces
    for fd, _ in pieces:
        backend.release(fd)


def timed(
    shared: tuple[HostBackend, Flags, list[Any]],
    behave: Callable[[Hand, Call], None],
    draw: Callable[[int], ExpectedOutputs] | None = None,
    calls: int = 2,
    **named: Any,
) -> Samples:
    """Calls of a candidate that behaves so, of a task whose output is twice its input. draw, named: see `Examination.time`;
    draw is `twice` if left out. calls: that count."""
    backend, flags, [(in_fd, inputs), (out_fd, outputs)] = shared
    ours, theirs = socket.socketpair()
    candidate = Line(theirs)
    hand = Hand(backend, flags, backend.open(in_fd, SIZE), backend.window(out_fd, SIZE))

    backend.mark = hand.look  # type: ignore[method-assign]

    def serve() -> None:
        try:
            while True:
                request, _ = candidate.asked()
                candidate.say(Enqueued(request.serial))
                while flags.words[GATE] < request.serial:
                    time.sleep(0)
                behave(hand, request)
                candidate.say(Returned((Output("float32", (64,), (0,), "cpu"),), "*", ms=WORK_S * 1e3))
        except (Gone, OSError):
            pass

    serving = threading.Thread(target=serve, daemon=True)
    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # both sides spin, in one process here: neither may keep the other from running
    serving.start()
    try:
        buffer = OutputBuffer(inputs, outputs, torch.empty_like(outputs), backend, judged=True)
        seeds = iter(range(1, 1000))
        take = buffer.take

        def taken(wait: bool = True) -> None:
            take(wait)
            hand.taken.set()

        buffer.take = taken  # type: ignore[method-assign]
        examination = Examination(Conversation(Line(ours), flags, 600.0), buffer, backend, flags, lambda: next(seeds))
        return examination.time(draw or twice, 0, TimingBudget(calls, calls, 0.0, 0.0), ahead=True, **named)
    finally:
        hand.over = True
        ours.close()
        serving.join()
        theirs.close()
        sys.setswitchinterval(switching)


def twice(seed: int) -> ExpectedOutputs:
    x = torch.randn(64, generator=torch.Generator().manual_seed(seed))
    return ExpectedOutputs([x], [Expected(x * 2, x.double() * 2, x.double() * 2)], "*", [])


def test_a_gate_that_a_candidate_opens_is_seen(shared: Any) -> None:
    with pytest.raises(Failed) as caught:
        timed(shared, opens_gates)
    assert (caught.value.status, caught.value.diagnosis.kind) == ("rejected", "GateForced")


def test_the_clock_runs_until_the_outputs_are_there(shared: Any) -> None:
    samples = timed(shared, honest)
    assert len(samples.walls) == 2 and min(samples.walls) >= WORK_S * 1e3


@pytest.mark.parametrize("behave", [flag_first, stale, half])
def test_a_flag_before_the_outputs_finds_none(shared: Any, behave: Callable[[Hand, Call], None]) -> None:
    with pytest.raises(Failed) as caught:
        timed(shared, behave)
    assert (caught.value.status, caught.value.diagnosis.kind) == ("rejected", "LateOutput")


@pytest.mark.parametrize("wrong", range(4))
def test_each_call_is_compared_though_the_next_one_is_asked_for_before(shared: Any, wrong: int) -> None:
    """Two calls warm up and two are timed."""
    calls = itertools.count()

    def once_wrong(hand: Hand, request: Call) -> None:
        (half if next(calls) == wrong else honest)(hand, request)

    with pytest.raises(Failed) as caught:
        timed(shared, once_wrong)
    assert f"timed call {wrong + 1}" in caught.value.diagnosis.message
    assert next(calls) <= min(4, wrong + 2)


def seen_behind_the_gate(shared: Any, monkeypatch: pytest.MonkeyPatch, **named: Any) -> dict[str, list[bool]]:
    """Of each comparison and each draw whether the candidate was waiting behind the gate meanwhile."""
    flags, seen = shared[1], {"compared": list[bool](), "drawn": list[bool]()}

    def drawn(seed: int) -> ExpectedOutputs:
        seen["drawn"].append(flags.shut)
        return twice(seed)

    def judged(*given: Any) -> Any:
        seen["compared"].append(flags.shut)
        return judge(*given)

    monkeypatch.setattr(output_buffer, "judge", judged)
    timed(shared, honest, drawn, calls=4, early=lambda: True, **named)
    return seen


@pytest.mark.parametrize("everywhere", [False, True])
@pytest.mark.parametrize("crowded_ms", [1e9, 0.0])
def test_nothing_is_done_beside_streams_that_take_turns(
    shared: Any, monkeypatch: pytest.MonkeyPatch, everywhere: bool, crowded_ms: float
) -> None:
    """Where all streams wait at the gate, or the oracle's work before a call was slow, comparing and drawing wait, too."""
    monkeypatch.setattr(examination_module, "CROWDED_MS", crowded_ms)
    seen = seen_behind_the_gate(shared, monkeypatch, everywhere=everywhere)
    assert len(seen["compared"]) == 6 and len(seen["drawn"]) >= 6, "two warm up"
    beside = [any(each) for each in seen.values()]
    assert beside == [not everywhere and crowded_ms > 0] * 2


@pytest.mark.parametrize("wrong", range(4))
def test_each_call_is_compared_at_once_where_streams_take_turns(shared: Any, wrong: int) -> None:
    calls = itertools.count()

    def once_wrong(hand: Hand, request: Call) -> None:
        (half if next(calls) == wrong else honest)(hand, request)

    with pytest.raises(Failed) as caught:
        timed(shared, once_wrong, everywhere=True)
    assert f"timed call {wrong + 1}" in caught.value.diagnosis.message
    assert next(calls) == wrong + 1, "before the next one is asked for"


def test_inputs_that_are_mended_before_the_outputs_are_compared_were_changed_even_so() -> None:
    backend = HostBackend()
    inputs, outputs = torch.zeros(SIZE, dtype=torch.uint8), torch.zeros(SIZE, dtype=torch.uint8)
    buffer = OutputBuffer(inputs, outputs, torch.empty_like(outputs), backend, judged=True)
    x = torch.randn(8)
    expected = ExpectedOutputs([x], [Expected(x * 2, x.double() * 2, x.double() * 2)], "*", [])
    said = Returned((Output("float32", (8,), (0,), "cpu"),), "*")
    for changed in (0.0, 1.0):
        [spot] = buffer.write(expected)
        buffer.prepare(32)
        outputs[:32].view(torch.float32).copy_(x * 2)
        buffer.take()
        view(inputs, spot).add_(changed)
        compare = buffer.to_judge(said, expected, "time", "here", taken=True)
        view(inputs, spot).copy_(x)
        outputs.zero_()
        if not changed:
            assert compare() < 1e-6
            continue
        with pytest.raises(Failed) as caught:
            compare()
    assert caught.value.diagnosis.kind == "InputMutated"


def test_what_was_made_of_the_inputs_before_the_gate_was_opened_is_wrong(shared: Any) -> None:
    """A piece of them is written last, and nobody knows which."""
    with pytest.raises(Failed) as caught:
        timed(shared, ahead)
    assert (caught.value.status, caught.value.diagnosis.kind) == ("wrong_result", "WrongValues")


@pytest.mark.parametrize("numbers", [[], [0], [1], [3, 0, 70000]])
def test_the_piece_that_is_held_back_is_written_in_the_end(numbers: list[int]) -> None:
    inputs, outputs = torch.zeros(1 << 20, dtype=torch.uint8), torch.zeros(SIZE, dtype=torch.uint8)
    buffer = OutputBuffer(inputs, outputs, torch.empty_like(outputs), HostBackend(), judged=True)
    expected = ExpectedOutputs([torch.rand(count) + 1 for count in numbers], [], "()", [])
    places, tensors = buffer.places(expected)
    buffer.hold_back(places, tensors, expected)
    there = [torch.equal(view(inputs, spot), x) for spot, x in zip(places, tensors, strict=True)]
    assert there.count(False) == (1 if sum(numbers) else 0)
    buffer.complete()
    assert all(torch.equal(view(inputs, spot), x) for spot, x in zip(places, tensors, strict=True))


def test_inputs_that_a_reference_changes_are_taken_at_the_same_moment() -> None:
    backend = HostBackend()
    inputs, outputs = torch.zeros(SIZE, dtype=torch.uint8), torch.zeros(SIZE, dtype=torch.uint8)
    buffer = OutputBuffer(inputs, outputs, torch.empty_like(outputs), backend, judged=True)
    x = torch.randn(8, 3).t()  # strides of its own
    want = Expected(x + 1, x.double() + 1, x.double() + 1)
    expected = ExpectedOutputs([x], [], "()", changed_inputs=[0], left_inputs={0: want})
    said = Returned((), "()")
    [spot] = buffer.write(expected)
    buffer.prepare(0)
    buffer.take()
    view(inputs, spot).add_(1)
    with pytest.raises(Failed) as caught:
        buffer.compare(said, expected, "time", "here", taken=True)
    assert caught.value.diagnosis.kind == "LateOutput"
    buffer.write(expected)
    buffer.prepare(0)
    view(inputs, spot).add_(1)
    buffer.take()
    view(inputs, spot).zero_()
    assert buffer.compare(said, expected, "time", "here", taken=True) < 1e-6


def test_outputs_are_out_of_reach_while_a_forward_runs(shared: Any) -> None:
    """Neither from its inputs' storage nor anywhere in the process: they are mapped when it has returned."""
    backend, flags, [(in_fd, _), (out_fd, outputs)] = shared
    ours, theirs = socket.socketpair()
    window, seen = backend.window(out_fd, SIZE), list[Any]()
    subject = Subject(Line(theirs), backend, flags, backend.open(in_fd, SIZE), window, SIZE, [])

    def model(x: torch.Tensor) -> torch.Tensor:
        seen.append((window._shown, x.untyped_storage().nbytes()))
        return x + 1

    subject._models[0] = model
    subject._remembered[0] = type("Nothing", (), {"restore": lambda self, paths: None})()
    [spot], _ = dense_places([torch.ones(16)])
    flags.words[GATE] = 1
    for gated, check in ((False, True), (True, False)):
        subject.answer(Call(0, [spot], 1, 1, 77, gated, check))
        assert window._shown is None and flags.words[DONE] == (77 if gated else 0)
    said = [Line(ours).heard(1.0)]
    assert seen == [(None, SIZE)] * 2 and isinstance(said[0], Returned)
    assert torch.equal(view(outputs, spot), torch.ones(16))
    for end in (ours, theirs):
        end.close()
