"""The oracle: one trusted process per GPU. It holds the references, the secret seeds, the clock and the verdict.

Started by a `GpuWorker`, which asks over the control socket, one thing at a time; candidates' processes connect to a socket
in that worker's folder and say their token. No candidate's code ever runs here, and no expected value leaves.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path

import torch

from mtmc.errors import MtmcError, TooLarge
from mtmc.evaluate.audit.diagnosis import Failure
from mtmc.evaluate.compiling.target import describe_device
from mtmc.evaluate.core_split import keep_to
from mtmc.evaluate.measure import calibration
from mtmc.evaluate.measure.arena import Arena
from mtmc.evaluate.measure.backend import open_backend
from mtmc.evaluate.measure.clock import OverheadTable, TaskOverhead
from mtmc.evaluate.measure.conversation import Conversation, Failed
from mtmc.evaluate.measure.examination import FULL, Examination
from mtmc.evaluate.measure.fast_threads import FastThreads
from mtmc.evaluate.measure.flags import Flags
from mtmc.evaluate.measure.measurement import Measurement, screened
from mtmc.evaluate.measure.output_buffer import OutputBuffer
from mtmc.evaluate.measure.peer import ENDING_S, end
from mtmc.evaluate.measure.questions import (
    ENDED,
    LIBRARY,
    NO_START,
    QUIET,
    STALE,
    TASK_S,
    About,
    Ahead,
    Answer,
    Calibrate,
    Calibrated,
    Examine,
    Made,
    Measured,
    Refused,
    Same,
)
from mtmc.evaluate.measure.reference_cache import ReferenceCache, memory_of
from mtmc.evaluate.measure.reference_state import ReferenceState
from mtmc.evaluate.measure.waiting import CONNECT_S, Waiting
from mtmc.evaluate.measure.wire import Forget, Gone, Line, Open, Silent
from mtmc.evaluate.pool.collection import freeze
from mtmc.evaluate.pool.messages import read_message, write_message
from mtmc.hardware import Hardware
from mtmc.outcome import Diagnosis
from mtmc.task import Task
from mtmc.tree import source_hash

_log = logging.getLogger(__name__)

SETTLE_S = 10.0
"""Seconds that other processes have for making their contexts, where the clock is to find nothing else at work."""


def main(
    control_fd: int,
    listener_fd: int,
    folder: str,
    backend: str,
    hardware: str,
    cores: Sequence[int] = (),
    others: Sequence[int] = (),
) -> None:
    """Serve until the GPU worker hangs up. hardware: fields of a `Hardware` as JSON. cores: hardware threads to keep to.
    others: those on which versions are built."""
    keep_to(cores)
    control = socket.socket(fileno=control_fd)
    listener = socket.socket(fileno=listener_fd)
    torch.set_grad_enabled(False)
    logging.basicConfig(level=logging.DEBUG if os.environ.get("MTMC_DEBUG") else logging.WARNING)
    threads = FastThreads(cores, others)
    known = Hardware(**json.loads(hardware))
    oracle = Oracle(listener, Path(folder), backend, known, lambda: _quiet(control), threads)
    importlib.import_module("torch._subclasses.fake_tensor")  # what weighing a task loads at first
    importlib.import_module("torch.utils.flop_counter")
    freeze()
    with contextlib.suppress(EOFError, OSError):
        write_message(control, json.dumps(asdict(oracle.about())).encode())
        while True:
            request = oracle.whole(pickle.loads(read_message(control)))
            write_message(control, json.dumps(asdict(oracle.answer(request))).encode())
    os._exit(0)


@contextlib.contextmanager
def _quiet(control: socket.socket) -> Iterator[None]:
    """Ask the GPU worker to have all builds stand still, and to go on after this. Raises: EOFError, OSError."""

    def tell(on: bool) -> None:
        write_message(control, json.dumps({QUIET: on}).encode())
        read_message(control)

    tell(True)
    try:
        yield
    finally:
        tell(False)


class Oracle:
    """The state between examinations: the device, the arena, what is known of the present task."""

    def __init__(
        self,
        listener: socket.socket,
        folder: Path,
        backend: str,
        hardware: Hardware,
        quiet: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
        threads: FastThreads | None = None,
    ) -> None:
        """quiet: while it is open, nothing is built on this machine. threads: that oracle and candidates may run on; None:
        wherever the system puts them."""
        self._folder, self._quiet, self._threads = folder, quiet, threads or FastThreads()
        self._backend = open_backend(backend)
        self._backend.warm_up()
        self._hardware = hardware
        self._flags = Flags()
        self._backend.share(self._flags)
        self._arena: Arena | None = None
        self._candidates = Waiting(listener, self._flags.fd)
        self._told: Task | None = None  # of the last request that had one
        self._taken = False  # whether the present request has taken a candidate's process
        self._stayed: str | None = None  # token of a process that was examined and has the arena
        self._cache: ReferenceCache[ReferenceState] = ReferenceCache(
            lambda: memory_of(self._backend.device), self._empty_cache
        )
        self._overhead: OverheadTable | None = None

    def about(self) -> About:
        """What the GPU worker is told at the start."""
        return About(describe_device() if self._backend.device.type == "cuda" else None)

    def whole(self, request: Examine | Calibrate | Ahead | Same) -> Examine | Calibrate | Ahead:
        """A request with its task, which is kept for the next one."""
        if isinstance(request, Same):
            assert self._told is not None
            return replace(request.request, task=self._told)
        if not isinstance(request, Ahead) and request.task is not None:
            self._told = request.task
        return request

    def answer(self, request: Examine | Calibrate | Ahead) -> Answer:
        """One request of the GPU worker."""
        self._taken = False
        return replace(self._answer(request), taken=self._taken)

    def _answer(self, request: Examine | Calibrate | Ahead) -> Answer:
        try:
            if isinstance(request, Ahead):
                return Answer(Made(self._made_ahead(request.check_variants)))
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
        self._threads.settle()
        for token in request.dismiss:
            self._candidates.dismiss(token)
        state = self._state_of(request.task)
        known = time.perf_counter()
        if request.stayed and request.token not in self._candidates:
            raise Failed("crash", Diagnosis("check", STALE, "the memory that it shared was given up"))
        if request.depth == "verify":
            state.forget()  # other weights
        self._taken = True
        self._candidates.settle(request.settle, SETTLE_S)
        line = self._candidates.line_to(request.token)
        there = time.perf_counter()
        found: Measured | Failure | None = None
        kept = killed = False
        try:
            judged = request.baseline in ("", LIBRARY)  # the others are the reference itself
            examination = self._opened(line, request.limit_s, judged=judged, stayed=request.stayed)
            ready = time.perf_counter()
            stages = {"ready_s": ready - started, "ready_task_s": known - started, "ready_process_s": there - known}
            found = self._measurement(examination, state, request).made().with_metrics(stages)
            kept = request.keep
        except Failed as failed:
            found = failed.failure
        finally:
            if kept:
                self._candidates.keep(request.token, line)
                self._stayed = request.token
            else:
                killed = _dismissed(line, found)
        return Answer(found, kept=kept, killed=killed)

    def _made_ahead(self, check_variants: int) -> bool:
        """Whether a case of the next screening was made."""
        state = self._cache.last
        try:
            return state is not None and state.prepare(screened(state.task, check_variants))
        except torch.OutOfMemoryError:  # other processes have it: nothing is made before it is asked for
            self._empty_cache()
            return False

    def _measurement(self, examination: Examination, state: ReferenceState, request: Examine) -> Measurement:
        assert self._overhead is not None
        device = (self._backend, self._flags, self._hardware, self._overhead)
        return Measurement(examination, state, request, *device, self._alone, self._seed, self._threads)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """While it is open, nothing is built on this machine, and no process gets ready for this GPU."""
        with self._quiet(), self._candidates.still():
            yield

    # -- the device ----------------------------------------------------------------------------------------------

    def _state_of(self, task: Task) -> ReferenceState:
        """What is known of a task, and an arena that it fits in. What other tasks have left is in the way of a large one."""
        try:
            return self._with_room(task)
        except TooLarge:
            self._give_up_arena()
            self._cache.clear()
            return self._with_room(task)

    def _with_room(self, task: Task) -> ReferenceState:
        """Raises: TooLarge where the device's memory does not suffice."""
        key = source_hash(f"{task.source}{task.variants}") + task.state_digest
        shared = 0 if self._arena is None else self._arena.size
        state = self._cache.take(key, lambda: ReferenceState(task, self._backend, self._folder, self._seed), shared)
        self._make_room(state.needed, f"task {task.name}")
        return state

    def _empty_cache(self) -> None:
        gc.collect()
        self._backend.empty_cache()

    def _make_room(self, needed: tuple[int, int], what: str) -> None:
        """An arena that holds so many bytes of inputs and outputs. Raises: TooLarge if the device has not so many."""
        if self._arena is not None and self._arena.holds(needed):
            return
        self._give_up_arena()
        self._empty_cache()
        self._arena = Arena.made(self._backend, needed, what)

    def _give_up_arena(self) -> None:
        """With the process that has stayed, which shares it."""
        if self._arena is None:
            return
        fds = self._arena.fds
        self._arena = None
        self._candidates.end(self._stayed)
        for fd in fds:
            self._backend.release(fd)

    def _opened(self, line: Line, limit_s: float, judged: bool = True, stayed: bool = False) -> Examination:
        """The examination of a process that has the arena. stayed: whether it has had it before."""
        assert self._arena is not None
        arena = self._arena
        self._flags.reset()
        try:
            if stayed:
                line.ask(Forget())
            else:
                line.ask(Open(arena.inputs.numel(), arena.outputs.numel()), arena.fds)
            line.heard(CONNECT_S)
        except (Silent, Gone) as error:
            message = f"a process for candidates ended before it had one, or took more than {CONNECT_S:g} s"
            raise Failed("crash", Diagnosis("check", NO_START, message)) from error
        buffer = OutputBuffer(arena.inputs, arena.outputs, arena.kept, self._backend, judged)
        conversation = Conversation(line, self._flags, limit_s)
        return Examination(conversation, buffer, self._backend, self._flags, self._seed, self._threads)

    def _calibrate(self, request: Calibrate) -> Answer:
        self._taken = True
        self._threads.settle()
        self._candidates.settle(request.settle, SETTLE_S)
        line = self._candidates.line_to(request.token)
        found: Calibrated | Failure | None = None
        killed = False
        try:
            found = Calibrated(self._measured_overhead(line, request.task))
        except Failed as failed:
            found = failed.failure
        finally:
            killed = _dismissed(line, found)
        return Answer(found, killed=killed)

    def _measured_overhead(self, line: Line, task: Task | None) -> OverheadTable | TaskOverhead:
        if task is None:
            self._make_room(calibration.ROOM, "calibration")
            with self._quiet():
                self._overhead = calibration.run(self._opened(line, CONNECT_S), self._backend)
            return self._overhead
        assert self._overhead is not None
        state = self._state_of(task)
        reference, _ = state.reference(FULL)
        everywhere = self._overhead.everywhere_ms is not None
        examination = self._opened(line, TASK_S, judged=False)
        state.overhead = calibration.of_task(examination, lambda _: reference.timed(self._seed()), everywhere)
        return state.overhead

    @staticmethod
    def _seed() -> int:
        """A secret from the operating system: what a candidate has seen tells nothing of the next."""
        return secrets.randbits(62)


def _dismissed(line: Line, found: object) -> bool:
    """End a candidate's process; whether it had to be killed. found: the verdict, which says whether it was ending."""
    kind = found.diagnosis.kind if isinstance(found, Failure) else ""
    return end(line, ENDING_S if kind in (ENDED, NO_START) else 0.0)
