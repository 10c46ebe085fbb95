"""The oracle: one trusted process per GPU. It holds the references, the secret seeds, the clock and the verdict.

Started by a `Lane`, which asks over the control socket, one thing at a time; candidates' processes connect to a socket
in the lane's folder and say their token. No candidate's code ever runs here, and no expected value leaves.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import logging
import os
import pickle
import secrets
import socket
import time
from dataclasses import asdict, replace
from pathlib import Path

import torch

from mtmc.errors import MtmcError
from mtmc.evaluate.audit.diagnosis import Failure
from mtmc.evaluate.check.cases import plan
from mtmc.evaluate.check.layout import aligned
from mtmc.evaluate.compiling.target import describe_device
from mtmc.evaluate.measure import calibration
from mtmc.evaluate.measure.belief import believe, runtime, timed, witness
from mtmc.evaluate.measure.clock import OverheadTable, Patience
from mtmc.evaluate.measure.conversation import Conversation, Failed
from mtmc.evaluate.measure.examination import FULL, Ahead, Examination, Samples
from mtmc.evaluate.measure.fabric import open_fabric
from mtmc.evaluate.measure.flags import Flags
from mtmc.evaluate.measure.grounds import Grounds, check_memory
from mtmc.evaluate.measure.handover import Handover
from mtmc.evaluate.measure.peer import end
from mtmc.evaluate.measure.questions import (
    ENDED,
    NO_START,
    STALE,
    About,
    Answer,
    Calibrate,
    Calibrated,
    Examine,
    Measured,
    Refused,
)
from mtmc.evaluate.measure.reference_time import ReferenceClock
from mtmc.evaluate.measure.shelf import Shelf, memory_of
from mtmc.evaluate.measure.subject import TOKEN
from mtmc.evaluate.measure.wire import Forget, Gone, Hello, Line, Open, Silent
from mtmc.evaluate.pool.collection import freeze
from mtmc.evaluate.pool.server import read_message, write_message
from mtmc.evaluate.reference.reference import Truth
from mtmc.hardware import Hardware
from mtmc.outcome import Diagnosis
from mtmc.protocols import Depth
from mtmc.task import Task
from mtmc.tree import source_hash

_log = logging.getLogger(__name__)

CONNECT_S = 60.0
"""Seconds until a candidate's process must have connected: a cold disk is slow."""
ENDING_S = 5.0
"""Seconds that a process which closed its line has to end: Python's last words, the device's context."""
PROFILED_CALLS = 3
PATIENCE: dict[Depth, Patience] = {
    "screen": Patience(least=12, most=60, precision=0.005, seconds=0.15),
    "verify": Patience(least=20, most=100, precision=0.003, seconds=0.5),
}


def main(control_fd: int, listener_fd: int, folder: str, fabric: str, hardware: str) -> None:
    """Serve until the lane hangs up. hardware: fields of a `Hardware` as JSON."""
    control = socket.socket(fileno=control_fd)
    listener = socket.socket(fileno=listener_fd)
    torch.set_grad_enabled(False)
    logging.basicConfig(level=logging.DEBUG if os.environ.get("MTMC_DEBUG") else logging.WARNING)
    oracle = Oracle(listener, Path(folder), fabric, Hardware(**json.loads(hardware)))
    importlib.import_module("torch._subclasses.fake_tensor")  # what weighing a task loads at first
    importlib.import_module("torch.utils.flop_counter")
    freeze()
    with contextlib.suppress(EOFError, OSError):
        write_message(control, json.dumps(asdict(oracle.about())).encode())
        while True:
            request = pickle.loads(read_message(control))
            write_message(control, json.dumps(asdict(oracle.answer(request))).encode())
    os._exit(0)


class Oracle:
    """The state between examinations: the device, the arena, the grounds of the present task."""

    def __init__(self, listener: socket.socket, folder: Path, fabric: str, hardware: Hardware) -> None:
        self._listener = listener
        self._folder = folder
        self._fabric = open_fabric(fabric)
        self._fabric.warm_up()
        self._hardware = hardware
        self._flags = Flags()
        self._fabric.share(self._flags)
        self._arena: tuple[int, torch.Tensor, torch.Tensor] | None = None  # descriptor, inputs, outputs
        self._waiting: dict[str, Line] = {}
        self._unwanted: set[str] = set()  # tokens of processes that are to end when they connect
        self._taken = False  # whether the present request has taken a candidate's process
        self._stayed: str | None = None  # token of a process that was examined and has the arena
        self._shelf: Shelf[Grounds] = Shelf(lambda: memory_of(self._fabric.device), self._empty_cache)
        self._overhead: OverheadTable | None = None

    def about(self) -> About:
        """What the lane is told at the start."""
        return About(describe_device() if self._fabric.device.type == "cuda" else None)

    def answer(self, request: Examine | Calibrate) -> Answer:
        """One request of the lane."""
        self._taken = False
        return replace(self._answer(request), taken=self._taken)

    def _answer(self, request: Examine | Calibrate) -> Answer:
        try:
            return self._calibrate(request) if isinstance(request, Calibrate) else self._examine(request)
        except Failed as failed:
            return Answer(failed.failure)
        except MtmcError as error:
            return Answer(Refused(type(error).__name__, str(error)))
        except torch.OutOfMemoryError as error:
            diagnosis = Diagnosis("check", "MemoryError", f"the GPU's memory was used up: {str(error)[:500]}")
            return Answer(Failure("out_of_memory", diagnosis))
        except Exception as error:
            if isinstance(error, torch.AcceleratorError):
                raise  # the context is lost: this process is no good any more
            _log.exception("an examination failed by itself")
            return Answer(Refused("EvaluatorError", f"an examination failed by itself, a bug to report: {error!r}"))

    # -- one candidate -------------------------------------------------------------------------------------------

    def _examine(self, request: Examine) -> Answer:
        started = time.perf_counter()
        for token in request.dismiss:
            self._dismiss(token)
        grounds = self._grounds_of(request.task)
        if request.stayed and request.token not in self._waiting:
            raise Failed("crash", Diagnosis("check", STALE, "the memory that it shared was given up"))
        if request.depth == "verify":
            grounds.forget()  # other weights
        line = self._line_to(request.token)
        found: Measured | Failure | None = None
        kept = killed = False
        try:
            examination = self._opened(line, request.limit_s, judged=not request.made, stayed=request.stayed)
            ready = time.perf_counter()
            measured = self._examined(examination, grounds, request)
            found = replace(measured, metrics={**measured.metrics, "ready_s": ready - started})
            kept = request.keep
        except Failed as failed:
            found = failed.failure
        finally:
            if kept:
                self._waiting[request.token], self._stayed = line, request.token
            else:
                killed = _dismissed(line, found)
        return Answer(found, kept=kept, killed=killed)

    def _examined(self, examination: Examination, grounds: Grounds, request: Examine) -> Measured:
        started = time.perf_counter()
        metrics: dict[str, float] = {}
        if not request.made:
            todo = plan(grounds.task, request.depth, request.check_variants)
            metrics |= examination.check(grounds, request.source, todo).metrics
        reference, _ = grounds.reference(FULL)
        first = Ahead(reference.timed(seed) for seed in [self._seed()])
        number = examination.load(grounds, FULL, request.source, made=request.made, meanwhile=first.prepare)
        truth = first.take()
        assert truth is not None
        examination.ask_for(truth, number, "full shapes, first call")
        checked = time.perf_counter()
        eager = ReferenceClock(self._fabric, self._flags, reference.model, grounds.gateable)
        ahead = eager.enqueues(truth)
        del truth  # gigabytes, and the calls that follow draw their own
        assert self._overhead is not None
        judged = self._fabric.asynchronous and not request.made

        def draw(seed: int) -> Truth:
            return reference.timed(seed, eager.timed)

        def take(patience: Patience) -> Samples:
            return examination.time(draw, number, patience, ahead)

        patience = PATIENCE[request.depth]
        samples = timed(take, patience, self._overhead) if judged else take(patience)
        ended = time.perf_counter()
        grounds.gateable = eager.gateable
        found = runtime(samples, eager.times, grounds.work, self._overhead, self._hardware)
        if judged:
            believe(samples, found, self._overhead, self._hardware)
            if request.depth == "verify" and request.profile:
                metrics |= witness(examination.profile(reference, number, PROFILED_CALLS), samples)
        metrics |= {"check_s": checked - started, "time_s": ended - checked, "verify_s": time.perf_counter() - ended}
        if reference.calibration is not None and (error := reference.calibration.error) is not None:
            metrics["reference_error"] = error
        return replace(found, metrics={**found.metrics, **metrics}, warnings=grounds.admission.warnings)

    # -- the device ----------------------------------------------------------------------------------------------

    def _grounds_of(self, task: Task) -> Grounds:
        """What is known of a task, and an arena that it fits in."""
        key = source_hash(f"{task.source}{task.variants}") + source_hash(str(task.state))
        shared = 0 if self._arena is None else sum(piece.numel() for piece in self._arena[1:])
        grounds = self._shelf.take(key, lambda: Grounds(task, self._fabric, self._folder, self._seed), shared)
        self._make_room(grounds.needed, f"task {task.name}")
        return grounds

    def _empty_cache(self) -> None:
        gc.collect()
        self._fabric.empty_cache()

    def _make_room(self, needed: tuple[int, int], what: str) -> None:
        """An arena that holds so many bytes of inputs and outputs."""
        if self._arena is not None:
            fd, *pieces = self._arena
            if all(piece.numel() >= need for piece, need in zip(pieces, needed, strict=True)):
                return
            self._arena = None
            del pieces
            if self._stayed in self._waiting:
                end(self._waiting.pop(self._stayed))
            self._fabric.release(fd)
        self._empty_cache()
        if self._fabric.device.type == "cuda":
            check_memory(sum(needed), torch.cuda.mem_get_info()[0], what)
        inputs = aligned(needed[0])
        fd, memory = self._fabric.create(inputs + needed[1])
        self._arena = fd, memory[:inputs], memory[inputs:]

    def _opened(self, line: Line, limit_s: float, judged: bool = True, stayed: bool = False) -> Examination:
        """The examination of a process that has the arena. stayed: whether it has had it before."""
        assert self._arena is not None
        fd, inputs, outputs = self._arena
        self._flags.words[:] = 0
        try:
            if stayed:
                line.ask(Forget())
            else:
                line.ask(Open(inputs.numel(), outputs.numel()), (fd,))
            line.heard(CONNECT_S)
        except (Silent, Gone) as error:
            message = f"a process for candidates ended before it had one, or took more than {CONNECT_S:g} s"
            raise Failed("crash", Diagnosis("check", NO_START, message)) from error
        handover = Handover(inputs, outputs, self._fabric, judged)
        return Examination(Conversation(line, self._flags, limit_s), handover, self._fabric, self._flags, self._seed)

    def _line_to(self, token: str) -> Line:
        """The line to the process with a token. Raises: Failed if it does not come."""
        self._taken = True
        try:
            with contextlib.suppress(
                BlockingIOError
            ):  # those that wait already: they get ready while others are at work
                while True:
                    self._welcome(0.0)
            while token not in self._waiting:
                self._welcome(CONNECT_S)
        except (TimeoutError, OSError):
            message = f"a candidate's process did not connect within {CONNECT_S:g} s"
            raise Failed("crash", Diagnosis("check", NO_START, message)) from None
        return self._waiting.pop(token)

    def _welcome(self, limit_s: float) -> None:
        """Greet the next process that connects. Raises: TimeoutError, or BlockingIOError where `limit_s` is 0."""
        self._listener.settimeout(limit_s)
        connection, _ = self._listener.accept()
        connection.settimeout(10.0)
        token = connection.recv(TOKEN, socket.MSG_WAITALL).decode(errors="replace")
        connection.settimeout(None)
        self._waiting[token] = line = Line(connection)
        if token in self._unwanted:
            self._unwanted.remove(token)
            self._dismiss(token)
            return
        with contextlib.suppress(Gone):  # it ended before it was needed: who asks it for more will hear
            line.ask(Hello(), (self._flags.fd,))

    def _dismiss(self, token: str) -> None:
        """End a process that nothing is asked of any more, as soon as it is there."""
        if token in self._waiting:
            end(self._waiting.pop(token))
        else:
            self._unwanted.add(token)

    def _calibrate(self, request: Calibrate) -> Answer:
        line = self._line_to(request.token)
        found: Calibrated | Failure | None = None
        killed = False
        try:
            self._make_room(calibration.ROOM, "calibration")
            self._overhead = calibration.run(self._opened(line, CONNECT_S), self._fabric)
            found = Calibrated(self._overhead)
        except Failed as failed:
            found = failed.failure
        finally:
            killed = _dismissed(line, found)
        return Answer(found, killed=killed)

    @staticmethod
    def _seed() -> int:
        """A secret from the operating system: what a candidate has seen tells nothing of the next."""
        return secrets.randbits(62)


def _dismissed(line: Line, found: object) -> bool:
    """End a candidate's process; whether it had to be killed. found: the verdict, which says whether it was ending."""
    kind = found.diagnosis.kind if isinstance(found, Failure) else ""
    return end(line, ENDING_S if kind in (ENDED, NO_START) else 0.0)
