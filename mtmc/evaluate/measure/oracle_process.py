"""The oracle's process, seen from the caller's: started, asked, ended."""

from __future__ import annotations

import json
import logging
import os
import pickle
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from mtmc.errors import EvaluatorError
from mtmc.evaluate.measure.questions import QUIET, About, Ahead, Answer, Calibrate, Examine, Same
from mtmc.evaluate.plain import from_plain
from mtmc.evaluate.pool.messages import read_message, write_message
from mtmc.hardware import Hardware
from mtmc.task import Task

_log = logging.getLogger(__name__)

START_S = 180.0
"""Seconds that it may take to start, and to answer beyond the limit of what it is asked."""

_ORACLE = """
import sys
sys.path[:] = {path!r}
from mtmc.evaluate.measure.oracle import main
main({control}, {listener}, {folder!r}, {backend!r}, {hardware!r}, {cores!r}, {others!r})
"""


class OracleLost(Exception):
    """The oracle's process ended or fell silent."""


class OracleProcess:
    """This side of the oracle. visible: its GPU, as CUDA_VISIBLE_DEVICES names it. folder: of the GPU worker. address: of
    the socket that candidates connect to.

    Raises (constructor): EvaluatorError if it does not start.
    """

    def __init__(
        self,
        visible: str,
        backend: str,
        hardware: Hardware,
        folder: Path,
        address: str,
        cores: Sequence[int] = (),
        quiet: Callable[[bool], None] = lambda on: None,
        others: Sequence[int] = (),
    ) -> None:
        """cores: hardware threads that it keeps to. others: those on which versions are built. quiet: is told when nothing
        should be built beside it, and when again it may."""
        self._quiet = quiet
        self._told: Task | None = None  # that the oracle has been told of last
        self._log_path = folder / "oracle.log"
        Path(address).unlink(missing_ok=True)
        self._control, theirs = socket.socketpair()
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(address)
        listener.listen(64)
        own = folder / "references"
        own.mkdir(exist_ok=True)
        code = _ORACLE.format(
            path=[os.path.abspath(entry) for entry in sys.path],
            control=theirs.fileno(),
            listener=listener.fileno(),
            folder=str(own),
            backend=backend,
            hardware=json.dumps(asdict(hardware)),
            cores=tuple(cores),
            others=tuple(others),
        )
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": visible if backend == "cuda" else ""}
        with theirs, listener, open(self._log_path, "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                env=environment,
                cwd=own,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno(), listener.fileno()],
                start_new_session=True,
            )
        self._finalizer = weakref.finalize(self, _end, self._process, self._control)
        try:
            started = time.monotonic()
            self.about: About = from_plain(About, self._heard(START_S))
            _log.debug("the oracle has opened its device after %.1f s", time.monotonic() - started)
        except OracleLost as lost:
            raise EvaluatorError(f"the process that measures does not start ({lost})") from lost

    def ask(self, request: Examine | Calibrate | Ahead, limit_s: float) -> Answer:
        """One request and its answer. Raises: OracleLost."""
        self._say(pickle.dumps(self._without_known(request)))
        quiet = False
        try:
            while QUIET in (said := self._heard(limit_s)):
                quiet = bool(said[QUIET])
                self._quiet(quiet)
                self._say(b"")
        finally:
            if quiet:
                self._quiet(False)
        answer: Answer = from_plain(Answer, said)
        return answer

    def _without_known(self, request: Examine | Calibrate | Ahead) -> Examine | Calibrate | Ahead | Same:
        """A request without the weights that the oracle has had with the request before."""
        if isinstance(request, Ahead) or request.task is None:
            return request
        before, self._told = self._told, request.task
        if request.task.state is None or before != request.task:
            return request
        return Same(replace(request, task=replace(request.task, state=None)))

    def _say(self, body: bytes) -> None:
        try:
            write_message(self._control, body)
        except OSError as error:
            raise OracleLost(self._tail(str(error))) from error

    def close(self) -> None:
        """End the process."""
        self._finalizer()

    def _heard(self, limit_s: float) -> Any:
        self._control.settimeout(limit_s)
        try:
            return json.loads(read_message(self._control))
        except (OSError, EOFError) as error:
            raise OracleLost(self._tail(str(error))) from error

    def _tail(self, why: str) -> str:
        text = self._log_path.read_text(errors="replace") if self._log_path.exists() else ""
        return f"{why}; the end of its log:\n{text[-1500:]}"


def _end(process: subprocess.Popen[bytes], control: socket.socket) -> None:
    control.close()
    process.kill()
    process.wait()
