"""What requests cost: list prices, tokens, and the most that a reply may have, as litellm and the settings know them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mtmc.agents.llm.messages import Sent
from mtmc.booking import Demand, Rate
from mtmc.chat import MAX_TOKENS, REASONING_MAX_TOKENS, Message, ModelSettings
from mtmc.redaction import redact

COUNTED = 1 << 16
"""Characters of a text whose tokens are counted where the provider reports none; the rest is taken to be like them."""

KEPT = ("cache_creation_input_token_cost", "cache_creation_input_token_cost_above_200k_tokens")
"""litellm's names of the price of a token that a provider is asked to keep."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Target:
    """Where requests go. model, provider: as litellm wants them, provider None where the model's name says it.

    key: to be sent instead of the provider's variable; None leaves it to litellm. keys: variables that the provider wants.
    keyless: whether they are not set.
    """

    model: str
    provider: str | None
    key: str | None
    keys: tuple[str, ...]
    keyless: bool


def demand_of(litellm: Any, settings: ModelSettings, target: Target, sent: Sent) -> Demand:
    """What a request asks for at most, before it is sent."""
    rate = list_rate(litellm, settings, target, sent.size, kept=sent.marked)
    return Demand(sent.size, len(sent.messages), most_tokens(litellm, settings, target), rate, settings.name)


def most_tokens(litellm: Any, settings: ModelSettings, target: Target) -> int:
    """Tokens that a reply may have at most, reasoning included: those that are set, or enough for the kind of model."""
    if settings.max_tokens is not None:
        return settings.max_tokens
    try:
        known = litellm.get_model_info(settings.name, target.provider)
    except Exception:  # a bare Exception: a model that litellm does not know
        known = {}
    reasons = bool(settings.reasoning_effort) or bool(known.get("supports_reasoning"))
    return min(REASONING_MAX_TOKENS if reasons else MAX_TOKENS, known.get("max_output_tokens") or REASONING_MAX_TOKENS)


def list_rate(litellm: Any, settings: ModelSettings, target: Target, tokens_in: int, kept: bool = False) -> Rate | None:
    """USD a token at list price, for requests of at most so many tokens: some prices rise with the length of a prompt.

    kept: whether the provider is asked to keep the prompt, for which it may charge more than for reading it.

    None where there is no price; litellm's price of nothing is none: it stands for many that nobody has entered.
    """
    if settings.usd_per_million_in is not None and settings.usd_per_million_out is not None:
        return Rate(settings.usd_per_million_in / 1e6, settings.usd_per_million_out / 1e6)
    try:
        lengths = [_list_price(litellm, settings, target, tokens) for tokens in (1, max(1, tokens_in))]
        known = litellm.get_model_info(settings.name, target.provider)
    except Exception as error:  # litellm raises a bare Exception for a model that it has no price of
        _log.debug("no price of model %s: %s", settings.name, redact(str(error)))
        return None
    usd_in, usd_out = max(each[0] for each in lengths), max(each[1] for each in lengths)
    thought = known.get("output_cost_per_reasoning_token") or 0.0
    usd_in = max([usd_in, *(known.get(name) or 0.0 for name in KEPT if kept)])
    return Rate(usd_in, max(usd_out, thought)) if usd_in or usd_out else None


def _list_price(litellm: Any, settings: ModelSettings, target: Target, tokens_in: int) -> tuple[float, float]:
    """USD of a token of a prompt that has so many, and of one of its reply."""
    parts = litellm.cost_per_token(
        model=settings.name, custom_llm_provider=target.provider, prompt_tokens=tokens_in, completion_tokens=1
    )
    return parts[0] / tokens_in, parts[1]


def price(litellm: Any, response: Any, settings: ModelSettings, target: Target) -> float | None:
    """USD of a response: by the prices that are set, else by litellm's; None where it knows none, or the model as free.

    A server at `api_base` may call its model what it likes: the price is that of the name that was asked for.
    """
    if settings.usd_per_million_in is not None and settings.usd_per_million_out is not None:
        usage = response.usage
        return (
            usage.prompt_tokens * settings.usd_per_million_in + usage.completion_tokens * settings.usd_per_million_out
        ) / 1e6
    azure = settings.name.startswith("azure/")  # its deployments have names of their own, the model's is in the reply
    try:
        if settings.api_base and not azure:
            usage = response.usage
            parts = litellm.cost_per_token(
                model=settings.name,
                custom_llm_provider=target.provider,
                prompt_tokens=usage.prompt_tokens,
                completion_tokens=usage.completion_tokens,
                usage_object=usage,
            )
            usd = sum(parts)
        else:
            usd = litellm.completion_cost(response, model=settings.name, custom_llm_provider=target.provider)
    except Exception as error:  # litellm raises a bare Exception for a model that it has no price of
        _log.debug("no price of model %s: %s", settings.name, redact(str(error)))
        return None
    return float(usd) or None


def count_tokens(litellm: Any, name: str, messages: Sequence[Message]) -> int:
    """Tokens of a conversation, as litellm counts them for a model."""
    return sum(tokens_of(litellm, name, message.content) for message in messages)


def tokens_of(litellm: Any, name: str, text: str) -> int:
    """Tokens of a text, as litellm counts them for a model."""
    if not text:
        return 0
    counted = text[:COUNTED]
    return round(litellm.token_counter(model=name, text=counted) * len(text) / len(counted))
