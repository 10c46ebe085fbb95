"""A GPU worker: one GPU with its oracle and its candidates' processes, seen from the caller's process.

One candidate at a time is examined; the next ones are being built meanwhile.
"""

from __future__ import annotations

import logging
import secrets
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from mtmc.errors import CLOSED, EvaluatorError, TooLarge
from mtmc.evaluate.audit.diagnosis import Failure
from mtmc.evaluate.measure.calibrated_oracle import CalibratedOracle
from mtmc.evaluate.measure.device_lock import DeviceLock
from mtmc.evaluate.measure.endings import ended_result, why_ended
from mtmc.evaluate.measure.idle_work import IdleWork
from mtmc.evaluate.measure.oracle_process import START_S, OracleLost
from mtmc.evaluate.measure.questions import (
    DOUBTFUL,
    NO_START,
    STALE,
    About,
    Ahead,
    Answer,
    Examine,
    Made,
)
from mtmc.evaluate.measure.room import Room
from mtmc.evaluate.measure.spare_processes import Process, SpareProcesses
from mtmc.evaluate.measure.waited import Waited
from mtmc.evaluate.measure.worker_settings import GpuWorkerSettings
from mtmc.evaluate.pool.first_come import FirstCome
from mtmc.evaluate.pool.job import JobResult

if TYPE_CHECKING:
    from mtmc.task import Task

_log = logging.getLogger(__name__)

ATTEMPTS = 3
"""Times that an examination is begun, where the oracle or the candidate's process fails by itself, or times are in doubt."""
DOUBTS = 2
"""Times that a version is examined again whose times are in doubt: in another process while nothing is built, and once more
with the clock's overhead measured anew, which takes two seconds."""
MEMORY_S = 300.0
"""Seconds that a task waits at most for memory that processes have that compile."""
VERSION_S = 30.0
"""The same of a version that used all memory up: it may be by itself that it does."""
TURNS = "turns-on-gpu"
"""Name of the file whose lock says whose turn it is on the device."""


_Examined: TypeAlias = "tuple[Answer, JobResult[None] | None]"


class GpuWorker:
    """Examines one candidate at a time; from any thread. Raises (constructor): EvaluatorError if it does not start."""

    def __init__(self, settings: GpuWorkerSettings, quiet: Callable[[bool], None] = lambda on: None) -> None:
        """quiet: has what else the evaluator does on this machine stand still, or go on when that is asked for as often."""
        self._settings = settings
        self._folder = Path(tempfile.mkdtemp(prefix="mtmc-gpu-worker-"))
        self._lock = FirstCome()
        self._turns = DeviceLock(settings.turns / f"{TURNS}-{settings.visible}")
        address = str(self._folder / "oracle")
        self._processes = SpareProcesses(settings, self._folder, address)
        self._oracle = CalibratedOracle(settings, self._folder, address, self._processes, quiet)
        # Fewer than the pool has workers: whoever is examined must find one, or all would wait for each other.
        self._preparing = FirstCome(max(1, settings.spares - 1))
        self._room = Room()  # of which processes that compile hold some, by their tokens
        self._idle = IdleWork(self._lock, self._turns, self._prepare)
        self._screens = 0  # held-out shapes of the last screening or verification
        self._stayed: Process | None = None
        self._unwanted: tuple[str, ...] = ()  # tokens of processes that the oracle is to end
        self._finalizer = weakref.finalize(self, shutil.rmtree, str(self._folder), ignore_errors=True)

    def warm_up(self) -> None:
        """Make all ready for the first examination. Raises: EvaluatorError."""
        with self._lock, self._turns:
            self._oracle.running()
            self._processes.start(locked=False)  # for baselines, soon

    def about(self) -> About:
        """What the oracle says of its device. Starts it. Raises: EvaluatorError."""
        with self._lock:
            return self._oracle.started().about

    @contextmanager
    def alone(self) -> Iterator[str]:
        """Nothing is examined on the device while this is open. Gives what CUDA_VISIBLE_DEVICES is to be for it."""
        with self._lock, self._turns, self._oracle.silence():
            yield self._settings.visible

    def compile_first(self, task: Task, mode: str, caches: Path, limit_s: float) -> Process | Literal["ended", "late"]:
        """Compile a task's reference beside what is examined, in a process that its baseline is measured in then.

        mode: of torch.compile. caches: folder of what it keeps, below `GpuWorkerSettings.compiling`. Returns: that process;
        "ended" where it has, so that the baseline begins anew and says why; "late" where it is not done in `limit_s`."""
        self.about()  # there is an oracle for it to connect to
        done = self._settings.cache / f"compiled-{secrets.token_hex(16)}"
        self._preparing.acquire()
        self._room.take(str(done), MEMORY_S)
        deadline = time.monotonic() + limit_s
        paths = {"turns": str(self._turns.path), "done": str(done), "caches": str(caches)}
        process = self._processes.spawn(locked=False, task=task, mode=mode, **paths)
        process.end.add_done_callback(lambda _: self._preparing.release())
        process.end.add_done_callback(lambda _: self._room.leave(str(done)))
        while not (compiled := done.exists()) and not process.end.done() and time.monotonic() < deadline:
            time.sleep(0.05)
        self._room.leave(str(done))
        if compiled and not process.end.done():
            done.unlink()
            return process
        with self._lock:
            self._unwanted = (*self._unwanted, process.token)
        late = not process.end.done()
        why = why_ended("it took too long", process.end)
        _log.info("task %s was not compiled ahead (%s): %s", task.name, mode, why)
        return "late" if late else "ended"

    def examine(self, process: Process | None = None, **fields: Any) -> tuple[Answer, JobResult[None] | None]:
        """One examination, see `oracle.Examine` for the fields but the token. process: in which it is made first.

        Returns: the oracle's verdict, and how the candidate's process ended if it has. Of a version that is right, metrics
        say what it waited for: "turn_s" for the device, and where it was examined again, "again_s" from the first
        examination to the last, of which "calibrate_s" for the clock's overhead. Where a task is too large for what
        processes that compile have left of the memory, or a version has used that up, these are waited for.
        Raises: TaskError or ConfigError of the reference; EvaluatorError if the oracle cannot go on.
        """
        found = self._examine(process, fields)
        if "depth" in fields and not fields.get("baseline"):  # of a version: another one will come, most often
            self._screens = fields["check_variants"]
            self._idle.want()
        return found

    def _examine(self, process: Process | None, fields: Mapping[str, Any]) -> _Examined:
        found = self._tried(process, fields)
        if not _lacks_memory(found):
            return _given(found)
        deadline = time.monotonic() + (MEMORY_S if isinstance(found, TooLarge) else VERSION_S)
        with self._room.wanted():
            # A process that was given is gone, and what it held.
            while _lacks_memory(found) and (process is not None or self._room.wait(deadline)):
                _log.info(
                    "task %s lacks memory; %s processes that compile hold some", fields["task"].name, self._room.holders
                )
                process = None
                found = self._tried(None, fields)
        return _given(found)

    def _prepare(self) -> bool:
        """A piece of what the next screening will ask for, made while nothing is examined. Whether there is more."""
        oracle = self._oracle.process
        if oracle is None or self._oracle.closed:
            return False
        try:
            found = oracle.ask(Ahead(self._screens), START_S).found
        except OracleLost as lost:
            if not self._oracle.closed:
                _log.warning("the oracle of GPU %s was lost (%s); started anew", self._settings.index, lost)
                self._drop_oracle()
            return False
        return isinstance(found, Made) and found.made

    def _tried(self, process: Process | None, fields: Mapping[str, Any]) -> _Examined | TooLarge:
        try:
            return self._examined_in_turn(process, fields)
        except TooLarge as error:
            return error

    def _examined_in_turn(self, process: Process | None, fields: Mapping[str, Any]) -> _Examined:
        """See `examine`."""
        why, doubts, waited = "", 0, Waited()
        with self._lock, self._turns, ExitStack() as silent:
            waited.note("turn_s")
            for attempt in range(ATTEMPTS):
                if attempt:
                    waited.since_first("again_s")
                try:
                    given, process = process, None
                    answer, ending = self._examined(fields, bool(doubts), given)
                except OracleLost as lost:
                    if self._oracle.closed:
                        raise EvaluatorError(CLOSED) from lost
                    why = str(lost)
                    _log.warning("the oracle of GPU %s was lost (%s); started anew", self._settings.index, why)
                    self._drop_oracle()
                    continue
                if not isinstance(answer.found, Failure):
                    return answer.with_metrics(waited.seconds), None
                failure = answer.found
                if failure.diagnosis.kind == NO_START:  # made while the one before it held all the device's memory, say
                    why = why_ended(failure.diagnosis.message, ending, answer.killed)
                    _log.warning("a process for candidates of GPU %s did not start: %s", self._settings.index, why)
                elif failure.diagnosis.kind in DOUBTFUL and doubts < DOUBTS and attempt + 1 < ATTEMPTS:
                    doubts += 1
                    _log.info("examined a %s time: %s", ("second", "third")[doubts - 1], failure.diagnosis.message)
                    ended_result(ending)
                    if doubts == 1:  # most often it was the process, or what was done beside it
                        silent.enter_context(self._processes.none_made())
                        silent.enter_context(self._oracle.silence())
                        continue
                    fields = {**fields, "charge": True}
                    waited.restart()
                    self._oracle.calibrate_for(fields["task"])
                    waited.note("calibrate_s")
                else:
                    # Nothing else may run on the device while the next one is timed; one that was right is idle.
                    ended = ended_result(ending) if answer.taken else None
                    return answer, None if answer.killed else ended
        raise EvaluatorError(f"GPU {self._settings.index} failed {ATTEMPTS} times: {why}")

    def _examined(
        self, fields: Mapping[str, Any], quiet: bool = False, given: Process | None = None
    ) -> tuple[Answer, Future[JobResult[None]]]:
        """One examination in a process of its own. quiet: not before the others that wait have their contexts. given: the
        process, if there is one already. Raises: OracleLost, and the user's errors."""
        oracle = self._oracle.running()
        stayed, self._stayed = self._stayed, None
        dismiss, self._unwanted = self._unwanted, ()
        baseline = bool(fields.get("baseline"))
        screens = fields["depth"] == "screen" and not baseline
        if stayed is not None and not screens:
            dismiss += (stayed.token,)
        process = given or (stayed if stayed is not None and screens else self._processes.fresh(locked=not baseline))
        keep = screens and process.used + 1 < self._settings.reuse
        settle = self._processes.unsettled() if quiet else ()
        beside: dict[str, Any] = {"dismiss": dismiss, "settle": settle}
        request = Examine(token=process.token, keep=keep, stayed=process is stayed, **beside, **fields)
        answer = oracle.ask(request, fields["limit_s"] + START_S)
        stale = isinstance(answer.found, Failure) and answer.found.diagnosis.kind == STALE
        if not answer.taken and not stale:  # the task was refused, say
            self._give_back(process, stayed is process, locked=not baseline)
        answer.raise_refusal()
        answer = answer.with_metrics({"process_used": float(process.used)})
        if answer.kept:
            self._stayed = replace(process, used=process.used + 1)
        if stale:
            return self._examined(fields, quiet)  # by a fresh one: none has stayed now
        return answer, process.end

    def _give_back(self, process: Process, stayed: bool, locked: bool) -> None:
        """A process that was not made use of serves the next candidate; else it would take another's place for ever."""
        if stayed:
            self._stayed = process
        elif locked:
            self._processes.offer(process)
        else:
            self._unwanted = (*self._unwanted, process.token)

    def close(self) -> None:
        """End all processes. Idempotent."""
        self._oracle.closed = True
        self._drop_oracle()
        self._idle.close()
        self._processes.close()
        self._turns.close()
        self._finalizer()

    def _drop_oracle(self) -> None:
        self._stayed, self._unwanted = None, ()  # they end with the oracle
        self._oracle.drop()


def _lacks_memory(found: _Examined | TooLarge) -> bool:
    if isinstance(found, TooLarge):
        return True
    verdict = found[0].found
    return isinstance(verdict, Failure) and verdict.status == "out_of_memory"


def _given(found: _Examined | TooLarge) -> _Examined:
    """Raises: TooLarge, if it is that."""
    if isinstance(found, TooLarge):
        raise found
    return found
