"""The words between oracle and candidate, and what comes of a candidate that talks nonsense."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator

import pytest
import torch

from mtmc.evaluate.check.answers import OutOfMemory, Raised, Text
from mtmc.evaluate.check.layout import place
from mtmc.evaluate.measure import conversation
from mtmc.evaluate.measure.conversation import Conversation, Failed
from mtmc.evaluate.measure.flags import DONE, GATE, Flags
from mtmc.evaluate.measure.wire import (
    ANSWER_LIMIT,
    READY,
    Call,
    Enqueued,
    Gone,
    Line,
    Nonsense,
    Open,
    Output,
    Profile,
    Profiled,
    Returned,
    Said,
    Silent,
    places_of,
)
from mtmc.outcome import Diagnosis

CALL = Call(0, [], 1, 1, 9, True)


@pytest.fixture
def ends() -> Iterator[tuple[Line, Line]]:
    ours, theirs = socket.socketpair()
    yield Line(ours), Line(theirs)
    ours.close()
    theirs.close()


def test_requests_and_descriptors_go_over_and_answers_come_back(ends: tuple[Line, Line]):
    oracle, candidate = ends
    read, write = os.pipe()
    oracle.ask(Open(10, 20), (write, read))
    request, fds = candidate.asked(fds=2)
    assert request == Open(10, 20)
    os.write(fds[0], b"x")
    assert os.read(fds[1], 1) == b"x"
    for said in (READY, Returned((Output("float32", (2, 3), (1, 0), "cpu"), Text("7")), "(*, *)", 0.25)):
        candidate.say(said)
        assert oracle.heard(1.0) == said


def test_silence_and_the_end_are_told_apart(ends: tuple[Line, Line]):
    oracle, candidate = ends
    with pytest.raises(Silent):
        oracle.heard(0.01)
    candidate.close()
    with pytest.raises(Gone):
        oracle.heard(1.0)


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(8, "little") + body


@pytest.mark.parametrize(
    "said",
    [
        (ANSWER_LIMIT + 1).to_bytes(8, "little"),
        *map(
            framed,
            (
                b"{1}",
                b"[]",
                b"{}",
                b"[" * 100_000,
                b'{"ready": 1}',
                b'{"enqueued": true}',
                b'{"diagnosis": {"verdict": "ok"}}',
                b'{"diagnosis": "ok"}',
                b'{"outputs": [], "structure": "()", "ms": NaN}',
                b'{"outputs": [], "structure": "()", "ms": 0.1, "verdict": "ok"}',
                b'{"outputs": [{"dtype": "float32", "shape": [2.5], "order": [0], "device": "cpu"}], "structure": "*"}',
            ),
        ),
    ],
)
def test_what_is_no_answer_is_nonsense(ends: tuple[Line, Line], said: bytes):
    oracle, candidate = ends
    candidate.socket.sendall(said)
    with pytest.raises(Nonsense):
        oracle.heard(1.0)
    candidate.socket.sendall(said)
    with pytest.raises(Failed) as caught:
        Conversation(Line(oracle.socket), Flags(), 5.0).hear(Returned)
    assert (caught.value.status, caught.value.diagnosis.kind) == ("crash", "BadAnswer")


@pytest.mark.parametrize(
    ("said", "status", "kind"),
    [
        (Raised(Diagnosis("x", "ValueError", "no")), "crash", "ValueError"),
        (READY, "crash", "BadAnswer"),
        (OutOfMemory("2 GiB"), "out_of_memory", "MemoryError"),
    ],
)
def test_a_stated_failure_becomes_a_diagnosis(ends: tuple[Line, Line], said: Said, status: str, kind: str):
    oracle, candidate = ends
    talk = Conversation(oracle, Flags(), 5.0)
    candidate.say(said)
    with pytest.raises(Failed) as caught:
        talk.hear(Returned)
    assert (caught.value.status, caught.value.diagnosis.kind) == (status, kind)
    assert caught.value.diagnosis.stage == "check"


def test_an_answer_before_the_flag_is_out_of_turn(ends: tuple[Line, Line]):
    oracle, candidate = ends
    talk = Conversation(oracle, Flags(), 5.0)
    candidate.say(Returned((), "()"))
    with pytest.raises(Failed, match="before it was done"):
        talk.await_done(1)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (Enqueued(6), "BadAnswer"),
        (Returned((), "()"), "BadAnswer"),
        (Raised(Diagnosis("x", "KeyError", "no")), "KeyError"),
    ],
)
def test_a_call_that_is_not_enqueued_opens_the_gate(ends: tuple[Line, Line], said: Said, kind: str):
    oracle, candidate = ends
    flags = Flags()
    talk = Conversation(oracle, flags, 5.0)
    candidate.say(Enqueued(7))
    assert talk.enqueued(7) and flags.words[GATE] == 0
    candidate.say(said)
    with pytest.raises(Failed) as caught:
        talk.enqueued(7)
    assert caught.value.diagnosis.kind == kind and flags.words[GATE] == 7


def test_a_belated_enqueued_is_passed_over_and_another_kind_of_answer_is_not(ends: tuple[Line, Line]):
    oracle, candidate = ends
    talk, seen = Conversation(oracle, Flags(), 5.0), Profiled(3.0, ("kernel",), 0.25)
    for said in (Enqueued(7), seen, seen):
        candidate.say(said)
    assert talk.ask(Profile(0, [], 1, 3), Profiled) == seen
    with pytest.raises(Failed, match="out of turn"):
        talk.hear(Returned)


def test_the_flag_ends_the_wait_and_the_deadline_too(ends: tuple[Line, Line]):
    flags = Flags()
    talk = Conversation(ends[0], flags, 0.05)
    flags.words[DONE] = 7
    talk.await_done(7)
    with pytest.raises(Failed) as caught:
        talk.await_done(8)
    assert caught.value.status == "timeout"


class Slow:
    """A line whose other end answers after so many seconds of a clock that nothing else moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, takes: float) -> None:
        self.takes, self.now = takes, 100.0
        monkeypatch.setattr(conversation.time, "monotonic", lambda: self.now)

    def heard(self, limit_s: float) -> Said:
        self.now += min(self.takes, limit_s)
        if self.takes > limit_s:
            raise Silent
        return READY

    def speaks(self) -> bool:
        self.now += self.takes
        return False


def test_only_the_time_counts_in_which_the_candidate_is_waited_for(monkeypatch: pytest.MonkeyPatch):
    """A minute of the oracle's own work between questions, which are answered in two seconds of five each."""
    line = Slow(monkeypatch, takes=2.0)
    talk = Conversation(line, Flags(), 5.0)
    for _ in range(2):
        line.now += 60.0
        assert talk.hear(type(READY)) == READY
    with pytest.raises(Failed, match="stopped after 5 s"):
        talk.hear(type(READY))


@pytest.mark.parametrize(
    "wait",
    [
        lambda talk: talk.hear(type(READY)),
        lambda talk: talk.begins(1),
        lambda talk: talk.await_done(1),
        lambda talk: talk.await_loop(1, 0.0),
    ],
)
def test_waits_of_all_kinds_add_up(monkeypatch: pytest.MonkeyPatch, wait: Callable[[Conversation], object]):
    """Three seconds of five are over when it begins, which asks for three more."""
    line = Slow(monkeypatch, takes=3.0)
    talk = Conversation(line, Flags(), 5.0)
    talk.hear(type(READY))
    begun = line.now
    with pytest.raises(Failed) as caught:
        wait(talk)
    assert caught.value.status == "timeout" and 2.0 <= line.now - begun <= 3.0


def test_tensors_are_replaced_by_their_places_in_order():
    a, b = torch.ones(2), torch.ones(3)
    spots, _ = place([a, b])
    assert places_of([a, {"x": (b, 2.5)}], spots) == [spots[0], {"x": (spots[1], 2.5)}]
