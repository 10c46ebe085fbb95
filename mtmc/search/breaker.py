"""Breaker: when a model that gives no reply is asked again, when the question is at fault, and when the search ends.

A circuit breaker. Closed, a question that brought no reply is asked again, after a pause, as long as the model may still
come back: a request that fails in passing says nothing about the edit that was asked for. When nothing was answered for
`patience_s`, one short question tries whether there is a model at all. If it is answered, the long question is at fault,
and fails alone. If it is not, the breaker is open, and every question of this process fails at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from mtmc.chat import ChatRequest, Message
from mtmc.errors import ModelDown, NoReply

PAUSE_S = 10.0
"""Between two times that a question is asked, in seconds; each time has the client's own tries."""

PROBE = ChatRequest((Message("user", "Reply with the word ready"),), "probe")
"""The short question."""


class Breaker:
    """Of one run's model. From any thread."""

    def __init__(self, name: str, patience_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """name: of the model. patience_s: seconds without any reply before the short question. clock: in seconds."""
        self._name = name
        self._patience_s = patience_s
        self._clock = clock
        self._silent_since: float | None = None
        self._down = ""
        self._guard = threading.Lock()

    def check(self) -> None:
        """Raises: ModelDown where the breaker is open."""
        if self._down:
            raise ModelDown(self._down)

    def asked(self) -> None:
        """A question is sent: silence counts from here, unless it has begun before."""
        with self._guard:
            self._silent_since = self._clock() if self._silent_since is None else self._silent_since

    def answered(self) -> None:
        """A reply came, to whatever question."""
        with self._guard:
            self._silent_since = None

    def may_ask_again(self) -> bool:
        """Whether a question that brought no reply in passing is asked again; else it is time for the short one."""
        with self._guard:
            return self._silent_since is None or self._clock() - self._silent_since < self._patience_s

    def open(self, error: NoReply) -> ModelDown:
        """The short question was not answered either: the error of this and of all further questions."""
        with self._guard:
            hint = "see to it, then resume the run: nothing is lost"
            self._down = f"the model {self._name} has answered nothing for {self._patience_s:g} s ({error}): {hint}"
            return ModelDown(self._down)
