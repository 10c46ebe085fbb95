"""Chat: what is asked of a language model, what it answers, and the record of both. Plain data, no network."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from mtmc.errors import ConfigError
from mtmc.outcome import Cost
from mtmc.redaction import Secrets, given_secrets, secrets_of

Role = Literal["system", "user", "assistant"]
POLICY = "policy"
"""Purpose of a question about a version, and not for making one."""


MAX_TOKENS, REASONING_MAX_TOKENS = 8192, 32768
"""Of a reply where nothing else is set; reasoning counts, and takes most of it."""

OWN_ARGUMENTS = {
    "model": "model.name",
    "messages": "the question",
    "api_base": "model.api_base",
    "api_key": "read from the environment",
    "temperature": "model.temperature",
    "max_tokens": "model.max_tokens",
    "max_completion_tokens": "model.max_tokens",
    "timeout": "model.timeout_s",
    "stream": "model.stream",
    "reasoning_effort": "model.reasoning_effort",
    "seed": "the question's",
    "num_retries": "model.retries",
    "max_retries": "model.retries",
    "n": "agents.candidates",
}
"""Arguments of a request that have a setting of their own, or none."""


@dataclass(frozen=True)
class ModelSettings:
    """Which model, and how it is asked.

    name: as litellm spells it, "openai/gpt-5-mini" or "anthropic/claude-sonnet-4-5"; "" for none.
    api_base: address of a server that speaks OpenAI's protocol, "http://127.0.0.1:8080/v1"; "" for the provider's own.
    temperature: None leaves it to the model. max_tokens: of a reply, its reasoning included; None: 8192, and 32768 for a
        model that reasons. reasoning_effort: "low", "medium", "high" say; "" leaves it to the model.
    extra: further arguments of `litellm.acompletion` and of the server, {"top_p": 0.9, "extra_headers": {...}} say.
    stream: whether a reply is taken piece by piece. timeout_s: of one request, or with `stream` until its next piece.
    retries: further tries of a request that failed in a way that may pass (429, 5xx, timeouts, lost connections).
    replay: folder of a run whose recorded replies are given instead of asking anybody; "" asks.
    callbacks: litellm's callbacks that are told of each request and its reply, ("langfuse",) say; () tells nobody.
    patience_s: how long a search goes on asking a model that answers nothing, in seconds, before it ends.
    usd_per_million_in, usd_per_million_out: price of a million tokens of prompts and of replies, 0 for a server of one's
        own; None takes litellm's list price.
    """

    name: str = ""
    api_base: str = ""
    temperature: float | None = 0.7
    max_tokens: int | None = None
    timeout_s: float = 120.0
    retries: int = 4
    replay: str = ""
    patience_s: float = 300.0
    usd_per_million_in: float | None = None
    usd_per_million_out: float | None = None
    reasoning_effort: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    stream: bool = False
    callbacks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raises: ConfigError naming the setting, its value and what it may be."""
        if self.temperature is not None and not 0 <= self.temperature <= 2:
            raise ConfigError(f"model.temperature cannot be {self.temperature}: use 0 to 2, or null")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise ConfigError(f"model.max_tokens cannot be {self.max_tokens}: use 1 or more")
        if not self.timeout_s > 0:
            raise ConfigError(f"model.timeout_s cannot be {self.timeout_s}: use a number of seconds above 0")
        if self.retries < 0:
            raise ConfigError(f"model.retries cannot be {self.retries}: use 0 or more")
        taken = sorted(set(self.extra) & set(OWN_ARGUMENTS))
        if taken:
            raise ConfigError(
                f"model.extra cannot hold {taken[0]!r}, which is {OWN_ARGUMENTS[taken[0]]}: leave it out there"
            )
        object.__setattr__(self, "callbacks", tuple(self.callbacks))
        if not self.patience_s >= 0:
            raise ConfigError(f"model.patience_s cannot be {self.patience_s}: use a number of seconds, 0 or more")
        prices = {name: getattr(self, name) for name in ("usd_per_million_in", "usd_per_million_out")}
        for name, usd in prices.items():
            if usd is not None and not 0 <= usd < math.inf:
                raise ConfigError(f"model.{name} cannot be {usd}: use 0 or more USD, or null")
        if None in prices.values() and any(usd is not None for usd in prices.values()):
            lacking = next(name for name, usd in prices.items() if usd is None)
            raise ConfigError(f"model.{lacking} cannot be null where the other price is set: set both, or none")

    @property
    def secrets(self) -> Secrets:
        """What of this must not be written down: see `redaction`."""
        return secrets_of(self.name, self.api_base, given_secrets(self.extra))


@dataclass(frozen=True)
class Message:
    """One turn of a conversation."""

    role: Role
    content: str


@dataclass(frozen=True)
class NativeCall:
    """A call of a function in a provider's own form. prose: what is said besides. arguments: a JSON object as text."""

    prose: str
    name: str
    arguments: str


class Functions(Protocol):
    """What may be called in a conversation whose text has calls in a form of our own: the same as a provider's functions.

    A question is recorded in our form, and so is its reply, whichever form went over the wire.
    """

    @property
    def offered(self) -> Sequence[Mapping[str, Any]]:
        """Each function in the form of OpenAI's argument `tools`."""

    def written(self, name: str, arguments: str) -> str:
        """A provider's call as our text."""

    def read(self, text: str) -> NativeCall | None:
        """The call in a text of ours as a provider's; None where there is none, or none that can be written so."""


class Form(Protocol):
    """A form of answer of our own that a provider can be held to as JSON. The record has it in our form, whichever came."""

    @property
    def schema(self) -> Mapping[str, Any]:
        """JSON schema of the answer."""

    def written(self, text: str) -> str:
        """An answer in JSON as our text; what is no such answer comes back as it is."""


@dataclass(frozen=True)
class ChatRequest:
    """One question. purpose: what it is for, in a word ("edit", "repair", "agent", "policy"). seed: tells equal questions
    of different trials apart, and is handed to models that take one. also: seeds of equal questions that may follow: where
    the provider gives several replies to one request, theirs come with it, and are recorded as theirs.
    functions: that the reply may call, where the provider knows such. form: that the reply is to have, where it can be
    held to a schema."""

    messages: tuple[Message, ...]
    purpose: str
    seed: int = 0
    also: tuple[int, ...] = ()
    functions: Functions | None = field(default=None, compare=False, repr=False)
    form: Form | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class ChatReply:
    """An answer as it came. id: of the recorded call. truncated: it ended because `max_tokens` were reached.

    usd: None where the model has no known price. seconds: from asking to the answer, waiting and retries included.
    tries: requests sent, the last one included; 0 of a reply that came with another's, which has its tokens and price.
    others: replies that came with this one, until they are recorded.
    """

    text: str
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float | None = None
    seconds: float = 0.0
    truncated: bool = False
    tries: int = 1
    id: int = -1
    others: tuple[ChatReply, ...] = ()

    @property
    def cost(self) -> Cost:
        """As part of a step's cost; a model without a price counts 0 USD."""
        return Cost(self.seconds, self.usd or 0.0, self.tokens_in, self.tokens_out, 1 if self.tries else 0)


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
    facts: list[Any] = [
        settings.name,
        settings.temperature,
        MAX_TOKENS if settings.max_tokens is None else settings.max_tokens,
        request.seed,
        [[message.role, message.content] for message in request.messages],
    ]
    facts += [[settings.reasoning_effort, dict(settings.extra)]] if settings.reasoning_effort or settings.extra else []
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def messages_to_json(messages: Sequence[Message]) -> str:
    """Messages as text; `messages_from_json` is its inverse."""
    return json.dumps([[message.role, message.content] for message in messages])


def messages_from_json(text: str) -> tuple[Message, ...]:
    """Inverse of `messages_to_json`."""
    pairs: list[list[Any]] = json.loads(text)
    return tuple(Message(role, content) for role, content in pairs)
