"""Candidates' processes that have connected to the oracle and wait to be asked."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator, Sequence

from mtmc.evaluate.measure.candidate_process import TOKEN
from mtmc.evaluate.measure.conversation import Failed
from mtmc.evaluate.measure.peer import ENDING_S, end, standing_still
from mtmc.evaluate.measure.questions import NO_START
from mtmc.evaluate.measure.wire import READY, Gone, Hello, Line, Silent
from mtmc.outcome import Diagnosis

CONNECT_S = 60.0
"""Seconds until a candidate's process must have connected: a cold disk is slow."""


class Waiting:
    """Lines to processes, by the tokens that they said. flags: descriptor of the page that each of them gets.

    A process that has its context and the page says so: the driver is at work for it until then.
    """

    def __init__(self, listener: socket.socket, flags: int) -> None:
        self._listener, self._flags = listener, flags
        self._lines: dict[str, Line] = {}
        self._ready: set[str] = set()  # tokens of those that have said so
        self._unwanted: set[str] = set()  # tokens of processes that are to end when they connect

    def __contains__(self, token: str) -> bool:
        return token in self._lines

    def line_to(self, token: str) -> Line:
        """The line to the process with a token, which waits no more. Raises: Failed if it does not come."""
        try:
            self._welcome_all()  # they get ready while others are at work
            while token not in self._lines:
                self._welcome(CONNECT_S)
        except (TimeoutError, OSError):
            message = f"a candidate's process did not connect within {CONNECT_S:g} s"
            raise Failed("crash", Diagnosis("check", NO_START, message)) from None
        try:
            self._wait_for(token, CONNECT_S)
        except (Silent, Gone) as error:
            end(self._lines.pop(token), ENDING_S)
            message = f"a process for candidates ended before it had a context, or took more than {CONNECT_S:g} s"
            raise Failed("crash", Diagnosis("check", NO_START, message)) from error
        self._ready.discard(token)
        return self._lines.pop(token)

    def settle(self, tokens: Sequence[str], limit_s: float) -> None:
        """Wait until the processes with these tokens have their contexts: who makes one disturbs what is timed meanwhile.
        One that does not come within `limit_s` seconds in all is left to whoever asks for it."""
        deadline = time.monotonic() + limit_s
        for token in tokens:
            with contextlib.suppress(OSError, Silent, Gone):
                while token not in self._lines:
                    self._welcome(max(1e-3, deadline - time.monotonic()))
                self._wait_for(token, max(0.0, deadline - time.monotonic()))

    @contextlib.contextmanager
    def still(self) -> Iterator[None]:
        """While it is open, processes that wait, or get ready, stand still: those that make their contexts take the host's
        time, and turns of the device."""
        self._welcome_all()
        with standing_still(self._lines.values()):
            yield

    def _welcome_all(self) -> None:
        """Greet all that have connected. Raises: OSError."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self._welcome(0.0)

    def _wait_for(self, token: str, limit_s: float) -> None:
        """Raises: Silent, Gone."""
        if token not in self._ready:
            if self._lines[token].heard(limit_s) != READY:
                raise Gone("a process spoke before it was asked")
            self._ready.add(token)

    def keep(self, token: str, line: Line) -> None:
        """Let a process wait for the next candidate."""
        self._lines[token] = line
        self._ready.add(token)

    def end(self, token: str | None) -> None:
        """End a process that waits; nothing where none of that token does."""
        if token in self._lines:
            self._ready.discard(token)
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
