"""redaction: secrets taken out of text, by value and by pattern. Nothing here is written or sent anywhere.

Two kinds of values are secret. A model's own are sent to its server, which may echo them: the key of its provider and
what stands in `model.api_base`. Of these every occurrence is taken out, however short they are. Others are those of
environment variables that are named like a key: only long ones, for any text may hold a short one by chance.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

REDACTED = "[redacted]"
SECRET_LEAST = 6
"""Characters of other secrets at the least: shorter values of such variables ("none", "1") are in any text."""
REPLY_SECRET_LEAST = 16
"""The same for a model's reply, which is code: only what cannot be in it by chance is taken out."""
WORD_LEAST = 8
"""Characters of a model's own secret that is taken out within words too; a shorter one where it stands by itself."""
LITERAL_MOST = 3
"""Characters of one that can be a name in any program: it is taken out where it is quoted or given as a value."""
PLACEHOLDERS = frozenset(
    (
        *(
            "none",
            "null",
            "empty",
            "dummy",
            "local",
            "test",
            "fake",
            "key",
            "api-key",
            "apikey",
            "no-key",
            "nokey",
            "token",
        ),
        *(
            "secret",
            "changeme",
            "placeholder",
            "ollama",
            "lm-studio",
            "llama",
            "vllm",
            "sglang",
            "true",
            "false",
            "yes",
        ),
        *("no", "0", "1", "x", "xx", "xxx", "xxxx", "sk-none", "sk-dummy", "sk-no-key-required", "not-needed"),
    )
)
"""What people set where a server wants no key: no secrets."""

_SECRET_NAME = re.compile(r"(^|_)(API_?)?(KEY|TOKEN|SECRET|PASSWORD|PASSWD)S?(_|$)|(KEY|TOKEN|SECRET)$", re.IGNORECASE)
_QUERY_NAME = re.compile(r"key|token|secret|passw|auth|sig|credential", re.IGNORECASE)
_ADDRESSES = (
    (
        re.compile(r"([?&](?:[\w-]*(?:key|token|secret|signature|password))=)[^&\s\"'#]+", re.IGNORECASE),
        rf"\1{REDACTED}",
    ),
    (re.compile(r"(\b[a-z]+://[^/\s:@\"']*:)[^/\s@\"']+@"), rf"\1{REDACTED}@"),
    (re.compile(r"(\b[a-z]+://)[^/\s:@\"']+@"), rf"\1{REDACTED}@"),
)
_PATTERNS = (
    *_ADDRESSES,
    (re.compile(r"\b(Bearer|Basic) +(?!\[redacted)[\w.~+/=*\-]{4,}", re.IGNORECASE), rf"\1 {REDACTED}"),
    (re.compile(r"\bsk-[\w*.\-]{6,}"), REDACTED),
    (re.compile(r"\bAIza[\w\-]{20,}"), REDACTED),
)
_REPLY_PATTERNS = (
    *_ADDRESSES,
    (re.compile(r"\b(Bearer|Basic) +[\w.~+/=\-]{16,}"), rf"\1 {REDACTED}"),
    (re.compile(r"\bsk-(?=[\w\-]*\d)(?=[\w\-]*[A-Za-z])[\w\-]{20,}"), REDACTED),
    (re.compile(r"\bAIza[\w\-]{30,}"), REDACTED),
)
"""What no code is: `sk-start` is a difference, and "basic blocks" are no credentials."""
_PROVIDERS = {
    "bedrock": "AWS",
    "gemini": "GEMINI GOOGLE",
    "together_ai": "TOGETHERAI TOGETHER",
    "huggingface": "HUGGINGFACE HF",
    "vertex_ai": "VERTEX GOOGLE",
}
"""How the variables of a provider begin, where not with its name."""
_ANYBODYS = ("OPENAI", "ANTHROPIC", "AZURE")
"""Protocols that others speak too, with these keys."""


@dataclass(frozen=True)
class Secrets:
    """The own secrets of a model, in every form in which they are sent."""

    own: tuple[str, ...] = ()

    def redact(self, text: str) -> str:
        """A message without secrets: the model's own, others of the environment, and what looks like a key."""
        return by_pattern(by_value(self._without_own(text), SECRET_LEAST), _PATTERNS)

    def redact_reply(self, text: str) -> str:
        """A reply, or a question that quotes code, without them: other short values are left, they are code."""
        return by_pattern(by_value(self._without_own(text), REPLY_SECRET_LEAST), _REPLY_PATTERNS)

    def redact_data(self, data: Any) -> Any:
        """Plain JSON data with all of its texts redacted, names of settings too."""
        if isinstance(data, str):
            return self.redact(data)
        if isinstance(data, Mapping):
            return {self.redact(name): self.redact_data(value) for name, value in data.items()}
        return [self.redact_data(each) for each in data] if isinstance(data, list | tuple) else data

    def _without_own(self, text: str) -> str:
        for value in self.own:
            text = _pattern_of(value).sub(REDACTED, text) if len(value) < WORD_LEAST else text.replace(value, REDACTED)
        return text


def secrets_of(name: str, api_base: str, given: Iterable[str] = ()) -> Secrets:
    """The own secrets of a model. name, api_base: see `chat.ModelSettings`. given: more of them, values of headers say."""
    values = {*given, *_of_provider(name), *_of_address(api_base)}
    forms = {form for value in values if value and value.lower() not in PLACEHOLDERS for form in _forms(value)}
    return Secrets(tuple(sorted((form for form in forms if form), key=lambda each: (-len(each), each))))


def given_secrets(extra: Any, named: bool = False) -> list[str]:
    """Values in further arguments of requests that are named like a key, and all headers'. named: whether these are."""
    if isinstance(extra, Mapping):
        found = []
        for name, value in extra.items():
            secret = named or "headers" in str(name) or bool(_QUERY_NAME.search(str(name)))
            found += given_secrets(value, secret)
        return found
    if isinstance(extra, str) and named:
        return [extra, *(extra.split(" ", 1)[1:])]  # "Bearer ..."
    return []


def redact(text: str) -> str:
    """The text without secrets: values of environment variables that are named like a key, and what looks like a key."""
    return Secrets().redact(text)


def by_value(text: str, least: int) -> str:
    """The text without the values, of `least` characters or more, of environment variables that are named like a key."""
    values = {value.strip() for name, value in os.environ.items() if _SECRET_NAME.search(name)}
    for value in sorted(values, key=len, reverse=True):
        if len(value) >= least and value.lower() not in PLACEHOLDERS:
            text = text.replace(value, REDACTED)
    return text


def by_pattern(text: str, patterns: Iterable[tuple[re.Pattern[str], str]]) -> str:
    """The text without what looks like a key. patterns: each with what stands there instead."""
    for pattern, instead in patterns:
        text = pattern.sub(instead, text)
    return text


def _of_provider(name: str) -> set[str]:
    """Values of the variables that hold a provider's key."""
    provider = name.partition("/")[0].lower() if "/" in name else ""
    starts = (*_PROVIDERS.get(provider, provider).upper().split(), *_ANYBODYS)
    return {
        value.strip()
        for variable, value in os.environ.items()
        if name and _SECRET_NAME.search(variable) and variable.upper().startswith(starts)
    }


def _of_address(api_base: str) -> set[str]:
    """Password (or a user without one) and values of keys in the query of an address, as they stand there and decoded,
    and both as HTTP's basic authentication sends them."""
    try:
        parts = urlsplit(api_base)
        user, password = parts.username or "", parts.password or ""
    except ValueError:  # no address at all
        return set()
    secret = password or user
    basic = {f"{unquote(user)}:{unquote(password)}", f"{user}:{password}"} if secret else set()
    found = {secret, *(value for key, value in parse_qsl(parts.query) if _QUERY_NAME.search(key))}
    encoded = {base64.b64encode(each.encode()).decode() for each in basic}
    return {each for each in found | {unquote(each) for each in found} | encoded if each}


def _forms(value: str) -> set[str]:
    """A secret as it is, in an address, and in JSON."""
    return {value, quote(value, safe=""), value.replace("\\", "\\\\").replace('"', '\\"')}


def _pattern_of(value: str) -> re.Pattern[str]:
    """Where a short secret stands by itself; a very short one only in quotes, or as a value behind "=" or ":"."""
    edges = ("(?<![\\w])", "(?![\\w])") if value.isidentifier() or value.isalnum() else ("", "")
    if len(value) > LITERAL_MOST:
        return re.compile(edges[0] + re.escape(value) + edges[1])
    given = "(?<=[\"'])|(?<=Bearer )|(?<=key=)|(?<=key: )"
    return re.compile(f"(?:{given}){re.escape(value)}{edges[1]}")
