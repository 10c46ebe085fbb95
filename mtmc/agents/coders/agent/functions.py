"""functions: the agent's tools as a provider's own functions, and calls from one form into the other.

A conversation is kept, recorded and read in the form of `calls`. Where a provider has function calling, the client offers
the tools as functions, sends the calls and answers of past turns in its form, and writes the call of a reply as text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mtmc.agents.coders.agent.calls import ToolCall, parse_call, render_call
from mtmc.agents.coders.agent.tools import TOOLS
from mtmc.agents.coders.editing.unusable import Unusable
from mtmc.chat import NativeCall

TEXT = "text"
"""The one argument of a tool whose body is no JSON."""

_NAMES: Mapping[str, tuple[str, ...]] = {
    "lineage": ("version",),
    "playbook": ("kind",),
    "diff": ("from", "to"),
    "back": ("to",),
    "check": (),
    "profile": (),
    "fix": (),
    "commit": (),
}
"""Arguments of the tools whose body is a JSON object; all are strings."""

_QUOTED = 200


@dataclass(frozen=True)
class AgentFunctions:
    """See `mtmc.chat.Functions`."""

    @property
    def offered(self) -> Sequence[Mapping[str, Any]]:
        """Each tool, with the help that the prompt has."""
        return [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.help, "parameters": _form(tool.name)},
            }
            for tool in TOOLS.values()
        ]

    def written(self, name: str, arguments: str) -> str:
        """A call as a block. One whose arguments cannot be read is no block: it is answered as a reply without a call."""
        try:
            given = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            given = None
        if not isinstance(given, dict):
            return f"(a call of {name} whose arguments are no JSON object: {arguments[:_QUOTED]})"
        if name not in _NAMES and isinstance(given.get(TEXT, ""), str):
            body = given.get(TEXT, "")
        else:
            body = json.dumps(given, ensure_ascii=False) if given else ""
        return render_call(ToolCall(name, body.replace("\r\n", "\n").strip("\n")))

    def read(self, text: str) -> NativeCall | None:
        """The first call of a text, where it is whole and its body has the form that the tool takes."""
        try:
            parsed = parse_call(text, tuple(TOOLS))
        except Unusable:
            return None
        call = parsed.call
        if parsed.ignored or not call.whole:
            return None
        if call.name not in _NAMES:
            return NativeCall(parsed.prose, call.name, json.dumps({TEXT: call.body}, ensure_ascii=False))
        try:
            given = json.loads(call.body or "{}")
        except (ValueError, RecursionError):
            return None
        return NativeCall(parsed.prose, call.name, json.dumps(given)) if isinstance(given, dict) else None


def _form(name: str) -> Mapping[str, Any]:
    """JSON schema of a tool's arguments."""
    names = _NAMES.get(name, (TEXT,))
    required = [] if name in _NAMES else [TEXT]
    return {"type": "object", "properties": {each: {"type": "string"} for each in names}, "required": required}
