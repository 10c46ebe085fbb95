"""Client: sends questions to a language model through litellm, whatever provider or local server it is at.

All requests of a process run on one event loop in a thread of its own; `send` blocks only the thread that calls it. Each
request has a wall limit, retries are ours alone (litellm's and the provider's libraries' are off), and no message that is
raised or logged holds a key. litellm is imported by the first request.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import random
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import CancelledError, Future, wait
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from mtmc.agents.llm.errors import LOST, NO_REPLY_IN_TIME, UNREADABLE, Failure, classify, to_error
from mtmc.agents.llm.litellm_api import (
    arguments,
    callback_of,
    find_target,
    left_out,
    load_litellm,
    read,
    takes_choices,
    takes_functions,
    takes_marks,
    takes_schema,
    with_lengths,
)
from mtmc.agents.llm.messages import marked, messages_of
from mtmc.agents.llm.prices import Target, demand_of
from mtmc.agents.llm.streaming import Pieces, complete
from mtmc.booking import Meter
from mtmc.chat import ChatReply, ChatRequest, Message, ModelSettings, request_key
from mtmc.errors import BudgetSpent, NoReply
from mtmc.outcome import Cost
from mtmc.redaction import redact

__all__ = ["Client", "check_model", "redact"]

BACKOFF_S = 1.0
"""Wait before the first retry; it doubles with each."""
BACKOFF_CAP_S = 60.0
ALIVE_S = 1.0
"""How often a thread that waits for a reply looks whether the loop of requests is alive, in seconds."""
WAKE_S = 0.1
"""How often a request whose run has a limit of time looks at it, in seconds."""
CHECK_TOKENS = 512

_log = logging.getLogger(__name__)
_loops: dict[int, _Loop] = {}
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
        self._secrets = settings.secrets
        self._told = False  # of what the provider does not take
        self._alone = settings.stream  # whether each request asks for one reply: a server has refused several
        self._plain = False  # whether no functions are offered: a server has refused them
        self._free = False  # whether no reply is held to a schema: a server has refused one
        self._sleep = sleep
        self._now = now
        self._reached = False  # whether any server ever answered: one that does not later may be back soon
        self._closed = False
        self._open: set[Future[Any]] = set()
        self._lock = threading.Lock()

    def send(self, request: ChatRequest, meter: Meter | None = None) -> ChatReply:
        """Ask, and ask again where that may help; the reply's `id` stays -1.

        meter: admits and books each request; None: all are admitted.

        Raises: NoReply (a CoderError) where this request brought none; BudgetSpent where the meter admits no more;
        ModelError where no request can bring one: no key or a bad one, no such model, no server.
        """
        meter = _FreeMeter() if meter is None else meter
        litellm = load_litellm()
        target = find_target(litellm, self._settings)
        self._introduce(litellm, target)
        start = time.perf_counter()
        jitter = random.Random(request_key(request, self._settings))
        failures: list[Failure] = []
        while True:
            found = self._try(litellm, target, request, meter)
            if not isinstance(found, Failure):
                return replace(found, seconds=time.perf_counter() - start, tries=len(failures) + 1)
            failures.append(found)
            if found.kind == "filtered":  # a refusal like any other: what to make of it is for whoever reads the reply
                return ChatReply(found.text, seconds=time.perf_counter() - start, tries=len(failures))
            if found.kind == "refused" and request.also and not self._alone:
                _log.info(
                    "model %s gives no several replies to one request: each is asked for (%s)", target.model, found
                )
                self._alone = True
                continue
            if found.kind in ("refused", "install") and not self._plain and self._native(litellm, target, request):
                _log.warning("model %s refuses functions: the agent's tools are text to it (%s)", target.model, found)
                self._plain = True
                continue
            if found.kind == "refused" and not self._free and self._held(litellm, target, request):
                _log.warning("model %s refuses a schema: it is asked for text (%s)", target.model, found)
                self._free = True
                continue
            if not found.may_pass or len(failures) > self._settings.retries:
                break
            self._pause(failures, jitter, meter)
        if failures[-1].kind == "long":
            failures[-1] = with_lengths(litellm, failures[-1], self._settings, target, request)
        seconds = time.perf_counter() - start
        error = to_error(failures, self._settings, target.keys, target.keyless, seconds, self._reached)
        error.args = (self._secrets.redact(str(error)),)
        raise error

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
            loop = _event_loop()
            future = asyncio.run_coroutine_threadsafe(asking, loop.loop)
            self._open.add(future)
        try:
            while not wait({future}, ALIVE_S).done:
                if not loop.thread.is_alive():  # nothing would ever come
                    raise NoReply(f"the thread that asks model {self._settings.name} has ended: see the log for why")
            return future.result()
        except CancelledError:
            pass
        finally:
            future.cancel()  # of a thread that is interrupted while it waits
            with self._lock:
                self._open.discard(future)
        raise NoReply(f"the client of model {self._settings.name} was closed before a reply came")

    def _try(self, litellm: Any, target: Target, request: ChatRequest, meter: Meter) -> ChatReply | Failure:
        """One request, admitted and booked."""
        sent = messages_of(request, self._native(litellm, target, request))
        if self._held(litellm, target, request):
            assert request.form is not None
            sent = replace(sent, schema=request.form.schema)
        if takes_marks(litellm, self._settings, target):
            sent = marked(sent, goes_on=request.functions is not None or len(request.messages) > 2)
        demand = demand_of(litellm, self._settings, target, sent)
        wanted = 1 if self._alone or not takes_choices(litellm, target) else 1 + len(request.also)
        granted = meter.begin(replace(demand, max_tokens=wanted * demand.max_tokens))
        choices = max(1, min(wanted, granted // demand.max_tokens))
        given = arguments(self._settings, target, request, sent, min(demand.max_tokens, granted // choices), choices)
        answer = self._wait(self._ask_once(litellm, given, meter))
        if isinstance(answer, Failure):
            self._reached |= answer.answered
            meter.settle("unknown" if answer.may_be_billed else "failed", Cost())
            if meter.seconds_left() <= 0:
                raise BudgetSpent(f"no reply came before the run's limit of time ({answer})")
            return answer
        self._reached = True
        reply, reported = read(litellm, answer, self._settings, target, request)
        if not reported:
            _log.info("model %s reports no usage: its reply is booked as the most that it may have taken", target.model)
        meter.settle("answered" if reported else "unknown", reply.cost)
        return reply

    def _native(self, litellm: Any, target: Target, request: ChatRequest) -> bool:
        """Whether a request's functions are offered as the provider's own."""
        return request.functions is not None and not self._plain and takes_functions(litellm, target)

    def _held(self, litellm: Any, target: Target, request: ChatRequest) -> bool:
        """Whether the reply to a request is held to a schema."""
        return request.form is not None and not self._free and takes_schema(litellm, target)

    def _introduce(self, litellm: Any, target: Target) -> None:
        """Once: say which settings the provider does not take, and hand the callbacks to litellm."""
        with self._lock:
            if self._told:
                return
            self._told = True
        for name in left_out(litellm, self._settings, target):
            _log.warning("model %s takes no %s: it is left out of the requests", self._settings.name, name)
        for name in self._settings.callbacks:
            called = callback_of(name)
            if called not in litellm.callbacks:
                _log.warning("litellm's callback %s is told of every question and reply", name)
                litellm.callbacks.append(called)

    def _pause(self, failures: list[Failure], jitter: random.Random, meter: Meter) -> None:
        """Wait before the next try, as long as the server asks for."""
        wait_s = min(BACKOFF_S * 2 ** (len(failures) - 1), BACKOFF_CAP_S) * jitter.uniform(0.5, 1.0)
        wait_s = max(wait_s, failures[-1].wait_s or 0.0)
        try:
            meter.pause(wait_s)
        except BudgetSpent as spent:
            raise BudgetSpent(f"{spent} ({failures[-1]})") from None
        name, tries = self._settings.name, len(failures) + 1
        _log.info("model %s: %s; try %d in %.1f s", name, failures[-1], tries, wait_s)
        self._wait(_done(self._sleep(wait_s)))

    async def _ask_once(self, litellm: Any, arguments: Mapping[str, Any], meter: Meter) -> Any:
        """litellm's response, or a Failure. The task is left behind when its time is up, whatever it does about that."""
        began = time.perf_counter()
        pieces = Pieces()
        task = asyncio.ensure_future(complete(litellm, arguments, pieces))
        try:
            while not task.done():
                own = self._settings.timeout_s - (time.perf_counter() - max(began, pieces.last))
                left = meter.seconds_left()
                if min(own, left) <= 0:
                    return self._timeout(min(self._settings.timeout_s, time.perf_counter() - began))
                await asyncio.wait({task}, timeout=own if left == math.inf else min(own, left, WAKE_S))
        finally:
            if not task.done():
                task.cancel()
                task.add_done_callback(_forget)
        if task.cancelled():
            return Failure("passing", LOST, "the request was cancelled")
        error = task.exception()
        if error is None:
            response = task.result()
            return response if response.choices else Failure("passing", UNREADABLE, "it has no choices", answered=True)
        failure = classify(error, self._now(), self._secrets)
        return self._timeout(self._settings.timeout_s) if failure.what == NO_REPLY_IN_TIME else failure

    def _timeout(self, seconds: float) -> Failure:
        return Failure("passing", f"no reply in {seconds:g} s" if seconds >= 0.1 else "no reply in time")


class _FreeMeter(Meter):
    """Of a question on nobody's account."""


def check_model(settings: ModelSettings) -> str:
    """Ask the model for one word, end to end, and describe it in a line: model, reply, tokens, price, time.

    Raises: ModelError, CoderError as `Client.send`.
    """
    client = Client(replace(settings, max_tokens=min(settings.max_tokens or CHECK_TOKENS, CHECK_TOKENS)))
    try:
        reply = client.send(ChatRequest((Message("user", "Reply with the word ready"),), "check"))
    finally:
        client.close()
    words = " ".join(reply.text.split())
    said = repr(words if len(words) <= 40 else words[:40] + "...") if words else "nothing"
    price = "no known price" if reply.usd is None else f"{reply.usd:.6f} USD"
    where = f" at {settings.api_base}" if settings.api_base else ""
    tokens = f"{reply.tokens_in} + {reply.tokens_out} tokens"
    return settings.secrets.redact(f"{settings.name}{where} replied {said}, {tokens}, {price}, {reply.seconds:.1f} s")


async def _done(waiting: Awaitable[object]) -> None:
    await waiting


@dataclass(frozen=True)
class _Loop:
    """A loop of requests, and its thread."""

    loop: asyncio.AbstractEventLoop
    thread: threading.Thread


def _event_loop() -> _Loop:
    """The loop of this process, for good: litellm keeps connections that belong to the loop they were made on. Another one
    where its thread has ended."""
    with _loops_lock:
        found = _loops.get(os.getpid())  # a forked child has the loop, but not its thread
        if found is None or not found.thread.is_alive():
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=_run_for_ever, args=(loop,), name="mtmc-llm", daemon=True)
            thread.start()
            found = _loops[os.getpid()] = _Loop(loop, thread)
    return found


def _run_for_ever(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop. What ends it all the same is told: an exit that a provider's library asks for, say."""
    try:
        loop.run_forever()
    except BaseException:
        _log.exception("the thread of requests to language models has ended")
    else:
        _log.error("the loop of requests to language models was stopped by somebody")


def _forget(task: asyncio.Future[Any]) -> None:
    """Take the result of a task that nobody waits for: asyncio complains of exceptions that nobody has looked at."""
    if not task.cancelled():
        task.exception()
