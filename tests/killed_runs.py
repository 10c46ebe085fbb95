"""Runs that die on their way: by an exception that nothing catches, or by a signal that they send themselves."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mtmc.fakes import FakeEvaluator
from mtmc.outcome import Outcome
from mtmc.protocols import EvaluationRequest
from mtmc.store import POINTER_NAME, STORE_NAME, Store

AFTER = 8
"""Evaluations that a doomed run begins after the one that its end is counted from, at most."""


class Killed(BaseException):
    """Ends a search as a signal would: nothing catches it."""


class Mortal(FakeEvaluator):
    """Dies when it is asked for its `dies_at`-th evaluation."""

    dies_at = 0
    asked = 0

    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
        self.asked += 1
        if self.asked == self.dies_at:
            raise Killed
        return super().evaluate(requests)


class Doomed(FakeEvaluator):
    """Kills its process `moment` seconds after its `dies_at`-th evaluation has begun; 0: after it was made itself.

    Evaluations from `AFTER` later on wait for that, so that the run cannot have ended before, however late the signal is.
    """

    dies_at = 0
    moment = 0.0
    asked = 0

    def doom(self, dies_at: int, moment: float) -> Doomed:
        self.dies_at, self.moment, self._guard = dies_at, moment, threading.Lock()
        if not dies_at:
            threading.Thread(target=self._die, daemon=True).start()
        return self

    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
        with self._guard:
            self.asked += 1
            number = self.asked
        if self.dies_at and number == self.dies_at:
            threading.Thread(target=self._die, daemon=True).start()
        if self.dies_at and number >= self.dies_at + AFTER:
            threading.Event().wait()
        return super().evaluate(requests)

    def _die(self) -> None:
        time.sleep(self.moment)
        os.kill(os.getpid(), signal.SIGKILL)


def logged(run: Path) -> FakeEvaluator:
    return FakeEvaluator(**_logging(run))


def doomed(run: Path, dies_at: int, moment: float) -> Doomed:
    """As `logged`, and it kills its process: see `Doomed`."""
    return Doomed(**_logging(run)).doom(dies_at, moment)


def _logging(run: Path) -> dict[str, Any]:
    return {"failing": 0.4, "rejecting": 0.2, "log": run.with_suffix(".log"), "seconds": 0.003}


def evaluated(run: Path) -> list[str]:
    """ "gate hash" of each evaluation that was begun, in order."""
    log = run.with_suffix(".log")
    return log.read_text().splitlines() if log.exists() else []


def recorded(run: Path) -> set[str]:
    """ "gate hash" of each evaluation that the store has, a file or on a server."""
    if not any((run / name).exists() for name in (STORE_NAME, POINTER_NAME)):
        return set()
    store = Store.read(run)
    found = store.recorded()
    store.close()
    return {f"{gate} {hash_}" for hash_, gate in found}


def fork(function: Any, *arguments: Any) -> int:
    """Process id of a fork that calls `function` and ends."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            function(*arguments)
            status = 0
        finally:
            os._exit(status)
    return pid
