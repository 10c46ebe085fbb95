"""What mtmc uses of litellm: where a model is and which key it wants, a request's arguments, how a response is read."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from mtmc.agents.llm.errors import Failure, redact, redact_values
from mtmc.chat import ChatReply, ChatRequest, Message, ModelSettings
from mtmc.errors import ModelError

TEXT_MOST = 1 << 20
"""Characters of a reply that are kept: a longer one is cut off there and counts as truncated."""
PLACEHOLDER_KEY = "none"
"""Key for a server at `api_base` where no key is set: most local servers want none, but litellm wants one to send."""
COUNTED = 1 << 16
"""Characters of a text whose tokens are counted where the provider reports none; the rest is taken to be like them."""

_KEY_NAMES = {
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    "bedrock": ("AWS_SECRET_ACCESS_KEY",),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "together_ai": ("TOGETHERAI_API_KEY",),
}
"""Providers whose key is not, or not only, in PROVIDER_API_KEY: the variables, either of which will do."""
_QUIET = ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy", "httpx", "httpcore", "openai")

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


def load_litellm() -> Any:
    """litellm, quiet: no look-ups in the network, no retries, no log of its own. Raises: ModelError if it is missing.

    It is not to read a file `.env` either: what this process and its children find in the environment is the user's.
    Callbacks are none unless the program around this one registers some; requests ask for no log by these, see `arguments`.
    """
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    os.environ["LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS"] = "True"
    os.environ.setdefault("LITELLM_MODE", "PRODUCTION")
    _quiet()
    try:
        import litellm
    except ImportError as error:
        raise ModelError(f"litellm cannot be imported ({redact(str(error))}): pip install 'litellm>=1.80'") from None
    litellm.telemetry = False
    litellm.suppress_debug_info = True
    litellm.disable_hf_tokenizer_download = True
    _quiet()  # once more: it sets levels while it is imported
    return litellm


def _quiet() -> None:
    """Let the libraries say little: httpx logs addresses, and some providers take the key in theirs."""
    for name in _QUIET:
        logger = logging.getLogger(name)
        logger.setLevel(max(logger.level, logging.CRITICAL if name.startswith("LiteLLM") else logging.WARNING))
    warnings.filterwarnings(
        "ignore", "Pydantic serializer warnings", UserWarning
    )  # of litellm's classes, with each reply


def find_target(litellm: Any, settings: ModelSettings) -> Target:
    """Where a model's requests go. A name without a provider that litellm knows is OpenAI's protocol at `api_base`.

    Raises: ModelError where no model is set, its provider is unknown, or `api_base` is no address.
    """
    if not settings.name:
        raise ModelError("no model is set: set model.name, openai/gpt-5-mini for example")
    if settings.api_base and not _is_address(settings.api_base):
        hint = "use one like http://127.0.0.1:8080/v1"
        raise ModelError(f"model.api_base={redact(settings.api_base)} is no address: {hint}")
    try:
        provider, named = str(litellm.get_llm_provider(settings.name)[1]), True
    except Exception:  # litellm.BadRequestError; whatever it is, the provider is not known
        provider, named = "openai", False
    if not named and not settings.api_base:
        hint = "set model.name with its provider as litellm spells it, openai/gpt-5-mini, or set model.api_base"
        raise ModelError(f"the provider of model.name={settings.name} is not known: {hint}")
    full = settings.name if named else f"openai/{settings.name}"
    missing = _missing_keys(litellm, full, provider)
    key = PLACEHOLDER_KEY if settings.api_base and missing else None
    return Target(settings.name, None if named else provider, key, _key_names(provider, missing), bool(missing))


def _missing_keys(litellm: Any, name: str, provider: str) -> tuple[str, ...]:
    """Variables that the model needs and that are not set, or blank, which litellm does not take amiss."""
    missing = tuple(str(key) for key in litellm.validate_environment(name)["missing_keys"])
    either = _either(provider)
    blank = tuple(key for key in either if key in os.environ and not os.environ[key].strip())
    return missing or (blank if not any(os.environ.get(key, "").strip() for key in either) else ())


def _either(provider: str) -> tuple[str, ...]:
    return _KEY_NAMES.get(provider, (f"{provider.upper()}_API_KEY",))


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:  # brackets that do not match
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc)


def _key_names(provider: str, missing: tuple[str, ...]) -> tuple[str, ...]:
    """Variables to set: those that litellm misses, or the one that holds the key it has."""
    either = _either(provider)
    if missing:
        return missing if len(either) == 1 else either[:1]
    return next(((key,) for key in either if os.environ.get(key)), either[:1])


def arguments(settings: ModelSettings, target: Target, request: ChatRequest) -> dict[str, Any]:
    """Arguments of `litellm.acompletion`. What the provider does not take, a seed for example, litellm leaves out."""
    given: dict[str, Any] = {
        "model": target.model,
        "messages": [{"role": message.role, "content": message.content} for message in request.messages],
        "max_tokens": settings.max_tokens,
        "temperature": settings.temperature,
        "seed": request.seed % 2**31,
        "timeout": settings.timeout_s,
        "api_base": settings.api_base or None,
        "custom_llm_provider": target.provider,
        "api_key": target.key,
    }
    given = {name: value for name, value in given.items() if value is not None}
    return {**given, "drop_params": True, "num_retries": 0, "max_retries": 0, "no-log": True}


def read(
    litellm: Any,
    response: Any,
    settings: ModelSettings,
    target: Target,
    request: ChatRequest,
    seconds: float,
    tries: int,
) -> ChatReply:
    """A response as a reply. seconds: since it was asked for, tries included.

    Tokens are those that the provider reports, and are counted here where it reports none.
    """
    choice = response.choices[0]
    text = _text_of(choice.message)
    usage = getattr(response, "usage", None)
    tokens_in = int(getattr(usage, "prompt_tokens", 0) or 0)
    tokens_out = int(getattr(usage, "completion_tokens", 0) or 0)
    if not tokens_in:  # no prompt is empty: nothing was reported
        tokens_in, tokens_out = _count(litellm, settings.name, request.messages), _tokens(litellm, settings.name, text)
        response.usage = litellm.Usage(tokens_in, tokens_out, tokens_in + tokens_out)
    return ChatReply(
        text=redact_values(text[:TEXT_MOST]),
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        usd=_price(litellm, response, settings, target),
        seconds=seconds,
        truncated=choice.finish_reason == "length" or len(text) > TEXT_MOST,
        tries=tries,
    )


def _text_of(message: Any) -> str:
    """The reply's text; of a refusal, what it says. Half a surrogate pair, which no file can hold, becomes "?"."""
    fields = getattr(message, "provider_specific_fields", None) or {}
    content = message.content or getattr(message, "refusal", None) or fields.get("refusal") or ""
    if not isinstance(content, str):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content.encode("utf-8", "replace").decode("utf-8")


def _price(litellm: Any, response: Any, settings: ModelSettings, target: Target) -> float | None:
    """USD of a response, None where litellm knows no price of the model, or knows it as free.

    A server at `api_base` may call its model what it likes: the price is that of the name that was asked for.
    """
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


def with_lengths(litellm: Any, failure: Failure, settings: ModelSettings, request: ChatRequest) -> Failure:
    """A failure for length with what the provider did not say: the limit that litellm knows, the length as we count it."""
    limit, length = failure.limit, failure.length
    if limit is None:
        try:
            limit = litellm.get_model_info(settings.name).get("max_input_tokens")
        except Exception as error:  # a bare Exception: a model that litellm does not know
            _log.debug("no context length of model %s: %s", settings.name, redact(str(error)))
    if length is None:
        length = _count(litellm, settings.name, request.messages) + settings.max_tokens
    return replace(failure, limit=limit, length=length)


def _count(litellm: Any, name: str, messages: Sequence[Message]) -> int:
    return sum(_tokens(litellm, name, message.content) for message in messages)


def _tokens(litellm: Any, name: str, text: str) -> int:
    if not text:
        return 0
    counted = text[:COUNTED]
    return round(litellm.token_counter(model=name, text=counted) * len(text) / len(counted))
