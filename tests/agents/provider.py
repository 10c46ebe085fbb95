"""A provider in this process that bills what it does, and fails at random: who asks it may not be told what it billed.

It stands in for `litellm.acompletion`. Its bill is the truth that a run's books are held against.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from typing import Any

import httpx
import openai

from mtmc.agents.llm.litellm_api import load_litellm

MODEL = "openai/gpt-5-mini"
USD_IN, USD_OUT = 2.5e-7, 2e-6
"""List price of `MODEL` in litellm's table, a token."""
REQUEST = httpx.Request("POST", "http://127.0.0.1:9/v1/chat/completions")
ANSWERS = ("well", "503", "429", "hangs", "reset", "no choices", "negative usage", "no usage", "504 but billed")
WEIGHTS = (12, 2, 2, 1, 1, 1, 1, 1, 1)


class Provider:
    """tokens, usd, calls: billed so far. answers: how often it answered in which way. on_kill: called at one request in
    `kill_every`, while others are under way."""

    def __init__(self, seed: int, kill_every: int = 0, on_kill: Callable[[], None] = lambda: None) -> None:
        self.tokens, self.usd, self.calls = 0, 0.0, 0
        self.answers: dict[str, int] = {}
        self.on_kill = on_kill
        self._kill_every = kill_every
        self._random = random.Random(seed)
        self._lock = threading.Lock()

    async def acompletion(self, **given: Any) -> Any:
        """See `litellm.acompletion`."""
        with self._lock:
            how = self._random.choices(ANSWERS, WEIGHTS)[0]
            self.calls += 1
            self.answers[how] = self.answers.get(how, 0) + 1
            killed = self._kill_every and self.calls % self._kill_every == 0
            size = sum(len(message["content"].encode()) for message in given["messages"])
            tokens_in = int(size * self._random.uniform(0.2, 0.3)) + 12
            tokens_out = self._random.randint(1, given["max_tokens"])
            pause_s = self._random.uniform(0.0, 0.004)
        if killed:
            self.on_kill()
        await asyncio.sleep(pause_s)
        if how in ("503", "429"):
            raise _error(int(how))
        with self._lock:
            self.tokens += tokens_in + tokens_out
            self.usd += tokens_in * USD_IN + tokens_out * USD_OUT
        if how == "504 but billed":
            raise _error(504)
        if how == "hangs":
            await asyncio.sleep(3600)
        if how == "reset":
            raise openai.APIConnectionError(request=REQUEST) from ConnectionResetError(104, "reset by peer")
        return _response(how, tokens_in, tokens_out)


def _error(status: int) -> openai.APIStatusError:
    return openai.APIStatusError("busy", response=httpx.Response(status, request=REQUEST), body=None)


def _response(how: str, tokens_in: int, tokens_out: int) -> Any:
    litellm = load_litellm()
    sign = -1 if how == "negative usage" else 1
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "x" * tokens_out}}
    response = litellm.ModelResponse(choices=[choice], model="gpt-5-mini")
    response.usage = litellm.Usage(
        prompt_tokens=sign * tokens_in,
        completion_tokens=sign * tokens_out,
        total_tokens=sign * (tokens_in + tokens_out),
    )
    if how == "no choices":
        response.choices = []
    if how == "no usage":
        del response.usage
    return response
