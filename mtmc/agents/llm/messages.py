"""messages: a conversation in the form in which it goes over the wire."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mtmc.chat import ChatRequest

FUNCTIONS_BYTES = 1024
"""That a provider's own words about functions have at most, as bytes of a prompt: Anthropic's are 346 tokens."""


@dataclass(frozen=True)
class Sent:
    """What a request says. messages: as litellm takes them. functions: that are offered, none for none. marked: whether the
    provider is asked to keep parts of the prompt, which it charges for. schema: that the reply is held to."""

    messages: Sequence[Mapping[str, Any]]
    functions: Sequence[Mapping[str, Any]] = ()
    marked: bool = False
    schema: Mapping[str, Any] | None = None

    @property
    def size(self) -> int:
        """Bytes that its prompt has at most, in UTF-8."""
        said = sum(_size(message) for message in self.messages)
        said += len(json.dumps(self.schema).encode()) + FUNCTIONS_BYTES if self.schema else 0
        return said + (len(json.dumps(self.functions).encode()) + FUNCTIONS_BYTES if self.functions else 0)


def marked(sent: Sent, goes_on: bool) -> Sent:
    """The same with marks where a provider that wants such is to keep the prompt up to there: behind the rules, and behind
    the last message of a conversation that goes on, whose next question begins with all of it."""
    at = {0} | ({len(sent.messages) - 1} if goes_on else set())
    return replace(
        sent,
        messages=[_marked(message) if number in at else message for number, message in enumerate(sent.messages)],
        marked=True,
    )


def messages_of(request: ChatRequest, native: bool) -> Sent:
    """The conversation of a request. native: whether its functions are offered, and the calls in it written, as a provider's
    own; the message after such a call is then its answer."""
    plain = [{"role": message.role, "content": message.content} for message in request.messages]
    functions = request.functions
    if functions is None or not native:
        return Sent(plain)
    sent: list[Mapping[str, Any]] = []
    answers = ""
    for at, message in enumerate(request.messages):
        if answers and message.role == "user":
            sent.append({"role": "tool", "tool_call_id": answers, "content": message.content})
            answers = ""
            continue
        follows = at + 1 < len(request.messages) and request.messages[at + 1].role == "user"
        call = functions.read(message.content) if message.role == "assistant" and follows else None
        if call is None:
            sent.append(plain[at])
            continue
        answers = f"call_{at}"
        function = {"name": call.name, "arguments": call.arguments}
        called = [{"id": answers, "type": "function", "function": function}]
        sent.append({"role": "assistant", "content": call.prose or None, "tool_calls": called})
    return Sent(sent, functions.offered)


def _marked(message: Mapping[str, Any]) -> Mapping[str, Any]:
    if not message["content"]:
        return message
    part = {"type": "text", "text": message["content"], "cache_control": {"type": "ephemeral"}}
    return {**message, "content": [part]}


def _size(message: Mapping[str, Any]) -> int:
    content = message["content"] or ""
    text = content if isinstance(content, str) else "".join(part["text"] for part in content)
    said = len(text.encode("utf-8", "replace"))
    return said + (len(json.dumps(message["tool_calls"]).encode()) if "tool_calls" in message else 0)
