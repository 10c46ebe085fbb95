"""Chat: what is asked of a language model, what it answers, and the record of both. Plain data, no network."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mtmc.errors import ConfigError
from mtmc.outcome import Cost

Role = Literal["system", "user", "assistant"]
POLICY = "policy"
"""Purpose of a question about a version, and not for making one."""


@dataclass(frozen=True)
class ModelSettings:
    """Which model, and how it is asked.

    name: as litellm spells it, "openai/gpt-5-mini" or "anthropic/claude-sonnet-4-5"; "" for none.
    api_base: address of a server that speaks OpenAI's protocol, "http://127.0.0.1:8080/v1"; "" for the provider's own.
    temperature: None leaves it to the model. max_tokens: of a reply. timeout_s: of one request.
    retries: further tries of a request that failed in a way that may pass (429, 5xx, timeouts, lost connections).
    replay: folder of a run whose recorded replies are given instead of asking anybody; "" asks.
    """

    name: str = ""
    api_base: str = ""
    temperature: float | None = 0.7
    max_tokens: int = 8192
    timeout_s: float = 120.0
    retries: int = 4
    replay: str = ""

    def __post_init__(self) -> None:
        """Raises: ConfigError naming the setting, its value and what it may be."""
        if self.temperature is not None and not 0 <= self.temperature <= 2:
            raise ConfigError(f"model.temperature cannot be {self.temperature}: use 0 to 2, or null")
        if self.max_tokens < 1:
            raise ConfigError(f"model.max_tokens cannot be {self.max_tokens}: use 1 or more")
        if not self.timeout_s > 0:
            raise ConfigError(f"model.timeout_s cannot be {self.timeout_s}: use a number of seconds above 0")
        if self.retries < 0:
            raise ConfigError(f"model.retries cannot be {self.retries}: use 0 or more")


@dataclass(frozen=True)
class Message:
    """One turn of a conversation."""

    role: Role
    content: str


@dataclass(frozen=True)
class ChatRequest:
    """One question. purpose: what it is for, in a word ("edit", "repair", "agent", "policy"). seed: tells equal questions
    of different trials apart, and is handed to models that take one."""

    messages: tuple[Message, ...]
    purpose: str
    seed: int = 0


@dataclass(frozen=True)
class ChatReply:
    """An answer as it came. id: of the recorded call. truncated: it ended because `max_tokens` were reached.

    usd: None where the model has no known price. seconds: from asking to the answer, waiting and retries included.
    tries: requests sent, the last one included.
    """

    text: str
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float | None = None
    seconds: float = 0.0
    truncated: bool = False
    tries: int = 1
    id: int = -1

    @property
    def cost(self) -> Cost:
        """As part of a step's cost; a model without a price counts 0 USD."""
        return Cost(self.seconds, self.usd or 0.0, self.tokens_in, self.tokens_out, 1)


@dataclass(frozen=True)
class ModelCall:
    """One call as a run records it.

    trial_id: whose account it was on (`ROOT_TRIAL` for none). node_id: the version that was looked at.
    reply: None where none came, `error` then says why. spent: whether it was not asked because the budget was spent.
    verdict: what became of the reply: "usable", "repaired", "unusable: why"; "" while nobody has said.
    replayed: whether the reply came from a record and cost nothing.
    """

    id: int
    trial_id: int
    node_id: int
    key: str
    model: str
    request: ChatRequest
    reply: ChatReply | None
    error: str = ""
    spent: bool = False
    verdict: str = ""
    replayed: bool = False

    @property
    def purpose(self) -> str:
        """What the question was for, see `ChatRequest.purpose`."""
        return self.request.purpose


def request_key(request: ChatRequest, settings: ModelSettings) -> str:
    """Content address of a question: equal for equal messages, model, sampling and seed, wherever the model is served."""
    facts = [
        settings.name,
        settings.temperature,
        settings.max_tokens,
        request.seed,
        [[message.role, message.content] for message in request.messages],
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def messages_to_json(messages: Sequence[Message]) -> str:
    """Messages as text; `messages_from_json` is its inverse."""
    return json.dumps([[message.role, message.content] for message in messages])


def messages_from_json(text: str) -> tuple[Message, ...]:
    """Inverse of `messages_to_json`."""
    pairs: list[list[Any]] = json.loads(text)
    return tuple(Message(role, content) for role, content in pairs)
