"""messages: a conversation in the form in which it goes over the wire."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mtmc.chat import ChatRequest

FUNCTIONS_BYTES = 1024
"""That a provider's own words about functions have at most, as bytes of a prompt: Anthropic's are 346 tokens."""


@dataclass(frozen=True)
class Sent:
    """What a request says. messages: as litellm takes them. functions: that are offered, none for none."""

    messages: Sequence[Mapping[str, Any]]
    functions: Sequence[Mapping[str, Any]] = ()

    @property
    def size(self) -> int:
        """Bytes that its prompt has at most, in UTF-8."""
        said = sum(_size(message) for message in self.messages)
        return said + (len(json.dumps(self.functions).encode()) + FUNCTIONS_BYTES if self.functions else 0)


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


def _size(message: Mapping[str, Any]) -> int:
    said = len((message["content"] or "").encode("utf-8", "replace"))
    return said + (len(json.dumps(message["tool_calls"]).encode()) if "tool_calls" in message else 0)
