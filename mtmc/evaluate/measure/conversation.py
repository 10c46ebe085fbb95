"""The conversation with one candidate's process, seen from the oracle: asking, waiting, and what silence means."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from mtmc.evaluate.measure.flags import DONE, GATE, Flags
from mtmc.evaluate.measure.questions import ENDED
from mtmc.evaluate.measure.wire import Gone, Line, Silent
from mtmc.outcome import Diagnosis, Status

_log = logging.getLogger(__name__)

ENQUEUE_S = 2.0
"""Seconds after which a forward that has not returned behind the gate is taken to wait for the device."""


class Failed(Exception):
    """The candidate did not stand the examination."""

    def __init__(self, status: Status, diagnosis: Diagnosis) -> None:
        super().__init__(diagnosis.message)
        self.status, self.diagnosis = status, diagnosis


def verdict(failed: Failed) -> dict[str, Any]:
    """A failed examination as plain data."""
    return {"status": failed.status, "diagnosis": asdict(failed.diagnosis)}


class Conversation:
    """Questions and answers under one deadline. Each method raises `Failed` where the candidate is to blame.

    stage, where: for diagnoses, what is going on. pending: whether an answer is still to come.
    """

    def __init__(self, line: Line, flags: Flags, limit_s: float) -> None:
        self._line = line
        self._words = flags.words
        self._deadline = time.monotonic() + limit_s
        self._limit_s = limit_s
        self.stage = "check"
        self.where = ""
        self.pending = False

    def send(self, request: Any) -> None:
        try:
            self._line.ask(request)
            self.pending = True
        except Gone as error:
            raise self._died(error) from error

    def ask(self, request: Any, meanwhile: Callable[[], bool] | None = None) -> dict[str, Any]:
        """The answer to a request. meanwhile: called while the candidate is at work, again where it says that it did
        something."""
        started = time.perf_counter()
        self.send(request)
        while meanwhile is not None and meanwhile() and not self._line.speaks():
            pass
        said = self.hear()
        _log.debug("%s: %.1f ms", self.where, (time.perf_counter() - started) * 1e3)
        return said

    def hear(self) -> dict[str, Any]:
        """The next answer but for a belated "enqueued"."""
        while True:
            try:
                said = self._line.heard(self._deadline - time.monotonic())
            except Silent:
                raise self._silent() from None
            except Gone as error:
                raise self._died(error) from error
            if "enqueued" not in said:
                self.pending = False
                return said

    def enqueued(self, serial: int) -> bool:
        """Whether the candidate has enqueued its call behind the gate, and returned."""
        try:
            said = self._line.heard(min(ENQUEUE_S, max(0.0, self._deadline - time.monotonic())))
        except Silent:
            return False
        except Gone as error:
            raise self._died(error) from error
        if said.get("enqueued") == serial:
            return True
        self._words[GATE] = serial
        self.told(said)
        raise Failed("crash", self.diagnosis("BadAnswer", "the candidate's process answered out of turn"))

    def await_done(self, serial: int, start: float) -> float:
        """Milliseconds from `start` until the candidate's stream raises its flag."""
        words = self._words
        while True:
            for _ in range(2000):
                if words[DONE] == serial:
                    return (time.perf_counter() - start) * 1e3
            if self._line.speaks() and words[DONE] != serial:
                said = self._heard_early()
                if said is None:
                    continue
                self.told(said)
                raise Failed(
                    "crash", self.diagnosis("BadAnswer", "the candidate's process answered before it was done")
                )
            if time.monotonic() > self._deadline:
                raise self._silent()

    def _heard_early(self) -> dict[str, Any] | None:
        """What was said before the flag: None for "enqueued"."""
        try:
            said = self._line.heard(1.0)
        except Silent:
            return None
        except Gone as error:
            raise self._died(error) from error
        return None if "enqueued" in said else said

    def told(self, said: dict[str, Any]) -> dict[str, Any]:
        """An answer that is none of failure. Raises: Failed."""
        if "out_of_memory" in said:
            message = f"the candidate ran out of memory: {str(said['out_of_memory'])[:1000]} ({self.where})"
            raise Failed("out_of_memory", self.diagnosis("MemoryError", message))
        if "failure" in said:
            raise Failed("crash", self._stated_failure(said["failure"]))
        return said

    def _stated_failure(self, stated: Any) -> Diagnosis:
        try:
            given = Diagnosis(**{**stated, "stage": self.stage})
            message = f"{given.message} ({self.where})"
            return Diagnosis(
                self.stage, str(given.kind)[:100], str(message)[:2000], given.line, str(given.excerpt)[:2000]
            )
        except TypeError:
            return self.diagnosis("BadAnswer", "the candidate's process failed and did not say how")

    def _silent(self) -> Failed:
        message = f"stopped after {self._limit_s:g} s: an endless loop, or far too much work ({self.where})"
        return Failed("timeout", self.diagnosis("Timeout", message))

    def _died(self, error: Exception) -> Failed:
        return Failed("crash", self.diagnosis(ENDED, f"the candidate's process ended: {error} ({self.where})"))

    def diagnosis(self, kind: str, message: str) -> Diagnosis:
        return Diagnosis(self.stage, kind, message)
