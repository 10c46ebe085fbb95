"""shared: one evaluator for many runs, in this process or in another one.

The evaluator (its GPU workers, warm processes, calibration) lives in the process that started the others (a benchmark, a
collection of trees), which loads no torch; those that export, write and search ask it over a socket. So problems overlap
on its GPUs as trials of one search do, and a process that hangs or dies takes nothing along.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

from mtmc import errors
from mtmc.errors import EvaluatorError, MtmcError
from mtmc.outcome import Outcome
from mtmc.protocols import EvaluationRequest, Evaluator
from mtmc.task import Task

_log = logging.getLogger(__name__)

_ASKED = ("about", "evaluate", "baselines", "slow_baselines", "imports")


class Shared(Evaluator):
    """An evaluator that a run may use and not close. It notes whether it was asked for anything.

    recorded_as: what the run's record says of it, so that the run can be resumed by itself.
    """

    def __init__(self, evaluator: Evaluator, recorded_as: Mapping[str, Any]) -> None:
        self._evaluator = evaluator
        self.recorded_as = dict(recorded_as)
        self.asked = False
        self.hardware = evaluator.hardware
        self.verifies, self.profiles = evaluator.verifies, evaluator.profiles

    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
        """See `protocols.Evaluator.evaluate`."""
        self.asked = True
        return self._evaluator.evaluate(requests)

    def baselines(self, task: Task) -> dict[str, Outcome]:
        """See `protocols.Evaluator.baselines`."""
        return self._evaluator.baselines(task)

    def slow_baselines(self, task: Task) -> dict[str, Outcome]:
        """See `protocols.Evaluator.slow_baselines`."""
        return self._evaluator.slow_baselines(task)

    def imports(self, source: str) -> Outcome | None:
        """See `protocols.Evaluator.imports`."""
        return self._evaluator.imports(source)

    def beside(self, processes: Callable[[], Iterable[int]]) -> None:
        """See `protocols.Evaluator.beside`."""
        self._evaluator.beside(processes)

    def close(self) -> None:
        """Nothing: it belongs to somebody else."""


class EvaluatorServer:
    """Lets other processes of this machine use an evaluator. address, key: what they need for it."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._folder = tempfile.mkdtemp(prefix="mtmc-shared-")
        self.address = str(Path(self._folder, "evaluator"))
        self.key = secrets.token_bytes(32)
        self._listener = Listener(self.address, family="AF_UNIX", authkey=self.key, backlog=64)
        self._closed = False
        threading.Thread(target=self._welcome, name="mtmc-shared-evaluator", daemon=True).start()

    def close(self) -> None:
        """Take no more questions. The evaluator itself stays as it is. Idempotent."""
        if not self._closed:
            self._closed = True
            # Wakes the thread that waits for a connection. It may have gone already: nothing is waited for here.
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as nobody:
                nobody.connect(self.address)
            self._listener.close()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _welcome(self) -> None:
        while not self._closed:
            try:
                connection = self._listener.accept()
            except Exception as error:  # one that hung up, or has no key, is no reason to turn others away
                if not self._closed:
                    _log.debug("nobody came in: %r", error)
                continue
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        """Answer one connection until it ends."""
        with contextlib.suppress(EOFError, OSError), connection:
            while True:
                name, arguments = connection.recv()
                connection.send(answer(self._evaluator, name, arguments))


def answer(evaluator: Evaluator, name: str, arguments: Sequence[Any]) -> tuple[str, Any]:
    """What an evaluator says to a question from another process: ("", the value) or (class of the error, its message). To
    "about" that is what does not change: its hardware, and what it can do besides evaluating."""
    if name not in _ASKED:
        return "EvaluatorError", f"an evaluator is not asked for {name!r}"
    try:
        if name == "about":
            able = {each: getattr(evaluator, each) for each in ("verifies", "profiles")}
            return "", {"hardware": evaluator.hardware, **able}
        return "", getattr(evaluator, name)(*arguments)
    except MtmcError as error:
        return type(error).__name__, str(error)
    except Exception as error:
        _log.exception("the evaluator failed by itself")
        return "EvaluatorError", f"the evaluator failed by itself, a bug to report: {error!r}"


def value_of(kind: str, value: Any) -> Any:
    """The value of an answer. Raises: the error that it has."""
    if kind:
        raise getattr(errors, kind, EvaluatorError)(value)
    return value


class RemoteEvaluator(Evaluator):
    """The evaluator of an `EvaluatorServer`, seen from another process; from any thread.

    Raises (constructor, and each method): EvaluatorError where the server is gone.
    """

    def __init__(self, address: str, key: bytes) -> None:
        self._address, self._key = address, key
        self._of_thread = threading.local()
        about = self._ask("about")
        self.hardware = about["hardware"]
        self.verifies, self.profiles = about["verifies"], about["profiles"]

    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
        """See `protocols.Evaluator.evaluate`."""
        found: list[Outcome] = self._ask("evaluate", list(requests))
        return found

    def baselines(self, task: Task) -> dict[str, Outcome]:
        """See `protocols.Evaluator.baselines`."""
        found: dict[str, Outcome] = self._ask("baselines", task)
        return found

    def slow_baselines(self, task: Task) -> dict[str, Outcome]:
        """See `protocols.Evaluator.slow_baselines`."""
        found: dict[str, Outcome] = self._ask("slow_baselines", task)
        return found

    def imports(self, source: str) -> Outcome | None:
        """See `protocols.Evaluator.imports`."""
        found: Outcome | None = self._ask("imports", source)
        return found

    def close(self) -> None:
        """Nothing: the server goes on."""

    def _ask(self, name: str, *arguments: Any) -> Any:
        try:
            if not hasattr(self._of_thread, "connection"):
                self._of_thread.connection = Client(self._address, family="AF_UNIX", authkey=self._key)
            self._of_thread.connection.send((name, arguments))
            kind, value = self._of_thread.connection.recv()
        except (EOFError, OSError, AuthenticationError) as error:
            raise EvaluatorError(f"the process that has the evaluator is gone ({error!r}): start it again") from error
        return value_of(kind, value)
