"""The conversation with one candidate's process, seen from the oracle: asking, waiting, and what silence means."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from mtmc.evaluate.audit.diagnosis import Failure
from mtmc.evaluate.check.answers import OutOfMemory, Raised
from mtmc.evaluate.measure.call_time import Moments
from mtmc.evaluate.measure.flags import DONE, GATE, HOST_LAST, HOST_LED, LED, Flags
from mtmc.evaluate.measure.peer import process_of
from mtmc.evaluate.measure.questions import ENDED
from mtmc.evaluate.measure.wire import Enqueued, Gone, Line, Nonsense, Request, Said, Silent
from mtmc.outcome import Diagnosis, Status

_log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

ENQUEUE_S = 2.0
"""Seconds after which a forward that has not returned behind the gate is taken to wait for the device."""


class Failed(Exception):
    """The candidate did not stand the examination."""

    def __init__(self, status: Status, diagnosis: Diagnosis) -> None:
        super().__init__(diagnosis.message)
        self.status, self.diagnosis = status, diagnosis

    @property
    def failure(self) -> Failure:
        """What is said of it."""
        return Failure(self.status, self.diagnosis)


class Conversation:
    """Questions and answers within a time that counts while the candidate is waited for. Each method raises `Failed` where
    the candidate is to blame.

    What the oracle does by itself, such as the reference's outputs and comparisons, counts for nothing: of a deep network
    that is 26 of 29 seconds, and more on a busy machine.
    stage, where: for diagnoses, what is going on. pending: whether an answer is still to come.
    """

    def __init__(self, line: Line, flags: Flags, limit_s: float) -> None:
        self._line = line
        self._flags, self._words = flags, flags.words
        self._limit_s = self._left_s = limit_s
        self.stage = "check"
        self.where = ""
        self.pending = False

    def send(self, request: Request) -> None:
        try:
            self._line.ask(request)
            self.pending = True
        except Gone as error:
            raise self._died(error) from error

    @property
    def process(self) -> int:
        """Number of the candidate's process; 0 where the system does not tell."""
        try:
            return process_of(self._line)
        except OSError:
            return 0

    def ask(self, request: Request, kind: type[Answer], meanwhile: Callable[[], bool] | None = None) -> Answer:
        """The answer to a request. kind: of that answer. meanwhile: called while the candidate is at work, again where it
        says that it did something."""
        started = time.perf_counter()
        self.send(request)
        while meanwhile is not None and meanwhile() and not self._line.speaks():
            pass
        said = self.hear(kind)
        _log.debug("%s: %.1f ms", self.where, (time.perf_counter() - started) * 1e3)
        return said

    def hear(self, kind: type[Answer]) -> Answer:
        """The next answer but for a belated `Enqueued`."""
        while True:
            try:
                with self._waiting() as deadline:
                    said = self._line.heard(deadline - time.monotonic())
            except Silent:
                raise self._silent() from None
            except Gone as error:
                raise self._died(error) from error
            if isinstance(said, kind):
                self.pending = False
                return said
            if not isinstance(said, Enqueued):
                self.pending = False
                raise self._out_of_turn(said)

    def enqueued(self, serial: int) -> bool:
        """Whether the candidate has enqueued its call behind the gate, and returned."""
        try:
            with self._waiting() as deadline:
                said = self._line.heard(min(ENQUEUE_S, max(0.0, deadline - time.monotonic())))
        except Silent:
            return False
        except Gone as error:
            raise self._died(error) from error
        if said == Enqueued(serial):
            return True
        self._words[GATE] = serial
        raise self._out_of_turn(said)

    def open_gate(self) -> None:
        """Let the candidate's work begin."""
        if self._flags.forced:
            message = f"the gate was opened before the evaluator did so ({self.where})"
            raise Failed("rejected", self.diagnosis("GateForced", message))
        self._flags.open_gate()

    def begins(self, serial: int) -> None:
        """Wait until the candidate's process is ready for calls in a row."""
        if not self.enqueued(serial):
            raise self._silent()

    def await_done(self, done: int) -> None:
        """Wait until the candidate's stream gives its flag that value."""
        words = self._words
        with self._waiting() as deadline:
            while True:
                for _ in range(2000):
                    if words[DONE] == done:
                        return
                if self._line.speaks() and words[DONE] != done:
                    said = self._heard_early()
                    if said is None:
                        continue
                    raise self._out_of_turn(said, "before it was done")
                if time.monotonic() > deadline:
                    raise self._silent()

    def await_loop(self, serial: int, start: float) -> Moments:
        """When calls in a row came how far. A word that was not written before the last one counts as written then."""
        words, seen, left = self._words, dict[int, float](), [HOST_LED, LED, HOST_LAST, DONE]
        with self._waiting() as deadline:
            while True:
                for _ in range(500):
                    for place in [each for each in left if words[each] == serial]:
                        seen[place] = (time.perf_counter() - start) * 1e3
                        left.remove(place)
                    if DONE in seen:
                        return Moments(*(seen.get(place, seen[DONE]) for place in (HOST_LED, LED, HOST_LAST, DONE)))
                if self._line.speaks() and words[DONE] != serial:
                    said = self._heard_early()
                    if said is not None:
                        raise self._out_of_turn(said, "before it was done")
                if time.monotonic() > deadline:
                    raise self._silent()

    @contextmanager
    def _waiting(self) -> Iterator[float]:
        """A wait for the candidate, which counts; when the time for it is over."""
        began = time.monotonic()
        try:
            yield began + self._left_s
        finally:
            self._left_s -= time.monotonic() - began

    def _heard_early(self) -> Said | None:
        """What was said before the flag: None for `Enqueued`."""
        try:
            said = self._line.heard(1.0)
        except Silent:
            return None
        except Gone as error:
            raise self._died(error) from error
        return None if isinstance(said, Enqueued) else said

    def _out_of_turn(self, said: Said, when: str = "out of turn") -> Failed:
        """What comes of an answer that was not asked for: mostly that the candidate failed."""
        if isinstance(said, OutOfMemory):
            message = f"the candidate ran out of memory: {said.message[:1000]} ({self.where})"
            return Failed("out_of_memory", self.diagnosis("MemoryError", message))
        if isinstance(said, Raised):
            stated = said.diagnosis
            message = f"{stated.message} ({self.where})"[:2000]
            return Failed(
                "crash", Diagnosis(self.stage, stated.kind[:100], message, stated.line, stated.excerpt[:2000])
            )
        return Failed("crash", self.diagnosis("BadAnswer", f"the candidate's process answered {when}"))

    def _silent(self) -> Failed:
        message = f"stopped after {self._limit_s:g} s: an endless loop, or far too much work ({self.where})"
        return Failed("timeout", self.diagnosis("Timeout", message))

    def _died(self, error: Exception) -> Failed:
        if isinstance(error, Nonsense):
            message = f"the candidate's process answered nonsense: {str(error)[:1000]} ({self.where})"
            return Failed("crash", self.diagnosis("BadAnswer", message))
        return Failed("crash", self.diagnosis(ENDED, f"the candidate's process ended: {error} ({self.where})"))

    def diagnosis(self, kind: str, message: str) -> Diagnosis:
        return Diagnosis(self.stage, kind, message)
