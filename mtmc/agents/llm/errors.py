"""What can go wrong between a request and a model's reply: which of it may pass, and what to tell the user.

litellm maps every provider's errors to its own classes, but not evenly: a missing key can come as an internal error of the
server, a 503 as a bad request. So a failure is judged by the status of the HTTP response where one came, and by litellm's
class only where none did. Nothing here imports litellm: its classes are known by name.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from mtmc.chat import MAX_TOKENS, ModelSettings
from mtmc.errors import ModelError, MtmcError, NoReply
from mtmc.redaction import Secrets, redact

NO_SECRETS = Secrets()
RETRY_AFTER_CAP_S = 120.0
TEXT_MOST = 300
"""Characters of a provider's message that are told."""
NO_CONNECTION, NO_REPLY_IN_TIME = "no connection", "no reply in time"
LOST, UNREADABLE = "connection lost", "unreadable reply"

_PREFIX = re.compile(r"^(?:litellm\.\w+: *|\w+Error: *|\w+Exception *- *)+")
_KEYLESS = re.compile(
    r"\b(missing|no|invalid|incorrect)\b.{0,30}\b(api[ _-]?key|credentials)"
    r"|\b(api[ _-]?key|credentials)\b.{0,40}\b(missing|invalid|not valid|required|must be set)"
    r"|illegal header value|control character detected in headers",  # a key with a line break
    re.IGNORECASE,
)
_LONG = re.compile(
    r"maximum context length|context (window|length|size).{0,40}exceed|exceeds?.{0,40}context (window|length|size)"
    r"|prompt is too long|input token count.{0,40}exceeds",
    re.IGNORECASE,
)
_LIMIT = re.compile(
    r"(?:maximum|limit|window|context size|allowed)[^\d.]{0,40}(\d[\d,]{2,})|(\d[\d,]{2,}) (?:tokens )?maximum",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d[\d,]{2,}")
_PASSING = {"InternalServerError", "ServiceUnavailableError", "BadGatewayError", "APIConnectionError", "APIError"}
_PASSING_STATUS = (408, 409, 425, 429)
_LATE_STATUS = (408, 499, 504, 524)
"""Of gateways that waited too long for the model, which may be at work on it still."""

Kind = Literal["passing", "unreachable", "key", "credit", "model", "install", "long", "filtered", "refused"]


@dataclass(frozen=True)
class Failure:
    """Why a request brought no reply.

    kind: "passing" and "unreachable" (no connection could be made) may pass, the others will not.
    what: in a few words, for counting: "status 429", "no reply in 120 s". text: the provider's own words, without secrets.
    wait_s: what the server asked to wait, capped; None where it did not say. limit, length: tokens a request may have, and
    a too long one had, where the message names them. answered: whether there was a server, whatever it said.
    """

    kind: Kind
    what: str
    text: str = ""
    wait_s: float | None = None
    limit: int | None = None
    length: int | None = None
    answered: bool = False
    status: int | None = None

    @property
    def may_be_billed(self) -> bool:
        """Whether a reply may have been made for it all the same: it was sent, and what became of it is not known."""
        return self.kind == "passing" and (self.status is None or self.status in _LATE_STATUS)

    @property
    def may_pass(self) -> bool:
        """Whether the same request can succeed later."""
        return self.kind in ("passing", "unreachable")

    def __str__(self) -> str:
        return f"{self.what}: {self.text}" if self.text else self.what


def classify(error: BaseException, now: float, secrets: Secrets = NO_SECRETS) -> Failure:
    """What an exception of litellm means. now: seconds since the epoch, for a Retry-After that is a date. secrets: the
    model's own, of which nothing is told."""
    chain = list(_chain(error))
    names = {each.__name__ for each in type(error).__mro__}
    response = next((_response(each) for each in reversed(chain) if _response(each) is not None), None)
    status = None if response is None else int(response.status_code)
    codes = {str(getattr(each, "code", None)) for each in chain}
    text = _text(error, secrets)
    wait_s = None if response is None else retry_after_s(response.headers, now)
    kind = _kind(names, status, codes, text, chain)
    what = _what(kind, names, status, chain)
    if what in (NO_CONNECTION, LOST):  # litellm says no more than "Connection error.", what it wraps says why
        text = _text(next((each for each in reversed(chain) if str(each)), error), secrets)
    limit, length = lengths(text) if kind == "long" else (None, None)
    answered = status is not None or what in (LOST, UNREADABLE)
    return Failure(kind, what, text, wait_s, limit, length, answered, status)


def retry_after_s(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that a response asks to wait, at most `RETRY_AFTER_CAP_S`; None where it asks nothing that can be read.

    Retry-After is a number of seconds or an HTTP date (RFC 9110, 10.2.3).
    """
    value = headers.get("retry-after")
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - now
        except (ValueError, TypeError):
            return None
    return min(max(seconds, 0.0), RETRY_AFTER_CAP_S) if math.isfinite(seconds) else None


def lengths(text: str) -> tuple[int | None, int | None]:
    """(tokens a request may have, tokens it had) as the message of a provider names them, in whatever order."""
    found = _LIMIT.search(text)
    if found is None:
        return None, None
    limit = _integer(found[1] or found[2])
    return limit, next((number for number in map(_integer, _NUMBER.findall(text)) if number > limit), None)


def to_error(
    failures: Sequence[Failure],
    settings: ModelSettings,
    keys: Sequence[str],
    keyless: bool,
    seconds: float,
    reached: bool,
) -> MtmcError:
    """The exception for a request that failed.

    failures: of each try, in order. keys: environment variables that the model's provider wants; keyless: they are not set.
    seconds: it all took. reached: whether any server ever answered this client.
    """
    last = failures[-1]
    if last.kind in ("passing", "unreachable"):
        if not reached and all(failure.kind == "unreachable" for failure in failures):
            return ModelError(_no_server(last, settings, len(failures)))
        return NoReply(_used_up(failures, settings, seconds), len(failures), seconds, may_pass=True)
    if last.kind in ("long", "refused"):
        message = _too_long(last, settings) if last.kind == "long" else _refused(last, settings)
        return NoReply(message, len(failures), seconds)
    return ModelError(redact(_unusable(last, settings, " and ".join(keys), keyless)))


def _kind(names: set[str], status: int | None, codes: set[str], text: str, chain: Sequence[BaseException]) -> Kind:
    rejected = status is None or 400 <= status < 500
    if "ContentPolicyViolationError" in names or codes & {"content_filter", "content_policy_violation"}:
        return "filtered"
    if "ContextWindowExceededError" in names or "context_length_exceeded" in codes or _LONG.search(text):
        return "long"
    if status in (401, 403) or names & {"AuthenticationError", "PermissionDeniedError"}:
        return "key"
    if status in (None, 400) and _KEYLESS.search(text):
        return "key"
    if status == 402 or "insufficient_quota" in codes or (rejected and "credit balance is too low" in text):
        return "credit"
    if rejected and (status == 404 or "NotFoundError" in names or "model_not_found" in codes):
        return "model"
    if "LLM Provider NOT provided" in text:
        return "model"
    if any(isinstance(each, ImportError) for each in chain):
        return "install"
    if status is not None:
        return "passing" if status in _PASSING_STATUS or status >= 500 else "refused"
    if _unconnected(chain):
        return "unreachable"
    return "passing" if names & (_PASSING | {"Timeout", "RateLimitError"}) else "refused"


def _unconnected(chain: Sequence[BaseException]) -> bool:
    """Whether not even a connection was made. A reset one, too, is a ConnectError of httpx under litellm's transport."""
    kinds = {each.__name__ for error in chain for each in type(error).__mro__}
    made = kinds & {"ConnectionResetError", "BrokenPipeError", "ServerDisconnectedError"}
    return bool(kinds & {"ConnectError", "ConnectionRefusedError", "gaierror"}) and not made


def _what(kind: Kind, names: set[str], status: int | None, chain: Sequence[BaseException]) -> str:
    if status is not None:
        return f"status {status}"
    if kind == "unreachable":
        return NO_CONNECTION
    if kind != "passing":
        return "not sent"
    if "Timeout" in names:
        return NO_REPLY_IN_TIME
    if any(isinstance(each, OSError) or type(each).__name__ == "APIConnectionError" for each in chain):
        return LOST
    return UNREADABLE


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _response(error: BaseException) -> Any:
    """The HTTP response an exception is about; litellm's own exceptions carry one that they made up."""
    if type(error).__module__.startswith("litellm"):
        return None
    response = getattr(error, "response", None)
    return response if isinstance(getattr(response, "status_code", None), int) else None


def _text(error: BaseException, secrets: Secrets) -> str:
    """An exception's message as one short line, without what litellm puts around it and without secrets."""
    text = str(error)[: 100 * TEXT_MOST].split("Traceback (most recent call last)")[0]
    text = secrets.redact(_PREFIX.sub("", " ".join(text.split())))
    return text if len(text) <= TEXT_MOST else text[:TEXT_MOST] + " ..."


def _integer(digits: str) -> int:
    return int(digits.replace(",", ""))


def _no_server(last: Failure, settings: ModelSettings, tries: int) -> str:
    if settings.api_base:
        hint = "start it, or set model.api_base to where it is"
        return redact(f"no server answers at model.api_base={settings.api_base} ({last.text}; {tries} tries): {hint}")
    hint = "check the network, or set model.api_base to a server that can be reached"
    return redact(f"the provider of model.name={settings.name} cannot be reached ({last.text}; {tries} tries): {hint}")


def _used_up(failures: Sequence[Failure], settings: ModelSettings, seconds: float) -> str:
    counts = Counter(str(failure) for failure in failures)
    tried = "; ".join(text if count == 1 else f"{count} x {text}" for text, count in counts.items())
    requests = "1 request" if len(failures) == 1 else f"{len(failures)} requests"
    hint = (
        f"raise model.retries ({settings.retries}) or model.timeout_s ({settings.timeout_s:g}), or ask less at a time"
    )
    return redact(f"model {settings.name} gave no reply to {requests} in {seconds:.1f} s ({tried}): {hint}")


def _too_long(last: Failure, settings: ModelSettings) -> str:
    length = "more" if last.length is None else f"{last.length} tokens"
    limit = "unknown length" if last.limit is None else f"{last.limit} tokens"
    hint = (
        f"lower model.max_tokens ({settings.max_tokens or MAX_TOKENS}), or set model.name to one with a longer context"
    )
    return redact(f"model {settings.name} has a context of {limit}, the request needs {length} ({last}): {hint}")


def _refused(last: Failure, settings: ModelSettings) -> str:
    return redact(f"model {settings.name} did not take the request ({last}): see the settings model.*")


def _unusable(last: Failure, settings: ModelSettings, variables: str, keyless: bool) -> str:
    model = f"model.name={settings.name}"
    if last.kind == "key" and keyless:
        return f"there is no key for {model} ({last}): set the environment variable {variables}"
    if last.kind == "key":
        return f"the key in {variables} may not use {model} ({last}): set {variables} to one that may"
    if last.kind == "credit":
        return f"the account of {variables} has no credit left for {model} ({last}): add some, or set another key"
    if last.kind == "install":
        return f"{model} needs a package that is not installed ({last}): install it, or set another model.name"
    where = f" at model.api_base={settings.api_base}" if settings.api_base else ""
    hint = "set model.name as litellm spells it, provider/model, or model.api_base to a server that has it"
    return f"there is no {model}{where} ({last}): {hint}"
