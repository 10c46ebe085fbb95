"""What mtmc uses of litellm: where a model is and which key it wants, a request's arguments, how a response is read."""

from __future__ import annotations

import base64
import importlib
import logging
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import unquote, urlsplit

from mtmc.agents.llm.errors import Failure
from mtmc.agents.llm.messages import Sent
from mtmc.agents.llm.prices import Target, count_tokens, most_tokens, price, tokens_of
from mtmc.chat import ChatReply, ChatRequest, Functions, ModelSettings
from mtmc.errors import ConfigError, ModelError
from mtmc.redaction import REDACTED, redact

TEXT_MOST = 1 << 20
"""Characters of a reply that are kept: a longer one is cut off there and counts as truncated."""
PLACEHOLDER_KEY = "none"
"""Key for a server at `api_base` where no key is set: most local servers want none, but litellm wants one to send."""

_KEY_NAMES = {
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    "bedrock": ("AWS_SECRET_ACCESS_KEY",),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "together_ai": ("TOGETHERAI_API_KEY",),
}
"""Providers whose key is not, or not only, in PROVIDER_API_KEY: the variables, either of which will do."""
_QUIET = ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy", "httpx", "httpcore", "openai")

_log = logging.getLogger(__name__)


def load_litellm() -> Any:
    """litellm, quiet: no look-ups in the network, no retries, no log of its own. Raises: ModelError if it is missing.

    It is not to read a file `.env` either: what this process and its children find in the environment is the user's.
    Callbacks are none unless the program around this one registers some; requests ask for no log by these, unless
    `ModelSettings.callbacks` names some, see `arguments`.
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
    if REDACTED in settings.api_base:
        hint = "give it again, mtmc resume RUN model.api_base=..."
        raise ModelError(f"model.api_base={settings.api_base} was recorded without its secrets: {hint}")
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


def callback_of(name: str) -> Any:
    """What litellm calls by a name of its own, "langfuse", or an object of a module: "package.module:object".

    Raises: ConfigError where there is no such object.
    """
    module, colon, attribute = name.partition(":")
    if not colon:
        return name
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        hint = "use a name that litellm knows, or package.module:object"
        raise ConfigError(f"model.callbacks cannot hold {name!r} ({error}): {hint}") from error


def left_out(litellm: Any, settings: ModelSettings, target: Target) -> list[str]:
    """Settings that litellm leaves out of this model's requests, because its provider does not take them."""
    given = {"temperature": settings.temperature, "seed": 1, "reasoning_effort": settings.reasoning_effort or None}
    given = {name: value for name, value in given.items() if value is not None}
    try:
        model, provider = litellm.get_llm_provider(settings.name, target.provider)[:2]
        made = {
            without: litellm.utils.get_optional_params(
                model=model,
                custom_llm_provider=provider,
                drop_params=True,
                max_tokens=4096,
                **{name: value for name, value in given.items() if name != without},
            )
            for without in ("", *given)
        }
    except Exception as error:  # of every kind, from litellm's providers
        _log.debug("what litellm leaves out for model %s is not known: %s", settings.name, redact(str(error)))
        return []
    return [name for name in given if made[name] == made[""]]


def takes_choices(litellm: Any, target: Target) -> bool:
    """Whether the provider gives several replies to one request, as far as litellm knows."""
    model, provider = litellm.get_llm_provider(target.model, target.provider)[:2]
    return "n" in (litellm.get_supported_openai_params(model=model, custom_llm_provider=provider) or ())


def takes_marks(litellm: Any, settings: ModelSettings, target: Target) -> bool:
    """Whether the provider keeps what is marked of a prompt, and is paid for it: Anthropic does, others keep it unasked.

    Not where prices are set: these say nothing of what is kept.
    """
    if settings.usd_per_million_in is not None:
        return False

    def keeps(model: str, provider: str | None) -> bool:
        named = litellm.get_llm_provider(model, provider)[1]
        return bool(named == "anthropic" and litellm.utils.supports_prompt_caching(model, provider))

    return _can("keeps prompts", target, keeps)


def takes_schema(litellm: Any, target: Target) -> bool:
    """Whether the model can be held to a JSON schema, as far as litellm knows."""
    return _can("takes a schema", target, lambda *named: litellm.supports_response_schema(*named))


def takes_functions(litellm: Any, target: Target) -> bool:
    """Whether the model has function calling, as far as litellm knows: of a server's own model it knows nothing."""
    return _can("has function calling", target, lambda *named: litellm.supports_function_calling(*named))


def _can(what: str, target: Target, ask: Callable[[str, str | None], Any]) -> bool:
    """Whether litellm knows that of a model. what: for the log."""
    try:
        return bool(ask(target.model, target.provider))
    except Exception as error:  # a bare Exception: a model that litellm does not know
        _log.debug("whether model %s %s is not known: %s", target.model, what, redact(str(error)))
        return False


def arguments(
    settings: ModelSettings, target: Target, request: ChatRequest, sent: Sent, max_tokens: int, choices: int = 1
) -> dict[str, Any]:
    """Arguments of `litellm.acompletion`. sent: what the request says. max_tokens: of each reply. choices: how many
    of them are asked for.

    What the provider does not take, a seed for example, litellm leaves out, see `left_out`.
    """
    api_base, headers = _without_user(settings.api_base)
    given: dict[str, Any] = {
        "model": target.model,
        "messages": [dict(message) for message in sent.messages],
        "tools": [dict(function) for function in sent.functions] or None,
        "response_format": _held_to(sent.schema),
        "_skip_mcp_handler": True if sent.functions else None,  # which looks for a package that nothing here needs
        "max_tokens": max_tokens,
        "temperature": settings.temperature,
        "seed": request.seed % 2**31,
        "n": choices if choices > 1 else None,
        "timeout": settings.timeout_s,
        "api_base": api_base or None,
        "extra_headers": headers or None,
        "custom_llm_provider": target.provider,
        "api_key": target.key,
        "reasoning_effort": settings.reasoning_effort or None,
        "stream": settings.stream or None,
        "stream_options": {"include_usage": True} if settings.stream else None,
    }
    given = {name: value for name, value in given.items() if value is not None}
    extra = dict(settings.extra)
    if headers and "extra_headers" in extra:
        extra["extra_headers"] = {**headers, **extra["extra_headers"]}
    fixed: dict[str, Any] = {"drop_params": True, "num_retries": 0, "max_retries": 0}
    return {**given, **extra, **fixed, **({} if settings.callbacks else {"no-log": True})}


def read(
    litellm: Any, response: Any, settings: ModelSettings, target: Target, request: ChatRequest
) -> tuple[ChatReply, bool]:
    """A response as a reply, its seconds left out, and whether its tokens are those that the provider reports.

    What it does not report, or cannot be (below 0, none for some text), is counted here.
    """
    texts = [_text_of(choice.message, request.functions) for choice in response.choices]
    texts = texts if request.form is None else [request.form.written(text) for text in texts]
    usage = getattr(response, "usage", None)
    tokens_in, tokens_out = _reported(usage, "prompt_tokens"), _reported(usage, "completion_tokens")
    reported = tokens_in >= 1 and tokens_out >= (1 if any(texts) else 0)
    if not reported:
        tokens_in = tokens_in if tokens_in >= 1 else count_tokens(litellm, settings.name, request.messages)
        tokens_out = tokens_out if tokens_out >= 1 else sum(tokens_of(litellm, settings.name, text) for text in texts)
        response.usage = litellm.Usage(tokens_in, tokens_out, tokens_in + tokens_out)
    usd = price(litellm, response, settings, target)
    said = [
        (settings.secrets.redact_reply(text[:TEXT_MOST]), choice.finish_reason == "length" or len(text) > TEXT_MOST)
        for text, choice in zip(texts, response.choices, strict=True)
    ]
    free = None if usd is None else 0.0
    others = tuple(ChatReply(text, usd=free, truncated=truncated, tries=0) for text, truncated in said[1:])
    return ChatReply(said[0][0], tokens_in, tokens_out, usd, truncated=said[0][1], others=others), reported


def _held_to(schema: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if schema is None:
        return None
    return {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": dict(schema)}}


def _without_user(api_base: str) -> tuple[str, dict[str, str]]:
    """An address without its user and password, and these as the header that says them: HTTP libraries refuse both."""
    parts = urlsplit(api_base)
    user, at, host = parts.netloc.rpartition("@")
    if not at:
        return api_base, {}
    name, _, password = user.partition(":")
    said = base64.b64encode(f"{unquote(name)}:{unquote(password)}".encode()).decode()
    return parts._replace(netloc=host).geturl(), {"Authorization": f"Basic {said}"}


def _reported(usage: Any, name: str) -> int:
    """A count of tokens that a provider reports; -1 where it reports none."""
    count = getattr(usage, name, None)
    return count if isinstance(count, int) and not isinstance(count, bool) else -1


def _text_of(message: Any, functions: Functions | None) -> str:
    """The reply's text; of a refusal, what it says. Half a surrogate pair, which no file can hold, becomes "?".

    functions: a call of one, whether it was offered or not, is written as text.
    """
    fields = getattr(message, "provider_specific_fields", None) or {}
    content = message.content or getattr(message, "refusal", None) or fields.get("refusal") or ""
    if not isinstance(content, str):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    calls = getattr(message, "tool_calls", None) or ()
    if calls and functions is not None:
        written = [functions.written(str(each.function.name), each.function.arguments or "") for each in calls]
        content = "\n\n".join([*([content] if content.strip() else []), *written])
    elif calls and not content.strip():
        content = _native_calls(calls)
    return content.encode("utf-8", "replace").decode("utf-8")


def _native_calls(calls: Sequence[Any]) -> str:
    """What a reply says that is nothing but calls of functions, where none may be called: so that it is told."""
    told = ", ".join(f"{each.function.name}({each.function.arguments})" for each in calls)
    return f"(tool calls of the provider's own form, which are not read: {told})"


def with_lengths(
    litellm: Any, failure: Failure, settings: ModelSettings, target: Target, request: ChatRequest
) -> Failure:
    """A failure for length with what the provider did not say: the limit that litellm knows, the length as we count it."""
    limit, length = failure.limit, failure.length
    if limit is None:
        try:
            limit = litellm.get_model_info(settings.name).get("max_input_tokens")
        except Exception as error:  # a bare Exception: a model that litellm does not know
            _log.debug("no context length of model %s: %s", settings.name, redact(str(error)))
    if length is None:
        length = count_tokens(litellm, settings.name, request.messages) + most_tokens(litellm, settings, target)
    return replace(failure, limit=limit, length=length)
