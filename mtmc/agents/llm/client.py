"""Client: sends questions to a language model through litellm, whatever provider or local server it is at.

All requests of a process run on one event loop in a thread of its own; `send` blocks only the thread that calls it. Each
request has a wall limit, retries are ours alone (litellm's and the provider's libraries' are off), and no message that is
raised or logged holds a key. litellm is imported by the first request.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from typing import Any, TypeVar

from mtmc.agents.llm.errors import LOST, NO_REPLY_IN_TIME, UNREADABLE, Failure, NoReply, classify, redact, to_error
from mtmc.agents.llm.litellm_api import arguments, find_target, load_litellm, read, with_lengths
from mtmc.chat import ChatReply, ChatRequest, Message, ModelSettings, request_key

__all__ = ["Client", "check_model", "redact"]

BACKOFF_S = 1.0
"""Wait before the first retry; it doubles with each."""
BACKOFF_CAP_S = 60.0
CHECK_TOKENS = 512

_log = logging.getLogger(__name__)
_loops: dict[int, asyncio.AbstractEventLoop] = {}
_loops_lock = threading.Lock()
T = TypeVar("T")


class Client:
    """A model that can be asked from many threads at once."""

    def __init__(
        self,
        settings: ModelSettings,
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        now: Callable[[], float] = time.time,
    ) -> None:
        """sleep: waits between tries, on the event loop. now: seconds since the epoch, for a Retry-After that is a date."""
        self._settings = settings
        self._sleep = sleep
        self._now = now
        self._reached = False  # whether any server ever answered: one that does not later may be back soon
        self._closed = False
        self._open: set[Future[Any]] = set()
        self._lock = threading.Lock()

    def send(self, request: ChatRequest) -> ChatReply:
        """Ask, and ask again where that may help; the reply's `id` stays -1.

        Raises: NoReply (a CoderError) where this request brought none; ModelError where no request can: no key or a bad
        one, no such model, no server.
        """
        litellm = load_litellm()
        target = find_target(litellm, self._settings)
        start = time.perf_counter()
        response, failures = self._wait(self._ask(litellm, arguments(self._settings, target, request), request))
        seconds = time.perf_counter() - start
        tries = len(failures) + (response is not None)
        if response is not None:
            return read(litellm, response, self._settings, target, request, seconds, tries)
        last = failures[-1]
        if last.kind == "filtered":  # a refusal like any other: what to make of it is for whoever reads the reply
            return ChatReply(last.text, seconds=seconds, tries=tries)
        if last.kind == "long":
            failures[-1] = with_lengths(litellm, last, self._settings, request)
        raise to_error(failures, self._settings, target.keys, target.keyless, seconds, self._reached)

    def close(self) -> None:
        """End the requests under way, each with a NoReply in its thread. Idempotent."""
        with self._lock:
            self._closed = True
            under_way = list(self._open)
        for future in under_way:
            future.cancel()

    def _wait(self, asking: Coroutine[Any, Any, T]) -> T:
        with self._lock:
            if self._closed:
                asking.close()
                raise NoReply(f"the client of model {self._settings.name} is closed: open another one")
            future = asyncio.run_coroutine_threadsafe(asking, _event_loop())
            self._open.add(future)
        try:
            return future.result()
        except CancelledError:
            pass
        finally:
            future.cancel()  # of a thread that is interrupted while it waits
            with self._lock:
                self._open.discard(future)
        raise NoReply(f"the client of model {self._settings.name} was closed before a reply came")

    async def _ask(
        self, litellm: Any, arguments: Mapping[str, Any], request: ChatRequest
    ) -> tuple[Any | None, list[Failure]]:
        """(litellm's response or None, the failures before it)."""
        jitter = random.Random(request_key(request, self._settings))
        failures: list[Failure] = []
        while True:
            answer = await self._ask_once(litellm, arguments)
            if not isinstance(answer, Failure):
                self._reached = True
                return answer, failures
            self._reached |= answer.answered
            failures.append(answer)
            if not answer.may_pass or len(failures) > self._settings.retries:
                return None, failures
            wait_s = min(BACKOFF_S * 2 ** (len(failures) - 1), BACKOFF_CAP_S) * jitter.uniform(0.5, 1.0)
            wait_s = max(wait_s, answer.wait_s or 0.0)
            _log.info("model %s: %s; try %d in %.1f s", self._settings.name, answer, len(failures) + 1, wait_s)
            await self._sleep(wait_s)

    async def _ask_once(self, litellm: Any, arguments: Mapping[str, Any]) -> Any:
        """litellm's response, or a Failure. The task is left behind when its time is up, whatever it does about that."""
        task = asyncio.ensure_future(litellm.acompletion(**arguments))
        try:
            done, _ = await asyncio.wait({task}, timeout=self._settings.timeout_s)
        finally:
            if not task.done():
                task.cancel()
                task.add_done_callback(_forget)
        if not done:
            return self._timeout()
        if task.cancelled():
            return Failure("passing", LOST, "the request was cancelled")
        error = task.exception()
        if error is None:
            response = task.result()
            return response if response.choices else Failure("passing", UNREADABLE, "it has no choices", answered=True)
        failure = classify(error, self._now())
        return self._timeout() if failure.what == NO_REPLY_IN_TIME else failure

    def _timeout(self) -> Failure:
        return Failure("passing", f"no reply in {self._settings.timeout_s:g} s")


def check_model(settings: ModelSettings) -> str:
    """Ask the model for one word, end to end, and describe it in a line: model, reply, tokens, price, time.

    Raises: ModelError, CoderError as `Client.send`.
    """
    client = Client(replace(settings, max_tokens=min(settings.max_tokens, CHECK_TOKENS)))
    try:
        reply = client.send(ChatRequest((Message("user", "Reply with the word ready"),), "check"))
    finally:
        client.close()
    words = " ".join(reply.text.split())
    said = repr(words if len(words) <= 40 else words[:40] + "...") if words else "nothing"
    price = "no known price" if reply.usd is None else f"{reply.usd:.6f} USD"
    where = f" at {settings.api_base}" if settings.api_base else ""
    tokens = f"{reply.tokens_in} + {reply.tokens_out} tokens"
    return redact(f"{settings.name}{where} replied {said}, {tokens}, {price}, {reply.seconds:.1f} s")


def _event_loop() -> asyncio.AbstractEventLoop:
    """The loop of this process, for good: litellm keeps connections that belong to the loop they were made on."""
    with _loops_lock:
        loop = _loops.get(os.getpid())  # a forked child has the loop, but not its thread
        if loop is None:
            loop = _loops[os.getpid()] = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="mtmc-llm", daemon=True).start()
    return loop


def _forget(task: asyncio.Future[Any]) -> None:
    """Take the result of a task that nobody waits for: asyncio complains of exceptions that nobody has looked at."""
    if not task.cancelled():
        task.exception()
