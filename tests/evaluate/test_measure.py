"""The conversation between oracle and candidate, on a backend without a device: everything but the times is real."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from evaluate_sources import HONEST, TASK
from test_cases_ahead import soon

from mtmc.errors import EvaluatorError, TaskError, TooLarge
from mtmc.evaluate.audit.diagnosis import Failure
from mtmc.evaluate.gpu import GpuEvaluator, GpuSettings
from mtmc.evaluate.measure.clock import OverheadTable, TaskOverhead, Timing
from mtmc.evaluate.measure.endings import exception_line
from mtmc.evaluate.measure.gpu_worker import GpuWorker
from mtmc.evaluate.measure.measurement import TIMING_BUDGETS, screened
from mtmc.evaluate.measure.oracle import Oracle
from mtmc.evaluate.measure.oracle_process import OracleProcess
from mtmc.evaluate.measure.peer import end
from mtmc.evaluate.measure.prefetcher import Prefetcher
from mtmc.evaluate.measure.questions import ENDED, About, Ahead, Answer, Calibrate, Examine, Made, Measured, Same
from mtmc.evaluate.measure.room import Room
from mtmc.evaluate.measure.spare_processes import SpareProcesses
from mtmc.evaluate.measure.wire import Line
from mtmc.evaluate.pool.job import JobResult
from mtmc.evaluate.pool.worker import Pool
from mtmc.outcome import Diagnosis, Outcome
from mtmc.protocols import Depth, EvaluationRequest
from mtmc.task import Task, Variant, capture_module

SMALL = dataclasses.replace(
    TASK, full=Variant("full", (("rows", 8), ("cols", 96))), small=Variant("small", (("rows", 4), ("cols", 33)))
)

FORWARD = "    def forward(self, x):\n"


@pytest.fixture(scope="module")
def evaluator() -> Iterator[GpuEvaluator]:
    with GpuEvaluator(GpuSettings(builders=1, timeout_s=20.0, check_variants=1), backend="host") as opened:
        yield opened


@pytest.fixture
def staying(evaluator: GpuEvaluator) -> Iterator[GpuEvaluator]:
    """The same evaluator, whose processes stay for three candidates; none does when the test ends in a verification."""
    [worker] = evaluator._all
    usual = worker._settings
    worker._settings = dataclasses.replace(usual, reuse=3)
    yield evaluator
    worker._settings = usual
    assert worker._stayed is None


def found(evaluator: GpuEvaluator, source: str, depth: Depth = "screen", task: Task = SMALL) -> Outcome:
    [outcome] = evaluator.evaluate([EvaluationRequest(task, source, 0, depth)])
    return outcome


def changed(old: str, new: str) -> str:
    assert old in HONEST
    return HONEST.replace(old, new)


def test_nothing_is_built_while_the_host_of_a_version_is_timed(
    evaluator: GpuEvaluator, monkeypatch: pytest.MonkeyPatch
):
    said: list[bool] = []
    assert found(evaluator, HONEST).ok  # the first one also calibrates
    monkeypatch.setattr(evaluator._builds.start(), "stand_still", said.append)
    assert found(evaluator, HONEST).ok
    assert said == [True, False]
    assert evaluator._stillness._wanted == 0


def test_what_works_beside_stands_still_while_the_host_of_a_version_is_timed(
    evaluator: GpuEvaluator, monkeypatch: pytest.MonkeyPatch
):
    told: list[str] = []
    assert found(evaluator, HONEST).ok  # the first one also calibrates
    with monkeypatch.context() as patched:
        patched.setattr(evaluator._stillness, "_beside", [])
        patched.setattr(os, "kill", lambda pid, number: told.append(f"{pid} {signal.Signals(number).name}"))
        evaluator.beside(lambda: [17])
        assert found(evaluator, HONEST).ok
    assert told == ["17 SIGSTOP", "17 SIGCONT"]


@pytest.mark.parametrize("depth", ["screen", "verify"])
def test_an_honest_kernel_is_measured(evaluator: GpuEvaluator, depth: Depth):
    outcome = found(evaluator, HONEST, depth)
    assert outcome.ok, outcome
    assert outcome.runtime_kind == "measured"
    assert outcome.runtime_low_ms <= outcome.runtime_ms <= outcome.runtime_high_ms
    assert outcome.trials >= TIMING_BUDGETS[depth].least
    assert outcome.metrics["error"] < 1e-5  # "wide" inputs spread over twelve powers of two
    assert outcome.metrics["eager_ms"] > 0
    assert outcome.metrics["kernels"] == 1 and outcome.metrics["bytes_moved"] == 4 * (8 * 96 + 96 + 8 * 96)
    assert {"looks", "rounds", "ready_task_s", "ready_process_s", "loop_quiet_s", "turn_s"} <= set(outcome.metrics)
    stages = ("ready_s", "check_s", "time_s", "verify_s", "loop_s")
    assert outcome.metrics["held_s"] > sum(outcome.metrics[stage] for stage in stages)
    assert outcome.metrics["programs"] == 8 and outcome.metrics["registers"] > 8
    assert 0 < outcome.metrics["occupancy"] <= 1 and {"spills", "shared_memory"} <= set(outcome.metrics)


def test_a_process_may_stay_for_the_next_version_as_long_as_all_is_right(
    staying: GpuEvaluator, monkeypatch: pytest.MonkeyPatch
):
    fresh, kinds = SpareProcesses.fresh, list[bool]()

    def counted(processes: SpareProcesses, locked: bool) -> Any:
        kinds.append(locked)
        return fresh(processes, locked)

    monkeypatch.setattr(SpareProcesses, "fresh", counted)
    wrong = changed("value / tl.sum(value, axis=0)", "value / tl.max(value, axis=0)")
    smaller = dataclasses.replace(SMALL, full=Variant("full", (("rows", 6), ("cols", 96))))
    assert found(staying, HONEST).ok
    before = len(kinds)  # with the one that was calibrated in
    assert found(staying, f"{HONEST}# 1\n").ok
    assert found(staying, f"{HONEST}# 2\n").metrics["process_used"] == 2
    assert len(kinds) == before
    assert found(staying, f"{HONEST}# 3\n").metrics["process_used"] == 0  # the fourth
    assert len(kinds) == before + 1
    assert found(staying, wrong).status == "wrong_result"
    assert len(kinds) == before + 1
    assert found(staying, HONEST).ok  # after a wrong one
    assert len(kinds) == before + 2
    assert found(staying, HONEST, task=smaller).ok
    assert len(kinds) == before + 2
    [worker] = staying._all
    lost = worker._stayed
    worker._stayed = dataclasses.replace(lost, token="0" * 32)  # as where the shared memory was made anew
    assert found(staying, HONEST).ok
    worker._unwanted += (lost.token,)  # in truth it is there still
    assert len(kinds) == before + 3
    assert found(staying, HONEST, "verify").ok
    assert len(kinds) == before + 4


def test_the_reference_of_the_next_screening_has_run_before_it_is_asked_for(
    evaluator: GpuEvaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = []
    ask = OracleProcess.ask

    def heard(self: OracleProcess, request: object, limit_s: float) -> object:
        answer = ask(self, request, limit_s)  # type: ignore[arg-type]
        if isinstance(request, Ahead):
            answers.append(answer.found)
        return answer

    monkeypatch.setattr(OracleProcess, "ask", heard)
    task = dataclasses.replace(SMALL, source=f"{SMALL.source}# ahead\n")  # for which nothing waits yet
    cases = len(screened(task, 1).cases)

    def reference_s(depth: Depth) -> float:
        answers.clear()
        outcome = found(evaluator, HONEST, depth, task)
        assert outcome.ok, outcome
        assert soon(lambda: Made(False) in answers), answers
        assert answers == [Made(True)] * cases + [Made(False)]
        return outcome.metrics["reference_s"]

    reference_s("screen")  # for which nothing waits yet
    before = min(reference_s("screen") for _ in range(3))
    verified = min(reference_s("verify") for _ in range(3))  # which has weights and inputs of its own
    after = min(reference_s("screen") for _ in range(3))
    assert max(before, after) < verified, "all cases were there, and a verification leaves them"


def test_an_oracle_that_was_lost_is_told_weights_again(
    evaluator: GpuEvaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    sent = []
    without = OracleProcess._without_known

    def watched(self: OracleProcess, request: Any) -> Any:
        told = without(self, request)
        sent.extend([type(told)] if isinstance(request, Examine) else [])
        return told

    monkeypatch.setattr(OracleProcess, "_without_known", watched)
    task = capture_module(torch.nn.Linear(24, 40), [torch.randn(6, 24)], name="linear").task
    assert task.state is not None
    source = task.source.replace("class Model(", "class ModelNew(").replace("super(Model,", "super(ModelNew,")
    for at in range(2):
        assert found(evaluator, f"{source}\n# {at}\n", "screen", task).ok
    [worker] = evaluator._all
    assert worker._oracle.process is not None
    worker._oracle.process._process.kill()
    worker._oracle.process._process.wait()
    outcome = found(evaluator, f"{source}\n# 2\n", "screen", task)
    assert outcome.ok, outcome
    assert sent[:2] == [Examine, Same] and sent[-1] is Examine, "the lost one's successor knows nothing"


def test_processes_that_a_lost_oracle_left_standing_still_end(evaluator: GpuEvaluator):
    [worker] = evaluator._all
    assert found(evaluator, HONEST).ok and worker._oracle.process is not None
    spares = list(worker._processes._waiting.values())
    worker._processes._pools[True].stand_still(True)
    worker._oracle.process._process.kill()
    assert found(evaluator, f"{HONEST}# after it\n").ok
    assert spares and not wait([spare.end for spare in spares], timeout=300.0).not_done


def test_an_output_may_lie_in_another_order(evaluator: GpuEvaluator):
    source = changed("        return out", "        return out.t().contiguous().t()")
    assert found(evaluator, source).ok
    transposed = found(evaluator, changed("        return out", "        return out.t().contiguous()"))
    assert transposed.diagnosis.kind == "Shape"


def test_what_is_right_for_usual_numbers_only_is_seen_at_the_full_shapes(evaluator: GpuEvaluator):
    narrow = changed(FORWARD, f"{FORWARD}        x = x.clamp(-15, 15) if x.shape[1] == 96 else x\n")
    ones = dataclasses.replace(SMALL, source=SMALL.source.replace("randn(width)", "ones(width)"))
    call = "scaled_softmax[(x.shape[0],)](x, self.weight, out"
    other = "torch.ones_like(self.weight) if x.shape[1] == 96 else self.weight"
    unweighted = changed(call, call.replace("self.weight", other))
    unweighted = unweighted.replace("randn(width)", "ones(width)")
    assert found(evaluator, unweighted, "screen", ones).ok
    for source, depth, task, told in (
        (narrow, "screen", SMALL, "inputs that stand out"),
        (unweighted, "verify", ones, "weights moved"),
    ):
        outcome = found(evaluator, source, depth, task)
        assert outcome.status == "wrong_result" and outcome.diagnosis is not None, outcome
        assert "full shapes" in outcome.diagnosis.message and told in outcome.diagnosis.message


def test_a_wrong_kernel_is_told_where(evaluator: GpuEvaluator):
    outcome = found(evaluator, changed("value / tl.sum(value, axis=0)", "value / tl.max(value, axis=0)"))
    assert (outcome.status, outcome.diagnosis.stage, outcome.diagnosis.kind) == ("wrong_result", "check", "WrongValues")


def test_a_result_kept_by_address_is_wrong_when_it_is_timed(evaluator: GpuEvaluator):
    """The arena hands every input out at the same address, with new values: what a cache gives back is old."""
    source = changed(
        FORWARD,
        "    kept = {}\n\n"
        + FORWARD
        + "        if x.data_ptr() in self.kept:\n            return self.kept[x.data_ptr()]\n",
    ).replace("        return out", "        self.kept[x.data_ptr()] = out\n        return out")
    outcome = found(evaluator, source)
    assert outcome.status == "wrong_result" and outcome.metrics["held_s"] > 0 and outcome.metrics["queued_s"] >= 0


def test_cheating_from_the_tenth_call_on_is_seen(evaluator: GpuEvaluator):
    source = changed(FORWARD, "    calls = [0]\n\n" + FORWARD + "        self.calls[0] += 1\n").replace(
        "        return out", "        return out if self.calls[0] < 10 else out * 1.5"
    )
    outcome = found(evaluator, source)
    assert (outcome.status, outcome.diagnosis.stage) == ("wrong_result", "time")


@pytest.mark.parametrize(
    "forward",
    [
        # gives again what it gave before, where it is called at another address
        "if x.data_ptr() != self.kept.setdefault('at', x.data_ptr()):\n            return self.kept['out']\n",
        # has another place for its outputs, and works only now and then
        "self.kept['n'] = self.kept.get('n', 0) + (x.data_ptr() != self.kept.setdefault('at', x.data_ptr()))\n"
        "        if self.kept['n'] % 5:\n            return self.kept['out']\n",
    ],
)
def test_work_that_is_left_out_of_calls_in_a_row_is_seen(evaluator: GpuEvaluator, forward: str):
    source = changed(FORWARD, "    kept = {}\n\n" + FORWARD + f"        {forward}").replace(
        "        return out", "        self.kept['out'] = out\n        return out"
    )
    outcome = found(evaluator, source)
    assert (outcome.status, outcome.diagnosis.stage) == ("wrong_result", "time")
    assert "in a row" in outcome.diagnosis.message


def test_what_the_host_takes_is_part_of_a_runtime_unless_the_task_is_called_under_a_cuda_graph(evaluator: GpuEvaluator):
    lazy = changed(FORWARD, "    kept = {}\n\n" + FORWARD + LATE)
    graphed = dataclasses.replace(SMALL, source=f"CUDA_GRAPH = True\n{SMALL.source}")
    assert graphed.cuda_graph and not SMALL.cuda_graph
    for task in (SMALL, graphed):
        outcome = found(evaluator, lazy, task=task)
        assert outcome.ok, outcome
        assert outcome.metrics["host_ms"] > 20  # no machine adds up so many numbers in less
        assert outcome.runtime_ms == outcome.metrics["device_ms" if task is graphed else "call_ms"]
        assert outcome.metrics["call_ms"] >= outcome.metrics["host_ms"]


LATE = """        if x.data_ptr() != self.kept.setdefault('at', x.data_ptr()):
            sum(range(6_000_000))  # of a host that has more to do where the calls are in a row
"""


def test_the_input_must_stay_as_it_is(evaluator: GpuEvaluator):
    outcome = found(evaluator, changed("        return out", "        x.zero_()\n        return out"))
    assert (outcome.status, outcome.diagnosis.kind) == ("wrong_result", "InputMutated")


LOOP = """        while x.device.type != "meta" and float(out.sum()) > -1e30:
            pass
        return out"""


def test_a_hang_is_stopped_and_the_next_one_lives(evaluator: GpuEvaluator):
    quick = dataclasses.replace(evaluator._settings, timeout_s=3.0)
    evaluator._settings, before = quick, evaluator._settings
    try:
        outcome = found(evaluator, changed("        return out", LOOP))
    finally:
        evaluator._settings = before
    assert outcome.status in ("timeout", "build_error")
    assert found(evaluator, HONEST).ok


def test_an_exit_is_a_crash_and_the_next_one_lives(evaluator: GpuEvaluator):
    outcome = found(evaluator, changed("        return out", "        raise SystemExit(0)"))
    assert outcome.status in ("crash", "build_error")
    assert found(evaluator, HONEST).ok


@pytest.mark.parametrize(
    ("verdicts", "kept"),
    [
        (["HiddenTime", "ok"], "ok"),
        (["HiddenTime", "WorksAhead", "ok"], "ok"),
        (["HiddenTime"] * 3, "HiddenTime"),
        (["HiddenTime", "GateForced"], "GateForced"),
    ],
)
def test_a_doubtful_verdict_is_confirmed_by_further_processes(
    evaluator: GpuEvaluator, monkeypatch: pytest.MonkeyPatch, verdicts: list[str], kept: str
):
    left, given = iter(verdicts), list[bool]()
    ended: Future[JobResult] = Future()
    ended.set_result(JobResult("ok"))

    def examined(fields: dict[str, Any], quiet: bool, _: None) -> tuple[Answer, Future[JobResult[None]]]:
        assert quiet == (evaluator._stillness._wanted == 1) == bool(given)
        given.append(quiet)
        assert fields.get("charge", False) == (len(given) == 3)  # nothing is left that could tell what it was
        kind = next(left)
        if kind == "ok":
            return Answer(Measured(Timing(1.0, 1.0, 1.0, 12))), ended
        return Answer(Failure("rejected", Diagnosis("time", kind, "hidden")), taken=True), ended

    worker = evaluator._all[0]
    monkeypatch.setattr(worker, "_examined", examined)
    answer, _ = worker.examine(limit_s=1.0, task=SMALL)
    assert ("ok" if isinstance(answer.found, Measured) else answer.found.diagnosis.kind) == kept
    assert next(left, None) is None


@pytest.mark.parametrize("free", [True, False])
def test_what_other_tasks_have_left_makes_room_for_a_large_one(monkeypatch: pytest.MonkeyPatch, free: bool):
    oracle, steps = object.__new__(Oracle), list[str]()

    def room(task: Task) -> str:
        steps.append("look")
        if steps.count("look") == 1 or not free:
            raise TooLarge("needs about 41.5 GiB of GPU memory and 41.4 GiB are free")
        return "state"

    monkeypatch.setattr(oracle, "_with_room", room)
    monkeypatch.setattr(oracle, "_give_up_arena", lambda: steps.append("arena"))
    oracle._cache = type("Cache", (), {"clear": lambda self: steps.append("models")})()
    if free:
        assert oracle._state_of(SMALL) == "state"
    else:
        with pytest.raises(TooLarge, match=r"41\.4 GiB are free"):
            oracle._state_of(SMALL)
    assert steps == ["look", "arena", "models", "look"]


@pytest.mark.parametrize("compiling", [0, 3])
@pytest.mark.parametrize("who", ["task", "version"])
def test_a_task_waits_for_memory_that_processes_have_that_compile(
    evaluator: GpuEvaluator, monkeypatch: pytest.MonkeyPatch, compiling: int, who: str
):
    worker, looks = evaluator._all[0], list[int]()
    ended: Future[JobResult] = Future()
    ended.set_result(JobResult("ok"))

    def examined(fields: dict[str, Any], quiet: bool, _: None) -> tuple[Answer, Future[JobResult[None]]]:
        looks.append(worker._room.holders)
        if looks[-1] or not compiling:
            Timer(0.05, worker._room.leave, [str(looks[-1])]).start()
            if who == "version":
                return Answer(Failure("out_of_memory", Diagnosis("check", "MemoryError", "512 MiB"))), ended
            raise TooLarge("41.4 GiB are free")
        return Answer(Measured(Timing(1.0, 1.0, 1.0, 12))), ended

    monkeypatch.setattr(worker, "_examined", examined)
    monkeypatch.setattr(worker, "_room", Room())
    for number in range(1, compiling + 1):
        worker._room.take(str(number), 0.0)
    if not compiling:
        if who == "task":
            with pytest.raises(TooLarge):
                worker.examine(limit_s=1.0, task=SMALL)
        else:
            found = worker.examine(limit_s=1.0, task=SMALL)[0].found
            assert isinstance(found, Failure) and found.status == "out_of_memory"
        assert looks == [0]
        return
    answer, _ = worker.examine(limit_s=1.0, task=SMALL)
    assert isinstance(answer.found, Measured) and looks == [3, 2, 1, 0]


def test_nobody_begins_to_hold_memory_of_which_somebody_is_short() -> None:
    room, began = Room(), threading.Event()
    room.take("first", 0.0)
    with room.wanted():
        late = threading.Thread(target=lambda: (room.take("second", 60.0), began.set()))
        late.start()
        assert not began.wait(0.2) and room.holders == 1
        assert not room.wait(time.monotonic() + 0.05)  # nobody has left
        Timer(0.05, room.leave, ["first"]).start()
        assert room.wait(time.monotonic() + 60) and room.holders == 0
        assert not room.wait(time.monotonic() + 60)  # there is nobody to wait for
    assert began.wait(60) and room.holders == 1
    late.join()
    with room.wanted():
        room.take("third", 0.05)  # not for ever
    assert room.holders == 2


@pytest.mark.parametrize("doubts", [1, 2])
def test_the_overhead_is_measured_anew_where_a_further_process_is_in_doubt_as_well(
    evaluator: GpuEvaluator, monkeypatch: pytest.MonkeyPatch, doubts: int
):
    asked, measured = list[str](), list[Any]()
    ask = OracleProcess.ask

    def watched(process: OracleProcess, request: Any, limit_s: float) -> Answer:
        answer = ask(process, request, limit_s)
        if isinstance(request, Ahead):  # while nothing was examined
            return answer
        asked.append(type(request).__name__)
        if isinstance(request, Calibrate):
            measured.append(answer.found.overhead)
        if asked == ["Examine"] * len(asked) and len(asked) <= doubts:
            return dataclasses.replace(answer, found=Failure("rejected", Diagnosis("time", "HiddenTime", "hidden")))
        return answer

    assert found(evaluator, HONEST).ok  # the first one calibrates
    monkeypatch.setattr(OracleProcess, "ask", watched)
    outcome = found(evaluator, HONEST)
    assert outcome.ok
    assert outcome.metrics["held_s"] > outcome.metrics["again_s"] > outcome.metrics.get("calibrate_s", 0.0)
    monkeypatch.undo()
    assert not {"again_s", "calibrate_s"} & set(found(evaluator, HONEST).metrics)
    assert ("calibrate_s" in outcome.metrics) == (doubts == 2)
    if doubts == 1:
        assert asked == ["Examine", "Examine"]
        return
    assert asked == ["Examine", "Examine", "Calibrate", "Calibrate", "Examine"]
    table, own = measured  # of all tasks, then among the draws of this one
    assert isinstance(table, OverheadTable)
    assert isinstance(own, TaskOverhead)
    assert (own.outputs, own.ahead_ms > 0, own.everywhere_ms is not None) == (1, True, True)
    assert own.output_bytes > 0


def test_a_process_that_does_not_start_is_not_out_of_memory(evaluator: GpuEvaluator, monkeypatch: pytest.MonkeyPatch):
    """It has connected, then raises: the oracle hears of its end before it has said its last words."""
    worker = evaluator._all[0]
    run = Pool.run

    def broken(pool: Pool, function: Any, arguments: dict[str, Any], *limits: Any) -> JobResult:
        return run(pool, function, {**arguments, "cache": None}, *limits)

    assert found(evaluator, HONEST).ok
    monkeypatch.setattr(Pool, "run", broken)
    with worker._lock:
        while not worker._processes._ready.empty():
            worker._unwanted += (worker._processes._ready.get().token,)
        worker._processes.fill()
    try:
        with pytest.raises(EvaluatorError, match=r"GPU .* failed 3 times: .*: TypeError: .*NoneType.*$"):
            found_by_worker(worker, HONEST)
    finally:
        monkeypatch.undo()
        with worker._lock:
            worker._processes.fill()
    assert found(evaluator, HONEST).ok


def found_by_worker(worker: GpuWorker, source: str) -> Answer:
    """The worker's verdict on a version, without its build."""
    answer, _ = worker.examine(task=SMALL, source=source, depth="screen", check_variants=1, limit_s=20.0)
    return answer


def test_a_process_that_the_evaluator_ended_tells_nothing_by_its_end(
    evaluator: GpuEvaluator, monkeypatch: pytest.MonkeyPatch
):
    ended: Future[JobResult] = Future()
    ended.set_result(JobResult("out_of_memory", signal="SIGKILL"))
    for killed in (True, False):
        failure = Failure("crash", Diagnosis("time", ENDED, "the candidate's process ended"))
        answer = Answer(failure, killed=killed, taken=True)
        monkeypatch.setattr(evaluator._all[0], "_examined", lambda *_, answer=answer, **__: (answer, ended))
        outcome = evaluator._examined(EvaluationRequest(SMALL, HONEST), {})
        assert outcome.status == ("crash" if killed else "out_of_memory")


CUDA_ERROR = """first words
Traceback (most recent call last):
  File "subject.py", line 1, in serve
    device = open_backend(backend)
             ^^^^^^^^^^^^^^^^^^^
torch.AcceleratorError: CUDA error: out of memory
CUDA kernel errors might be asynchronously reported at some other API call.

Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (CUDA_ERROR, "torch.AcceleratorError: CUDA error: out of memory"),
        (CUDA_ERROR + CUDA_ERROR.replace("CUDA error", "another"), "torch.AcceleratorError: another: out of memory"),
        ("one\n  two \n\n", "two"),
        ("", ""),
    ],
)
def test_the_line_that_names_an_exception(text: str, line: str):
    assert exception_line(text) == line


@pytest.mark.parametrize(("after", "killed", "code"), [("os._exit(3)", False, 3), ("time.sleep(60)", True, -9)])
def test_a_process_that_closed_its_line_has_time_to_end(tmp_path: Path, after: str, killed: bool, code: int):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "oracle"))
        listener.listen()
        text = (
            "import os, socket, sys, time; s = socket.socket(1); s.connect(sys.argv[1]); s.close(); time.sleep(0.1); "
        )
        process = subprocess.Popen([sys.executable, "-S", "-c", text + after, str(tmp_path / "oracle")])
        connection, _ = listener.accept()
        assert end(Line(connection), 300.0 if not killed else 0.3) is killed
        assert process.wait() == code


def test_many_at_once_keep_their_order(evaluator: GpuEvaluator):
    wrong = changed("value / tl.sum(value, axis=0)", "value")
    requests = [EvaluationRequest(SMALL, source) for source in (HONEST, wrong, HONEST)]
    assert [outcome.status for outcome in evaluator.evaluate(requests)] == ["ok", "wrong_result", "ok"]


def test_a_random_reference_is_refused(evaluator: GpuEvaluator):
    random = dataclasses.replace(SMALL, source=SMALL.source.replace("x * self.weight", "x * torch.rand_like(x)"))
    with pytest.raises(TaskError, match="determin"):
        found(evaluator, HONEST, task=random)


def test_tasks_that_are_refused_take_no_process(staying: GpuEvaluator, caplog: pytest.LogCaptureFixture):
    random = dataclasses.replace(SMALL, source=SMALL.source.replace("x * self.weight", "x * torch.rand_like(x)"))
    assert found(staying, HONEST).ok
    [worker] = staying._all
    for _ in range(worker._settings.spares + 3):
        with pytest.raises(TaskError, match="determin"):
            found(staying, HONEST, "verify", task=random)
    assert worker._processes._ready.qsize() <= worker._settings.spares + 1
    with pytest.raises(TaskError, match="determin"):
        worker.examine(task=random, source="", depth="screen", check_variants=1, limit_s=20.0, baseline="eager")
    assert worker._unwanted
    assert found(staying, HONEST, "verify").ok
    assert not worker._unwanted
    assert "did not start" not in caplog.text


def test_a_task_whose_output_says_nothing_is_warned_of_once(evaluator: GpuEvaluator, caplog: pytest.LogCaptureFixture):
    zeroed = dataclasses.replace(SMALL, source=SMALL.source.replace("dim=-1)", "dim=-1) * 0.0"))
    silent = changed("value / tl.sum(value, axis=0)", "value * 0.0")
    for _ in range(2):
        assert found(evaluator, silent, task=zeroed).ok
    told = [record for record in caplog.records if "any kernel" in record.getMessage()]
    assert len(told) == len({record.getMessage() for record in told}) >= 3


def test_without_a_gpu_the_message_says_what_to_use():
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(EvaluatorError, match="evaluator=lab"):
        GpuSettings().open()


def test_the_compiler_is_loaded_without_counting_devices() -> None:
    """CUDA's count of devices would keep every forked process from the GPU."""
    code = """
import torch
from mtmc.evaluate.measure.candidate_process import load_compiler
def counted(): raise SystemExit("asked for devices")
torch.cuda.is_available = torch.cuda.device_count = torch._C._cuda_getDeviceCount = counted
torch._C._cuda_getCurrentRawStream = None  # builds for CPUs lack it
load_compiler()
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr == ""


def test_builders_are_ready_before_anything_is_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    """A baseline of eager mode builds nothing, and its process finds Triton's launcher in the builders' cache."""
    done: list[str] = []

    def noting(_: Pool, function: Any, *rest: Any, **more: Any) -> JobResult:
        done.append(function.__qualname__)
        return JobResult("ok")

    def examine(*_: Any, **__: Any) -> None:
        raise LookupError(done.copy())

    monkeypatch.setattr(Pool, "run", noting)
    monkeypatch.setattr(GpuWorker, "warm_up", lambda self: None)
    monkeypatch.setattr(GpuWorker, "examine", examine)
    monkeypatch.setattr(GpuWorker, "about", lambda self: About(None))
    settings = GpuSettings(builders=1, baselines=("eager",), reuse=3)
    with GpuEvaluator(settings, backend="host") as opened:
        assert opened._all[0]._settings.reuse == 3
        with pytest.raises(LookupError, match="ready"):
            opened.baselines(dataclasses.replace(SMALL, name="never_seen"))


def test_items_are_made_ahead_as_far_as_there_is_room_for_them():
    made = list[int]()
    coming = Prefetcher((made.append(number) or number for number in range(4)), 2)
    assert [coming.prepare() for _ in range(3)] == [True, True, False] and made == [0, 1]
    assert coming.take() == 0 and coming.prepare() and made == [0, 1, 2]
    assert [coming.take() for _ in range(3)] == [1, 2, 3]
    assert coming.prepare() and not coming.prepare()  # that there are no more is known once
    assert coming.take() is None is coming.take()


def mutating(forward: str, init: str) -> Task:
    """A task whose reference changes something."""
    return Task(
        "mutating",
        MUTATING.replace("INIT", init).replace("FORWARD", forward.replace("; ", "\n        ")),
        Variant("full", (("rows", 8), ("cols", 64))),
        Variant("small", (("rows", 4), ("cols", 12))),
    )


MUTATING = """
import torch

rows, cols = 32, 64


class Model(torch.nn.Module):
    def __init__(self, cols):
        super().__init__()
        INIT

    def forward(self, x):
        FORWARD


def get_inputs():
    return [torch.randn(rows, cols)]


def get_init_inputs():
    return [cols]
"""


AVERAGED = """
import torch
import triton
import triton.language as tl


@triton.jit
def averaged(ema, mean, out, n, BLOCK: tl.constexpr):
    index = tl.arange(0, BLOCK)
    old = tl.load(ema + index, index < n, other=0.0)
    new = tl.load(mean + index, index < n, other=0.0)
    tl.store(out + index, old * 0.9 + new * 0.1, index < n)


class ModelNew(torch.nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.register_buffer("ema", torch.zeros(cols))

    def forward(self, x):
        BODY
"""
AVERAGE = "new = torch.empty_like(self.ema); averaged[(1,)](self.ema, x.mean(0), new, x.shape[1], BLOCK=128); "


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (f"{AVERAGE}self.ema.copy_(new); return x - new", ""),
        (f"{AVERAGE}return x - new", "WrongValues"),
        (
            f"{AVERAGE}self.calls += 1; self.ema.copy_(new if self.calls < 16 else self.ema); return x - new",
            "WrongValues",
        ),
    ],
)
def test_the_gpu_evaluator_compares_buffers_in_checks_and_in_timed_calls(
    evaluator: GpuEvaluator, body: str, kind: str
) -> None:
    source = AVERAGED.replace("BODY", body.replace("; ", "\n        "))
    if "calls" in body:
        source = source.replace("    def forward", "        self.calls = 0\n\n    def forward")
    task = mutating(
        "self.ema.mul_(0.9).add_(x.mean(0), alpha=0.1); return x - self.ema",
        'self.register_buffer("ema", torch.zeros(cols))',
    )
    outcome = found(evaluator, source, task=task)
    if not kind:
        assert outcome.ok and outcome.metrics["eager_ms"] > 0, outcome
        return
    assert outcome.diagnosis is not None and outcome.diagnosis.kind == kind, outcome
    told = ["buffer 'ema' after the call"] + ["in a row"] * ("calls" in body)  # or what the call after it makes of that
    assert any(each in outcome.diagnosis.message for each in told)
    assert outcome.diagnosis.stage == ("time" if "calls" in body else "check")


def test_the_gpu_evaluator_compares_changed_inputs(evaluator: GpuEvaluator) -> None:
    task = mutating("x.add_(1); return x * 2", "pass")
    add = "out = torch.empty_like(x); added[(1,)](x, out, x.numel(), BLOCK=2048); "
    kernel = (
        AVERAGED.replace("averaged(ema, mean, out, n", "added(x, out, n")
        .replace("    old = tl.load(ema + index, index < n, other=0.0)\n", "")
        .replace("tl.load(mean", "tl.load(x")
        .replace("old * 0.9 + new * 0.1", "new + 1.0")
    )
    for body, right in ((f"{add}x.copy_(out); return out * 2", True), (f"{add}return out * 2", False)):
        source = kernel.replace("BODY", body.replace("; ", "\n        "))
        outcome = found(evaluator, source, task=task)
        assert outcome.ok == right, outcome
        if not right:
            assert outcome.diagnosis is not None and "input 0 after the call" in outcome.diagnosis.message
