"""Candidates' processes that have connected to the oracle and wait to be asked."""

from __future__ import annotations

import contextlib
import socket

from mtmc.evaluate.measure.candidate_process import TOKEN
from mtmc.evaluate.measure.conversation import Failed
from mtmc.evaluate.measure.peer import end
from mtmc.evaluate.measure.questions import NO_START
from mtmc.evaluate.measure.wire import Gone, Hello, Line
from mtmc.outcome import Diagnosis

CONNECT_S = 60.0
"""Seconds until a candidate's process must have connected: a cold disk is slow."""


class Waiting:
    """Lines to processes, by the tokens that they said. flags: descriptor of the page that each of them gets."""

    def __init__(self, listener: socket.socket, flags: int) -> None:
        self._listener, self._flags = listener, flags
        self._lines: dict[str, Line] = {}
        self._unwanted: set[str] = set()  # tokens of processes that are to end when they connect

    def __contains__(self, token: str) -> bool:
        return token in self._lines

    def line_to(self, token: str) -> Line:
        """The line to the process with a token, which waits no more. Raises: Failed if it does not come."""
        try:
            with contextlib.suppress(
                BlockingIOError
            ):  # those that wait already: they get ready while others are at work
                while True:
                    self._welcome(0.0)
            while token not in self._lines:
                self._welcome(CONNECT_S)
        except (TimeoutError, OSError):
            message = f"a candidate's process did not connect within {CONNECT_S:g} s"
            raise Failed("crash", Diagnosis("check", NO_START, message)) from None
        return self._lines.pop(token)

    def keep(self, token: str, line: Line) -> None:
        """Let a process wait for the next candidate."""
        self._lines[token] = line

    def end(self, token: str | None) -> None:
        """End a process that waits; nothing where none of that token does."""
        if token in self._lines:
            end(self._lines.pop(token))

    def dismiss(self, token: str) -> None:
        """End a process that nothing is asked of any more, as soon as it is there."""
        if token in self._lines:
            self.end(token)
        else:
            self._unwanted.add(token)

    def _welcome(self, limit_s: float) -> None:
        """Greet the next process that connects. Raises: TimeoutError, or BlockingIOError where `limit_s` is 0."""
        self._listener.settimeout(limit_s)
        connection, _ = self._listener.accept()
        connection.settimeout(10.0)
        token = connection.recv(TOKEN, socket.MSG_WAITALL).decode(errors="replace")
        connection.settimeout(None)
        self._lines[token] = line = Line(connection)
        if token in self._unwanted:
            self._unwanted.remove(token)
            self.dismiss(token)
            return
        with contextlib.suppress(Gone):  # it ended before it was needed: who asks it for more will hear
            line.ask(Hello(), (self._flags,))
