"""Calls in a row with real candidates, both sides in this process: what a candidate could gain by in them is refused."""

from __future__ import annotations

import dataclasses
import io
import itertools
import pickle
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mtmc.evaluate.check.layout import aligned
from mtmc.evaluate.loading.modules import candidate_text, construct, load_module
from mtmc.evaluate.measure import calls_in_a_row, conversation
from mtmc.evaluate.measure import subject as subject_module
from mtmc.evaluate.measure.call_time import LEAD, SLOTS, LoopBudget, Moments, Rounds, RowPlan, Slots
from mtmc.evaluate.measure.calls_in_a_row import CallsInARow, InputSource
from mtmc.evaluate.measure.conversation import Conversation, Failed
from mtmc.evaluate.measure.examination import Examination
from mtmc.evaluate.measure.flags import LED, Flags
from mtmc.evaluate.measure.host_backend import HostBackend
from mtmc.evaluate.measure.output_buffer import OutputBuffer
from mtmc.evaluate.measure.reference_state import output_bytes
from mtmc.evaluate.measure.subject import Subject
from mtmc.evaluate.measure.wire import Gone, Line, Load
from mtmc.evaluate.reference.effects import Remembered
from mtmc.evaluate.reference.expected_outputs import ExpectedOutputs
from mtmc.evaluate.reference.reference import Reference
from mtmc.task import Task, Variant, task_from_source
from tests.evaluate.evaluate_sources import PRODUCT
from tests.exploits.catalogue import Exploit, exploits, task
from tests.exploits.judging import reference_as_candidate

ROUNDS = 6
SIZES = (("rows", 104), ("width", 24), ("layers", 6))


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    """As in both processes."""
    with torch.no_grad():
        yield


def small(name: str) -> Task:
    found = task(name)
    return dataclasses.replace(found, full=Variant("full", SIZES))


@contextmanager
def side_by_side(
    of: Task, source: str, folder: Path, slots: Slots | None = None
) -> Iterator[tuple[Examination, Reference, Slots]]:
    """An examination of a candidate whose model is made, and which a thread of this process serves."""
    backend, flags = HostBackend(), Flags()
    backend.share(flags)
    reference = Reference(of, of.full, folder, 5)
    module = load_module(candidate_text(source, of.full.constants), folder / "candidate.py")
    expected = reference.timed(1)
    slots = slots or Slots.of(expected.inputs[0].numel() * 4, output_bytes(expected), 1 << 40)
    pieces = [backend.create(size) for size in slots.sizes]
    ours, theirs = socket.socketpair()
    window = backend.window(pieces[1][0], slots.sizes[1])
    inputs = backend.open(pieces[0][0], slots.sizes[0])
    subject = Subject(Line(theirs), backend, flags, inputs, window, slots.sizes[1], [])
    model = construct(module, "ModelNew", reference.arguments, 5, None)
    subject._models[0], subject._remembered[0] = model, Remembered(model)

    def serve() -> None:
        torch.set_grad_enabled(False)  # of this thread
        try:
            while True:
                subject.answer(subject._line.asked()[0])
        except (Gone, OSError):
            pass

    serving = threading.Thread(target=serve, daemon=True)
    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # both sides spin, in one process here: neither may keep the other from running
    serving.start()
    seeds = iter(range(100, 10000))
    talk = Conversation(Line(ours), flags, 600.0)
    buffer = OutputBuffer(pieces[0][1], pieces[1][1], torch.empty_like(pieces[1][1]), backend, judged=True)
    try:
        yield Examination(talk, buffer, backend, flags, lambda: next(seeds)), reference, slots
    finally:
        ours.close()
        serving.join()
        theirs.close()
        sys.setswitchinterval(switching)


def in_a_row(of: Task, source: str, folder: Path, slots: Slots | None = None, warm: int = 3) -> Rounds:
    """warm: calls before a round, where there are to be any."""
    with side_by_side(of, source, folder, slots) as (examination, reference, slots):
        examination.ask_for(reference.timed(2), 0, "the first call")
        found = InputSource.of(reference, 3)
        plan = RowPlan.of(0.01, slots, bool(found.keeps), bool(found.changes))
        plan = dataclasses.replace(plan, warm=min(warm, plan.warm))
        return examination.in_a_row(found, 0, plan, LoopBudget(ROUNDS, ROUNDS, 0.0, 6000.0))


@pytest.mark.parametrize("name", ["many_layers", "kept_layers"])
def test_honest_work_passes_every_round(name: str, tmp_path: Path) -> None:
    of = small(name)
    found = in_a_row(of, reference_as_candidate(of.source), tmp_path)
    assert len(found.hosts) == len(found.seen) == ROUNDS
    assert (found.output_bytes, found.input_bytes) == (104 * 24 * 4, aligned(104 * 24 * 4))


def attack(number: int) -> Exploit:
    [found] = [each for each in exploits() if each.number == number]
    return found


@pytest.mark.parametrize("number", [120, 123, 125])
def test_what_does_less_in_calls_in_a_row_is_wrong(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work for calls to come, work that is left out of some calls, and of all but the first."""
    of_round = calls_in_a_row._compared
    # As if it were faster in each round: all is compared. (On a busy machine a host's time may come out as 0, and nothing
    # is a share of that.)
    monkeypatch.setattr(calls_in_a_row, "_compared", lambda slots, _: of_round(slots, True))
    found = attack(number)
    with pytest.raises(Failed) as caught:
        in_a_row(small(found.task), found.source, tmp_path)
    assert caught.value.diagnosis.kind == "WrongValues" and "in a row" in caught.value.diagnosis.message


def test_no_inputs_come_twice(tmp_path: Path) -> None:
    """Who keeps answers by what is in the inputs finds none of them again in a call that counts."""
    found = attack(121)
    marked = found.source.replace(
        "if numbers not in self.known:", "if numbers in self.known:\n            again.append(1)\n        else:"
    )
    assert marked != found.source
    marked = marked.replace("class ModelNew", "again = []\n\n\nclass ModelNew").replace(
        "return self.known[numbers]", "return self.known[numbers] / (1 - len(again))"
    )
    in_a_row(small(found.task), marked, tmp_path, warm=0)
    with pytest.raises(Failed):  # the mark works
        in_a_row(small(found.task), marked, tmp_path, warm=2)


def _rows(
    monkeypatch: pytest.MonkeyPatch, hosts: Iterable[float], fast: Iterable[bool]
) -> tuple[CallsInARow, list[int]]:
    """Rounds in which the host takes so long, on threads that are fast or not; and how many calls of each are compared."""
    compared = list[int]()
    rows = CallsInARow.__new__(CallsInARow)
    rows._asked, rows._plan = SimpleNamespace(process=1), RowPlan(8, 0, Slots(SLOTS, 512, 512))  # type: ignore[assignment]
    rows._slots = rows._plan.slots
    left, are_fast = iter(hosts), iter(fast)
    rows._threads = SimpleNamespace(lending=lambda _: nullcontext(lambda: lambda: next(are_fast)))  # type: ignore[assignment]

    def prepared(source: Any, number: int, calls: int, lend: Any) -> Any:
        return SimpleNamespace(slots=tuple(range(calls))), 0.0, lend()

    monkeypatch.setattr(rows, "_prepared", prepared)
    monkeypatch.setattr(rows, "_moments", lambda row, own_ms: (Moments(0.0, 0.0, 8 * next(left), 9.0, 9.0), None))
    monkeypatch.setattr(rows, "_compare", lambda source, row, said, which: compared.append(len(which)) or [4])
    return rows, compared


_SOURCE = InputSource(lambda seed: [], lambda *_: ExpectedOutputs([], [], "*", []))


def test_a_round_by_which_a_version_would_be_faster_is_compared_in_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = [1.0, 1.5, 0.99, 0.6, 0.7, 0.5]
    rows, compared = _rows(monkeypatch, hosts, itertools.repeat(True))
    found = rows.rounds(_SOURCE, 0, LoopBudget(6, 6, 0.0, 60.0))
    assert found.hosts == pytest.approx(hosts)
    assert [count == LEAD + 8 for count in compared] == [True, False, False, True, False, True]
    assert all(count <= 2 or count == LEAD + 8 for count in compared)


def test_rounds_on_slow_threads_are_compared_and_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, compared = _rows(monkeypatch, [2.0, 1.0, 0.5, 1.1], [False, True, False, True])
    found = rows.rounds(_SOURCE, 0, LoopBudget(2, 2, 0.0, 60.0))
    assert found.hosts == pytest.approx([1.0, 1.1]) and found.slow_hosts == pytest.approx([2.0, 0.5])
    assert [count == LEAD + 8 for count in compared] == [True, True, True, False]


@pytest.mark.parametrize("times", [{"doubtful_seconds": 1e-9}, {"long_seconds": 1e-9}])
def test_where_no_thread_is_fast_the_slow_ones_count_when_time_is_up(
    monkeypatch: pytest.MonkeyPatch, times: dict[str, float]
) -> None:
    rows, _ = _rows(monkeypatch, itertools.repeat(2.0), itertools.repeat(False))
    found = rows.rounds(
        _SOURCE, 0, LoopBudget(**{"least": 3, "most": 6, "seconds": 0.0, "long_seconds": 60.0, **times})
    )
    assert len(found.hosts) == len(found.slow_hosts) == 1


def test_inputs_that_calls_change_are_not_compared_where_all_calls_have_the_same(tmp_path: Path) -> None:
    text = (
        "import torch\nrows = 8\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        x.add_(1)\n"
        "        return x * 2\n\n\ndef get_inputs():\n    return [torch.randn(rows, 4)]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    )
    of = Task("changing", text, Variant("full", (("rows", 8),)), Variant("small", (("rows", 2),)))
    for slots in (Slots(SLOTS, 512, 512), Slots(1, 512, 512)):
        found = in_a_row(of, reference_as_candidate(text), tmp_path, slots=slots)
        assert (len(found.hosts), found.output_bytes, found.input_bytes) == (ROUNDS, 128, 512 if slots.revealed else 0)


SUMMING = """import torch

rows = 8


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(4))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        self.total += x.sum(0)
        return x * 2


def get_inputs():
    return [torch.randn(rows, 4)]


def get_init_inputs():
    return []
"""
UPDATE = "self.total += x.sum(0)"


@pytest.mark.parametrize(
    "does",
    [
        f"if self.calls < 2:\n            {UPDATE}",  # none in a row
        f"if self.calls % 2:\n            {UPDATE}",
        "self.total += x[1:].sum(0) if self.calls > 1 else x.sum(0)",
        f"{UPDATE}\n        if self.calls > 1:\n            self.total = self.total.clone().zero_()",
    ],
)
@pytest.mark.parametrize("count", [SLOTS, 1])
def test_what_the_last_call_leaves_in_the_model_is_compared(does: str, count: int, tmp_path: Path) -> None:
    """No output tells of it, so that a version could leave it out of the calls in a row."""
    of = Task("summing", SUMMING, Variant("full", (("rows", 8),)), Variant("small", (("rows", 2),)))
    honest = reference_as_candidate(SUMMING)
    assert len(in_a_row(of, honest, tmp_path, slots=Slots(count, 512, 1024)).hosts) == ROUNDS
    source = honest.replace(UPDATE, does)
    assert source != honest
    with pytest.raises(Failed) as caught:
        in_a_row(of, source, tmp_path, slots=Slots(count, 512, 1024))
    assert "buffer 'total' after the call" in caught.value.diagnosis.message, caught.value.diagnosis
    assert "in a row" in caught.value.diagnosis.message


COUNTING = """import torch

rows = 8


class Model(torch.nn.Module):
    def forward(self, x):
        with open("CALLS", "a") as file:
            print(x.data_ptr(), file=file)
        return x * 2


def get_inputs():
    return [torch.randn(rows, 4)]


def get_init_inputs():
    return []
"""


def test_calls_that_make_the_host_warm_come_before_each_round(tmp_path: Path) -> None:
    """They have the inputs in the first slot, and none of them is counted."""
    text = COUNTING.replace("CALLS", str(tmp_path / "reference"))
    of = Task("counting", text, Variant("full", (("rows", 8),)), Variant("small", (("rows", 2),)))
    calls = {}
    for warm in (0, 5):
        source = reference_as_candidate(COUNTING.replace("CALLS", str(tmp_path / f"calls_{warm}")))
        assert in_a_row(of, source, tmp_path, Slots(SLOTS, 512, 512), warm=warm).counted + LEAD == SLOTS
        calls[warm] = [int(line) for line in (tmp_path / f"calls_{warm}").read_text().split()][1:]
    assert (len(calls[0]), len(calls[5])) == (ROUNDS * SLOTS, ROUNDS * (5 + SLOTS))
    first = min(calls[5])
    rounds = [calls[5][at : at + 5 + SLOTS] for at in range(0, len(calls[5]), 5 + SLOTS)]
    assert all(each[:5] == [first] * 5 and len(set(each[5:])) == SLOTS for each in rounds)


def test_what_the_mark_of_the_lead_takes_is_not_the_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signal, marks = HostBackend.signal, list[float]()

    def slow(self: HostBackend, word: int, serial: int) -> None:
        if word == LED:
            marks.append(1000.0)
        signal(self, word, serial)

    clock = SimpleNamespace(**{**vars(time), "perf_counter": lambda: time.perf_counter() + sum(marks)})
    for module in (conversation, calls_in_a_row):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(HostBackend, "signal", slow)
    of = small("many_layers")
    found = in_a_row(of, reference_as_candidate(of.source), tmp_path)
    assert len(marks) >= ROUNDS and min(found.hosts) < 1e6 / found.counted  # milliseconds of each call


def test_weights_go_to_the_candidate_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A live network's are hundreds of megabytes, and a model is made for each set of shapes."""
    monkeypatch.chdir(tmp_path)  # where a candidate's text is written
    of = task_from_source(PRODUCT, "t")
    kept = io.BytesIO()
    torch.save({"weight": torch.full((8, 5), 3.0)}, kept)
    of = dataclasses.replace(of, state=kept.getvalue())
    loaded, sent = list[bytes | None](), list[Load]()
    made = subject_module.construct
    monkeypatch.setattr(
        subject_module, "construct", lambda *args, **more: (loaded.append(args[4]), made(*args, **more))[1]
    )
    with side_by_side(of, PRODUCT.replace("Model", "ModelNew"), tmp_path) as (examination, reference, _):
        ask = examination._asked.ask
        monkeypatch.setattr(
            examination._asked, "ask", lambda request, *rest: (sent.append(request), ask(request, *rest))[1]
        )
        state = SimpleNamespace(
            task=of,
            variants=of.variants,
            reference=lambda *given: (reference, 5),
            arguments=lambda *given: pickle.dumps(reference.arguments),
        )
        numbers = {examination.load(state, 0, PRODUCT.replace("Model", "ModelNew"), moved) for moved in (False, True)}
    assert numbers == {0, 1} and [each.known for each in sent] == [False, True]
    assert sent[0].state == of.state and sent[1].state is None
    assert loaded == [of.state, of.state]
