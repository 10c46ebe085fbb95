"""The transcript of agents: from the recorded model calls of a trial to turns, text and HTML.

The HTML is a fragment of elements that fold (<details>), with class names and without script, style or links: it
shows everywhere, and a page's own style sheet may dress it.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from mtmc.agents.coders.agent.calls import parse_call
from mtmc.agents.coders.agent.loop import PURPOSE
from mtmc.agents.coders.agent.tools import TOOLS
from mtmc.agents.coders.editing.unusable import Unusable
from mtmc.chat import Message, ModelCall

TurnRole = Literal["brief", "agent", "tool"]

_OPEN_TOOLS = ("draft", "critique", "commit", "give_up")
"""Calls that are shown unfolded: what the agent made, what it said against it, and how it ended."""


@dataclass(frozen=True)
class Turn:
    """One turn.

    role: "brief" for what the agent was told at the start, "agent" for its replies, "tool" for what came back.
    tool: that is called, or that answers; "" where there is none. arguments: of a call, as the model wrote them.
    text: of a reply what stands outside of the call, else all of it. verdict: of a reply, see `ModelCall`.
    """

    role: TurnRole
    tool: str
    arguments: str
    text: str
    verdict: str = ""


def turns_of(calls: Sequence[ModelCall]) -> list[Turn]:
    """The turns of an agent's calls, oldest first; calls for other purposes are left out.

    calls: of one trial. A repair begins a conversation of its own, which begins with a turn "brief". A question that was
    asked again when a run was taken up counts once.
    """
    turns: list[Turn] = []
    for conversation in _conversations(calls):
        turns += _turns(conversation)
    return turns


def to_text(turns: Iterable[Turn]) -> str:
    """The turns as plain text, under a line each that says whose it is."""
    from mtmc.export.text import clean

    parts = []
    for number, turn in enumerate(turns, 1):
        body = "\n\n".join(part for part in (turn.text, turn.arguments) if part)
        parts.append(f"--- {number}. {_title(turn)} ---\n{body}")
    return clean("\n\n".join(parts)) + ("\n" if parts else "")


def to_html(turns: Iterable[Turn]) -> str:
    """The turns as an HTML fragment. All text is escaped."""
    from mtmc.export.text import clean

    items = []
    for number, turn in enumerate(turns, 1):
        opened = " open" if turn.role == "agent" and turn.tool in _OPEN_TOOLS else ""
        wrong = " unusable" if turn.verdict.startswith("unusable") else ""
        body = "".join(
            f'<pre class="{name}">{html.escape(clean(text))}</pre>'
            for name, text in (("text", turn.text), ("arguments", turn.arguments))
            if text
        )
        title = html.escape(clean(f"{number}. {_title(turn)}"))
        items.append(f'<details class="turn {turn.role}{wrong}"{opened}><summary>{title}</summary>{body}</details>')
    return '<section class="transcript">\n' + "\n".join(items) + "\n</section>\n"


def _title(turn: Turn) -> str:
    from mtmc.export.text import one_line

    if turn.role == "brief":
        return "the task"
    if turn.role == "tool":
        return f"answer of {turn.tool}" if turn.tool else "answer"
    said = f"agent: {turn.tool}" if turn.tool else "agent: no call"
    return said if turn.verdict in ("", "usable") else f"{said} ({one_line(turn.verdict)})"


def _conversations(calls: Sequence[ModelCall]) -> list[list[ModelCall]]:
    """Calls by conversation, in order: one goes on as long as each question begins with the whole last one."""
    asked: dict[object, ModelCall] = {}
    for call in calls:
        if call.request.purpose == PURPOSE and (call.request not in asked or asked[call.request].reply is None):
            asked[call.request] = call
    groups: list[list[ModelCall]] = []
    for call in asked.values():
        messages = call.request.messages
        if groups:
            last = groups[-1][-1].request.messages
            if len(messages) > len(last) and messages[: len(last)] == last:
                groups[-1].append(call)
                continue
        groups.append([call])
    return groups


def _turns(conversation: Sequence[ModelCall]) -> list[Turn]:
    """Turns of one conversation: the last question holds all but the last reply; the records know the verdicts."""
    by_length = {len(call.request.messages): call for call in conversation}
    messages = conversation[-1].request.messages
    first = next((at for at, message in enumerate(messages) if message.role == "assistant"), len(messages))
    turns = [Turn("brief", "", "", "\n\n".join(message.content for message in messages[:first]))]
    for at in range(first, len(messages)):
        turns.append(_turn(messages[at], by_length.get(at), turns[-1].tool))
    return [*turns, _last(conversation[-1])]


def _turn(message: Message, call: ModelCall | None, tool: str) -> Turn:
    """One message as a turn. call: whose reply it is, where that is recorded. tool: of the turn before it."""
    if message.role != "assistant":
        return Turn("tool", tool, "", message.content)
    if call is None or call.reply is None:
        return _reply_turn(message.content)
    return replace(_reply_turn(call.reply.text, call.reply.truncated), verdict=call.verdict)


def _last(call: ModelCall) -> Turn:
    if call.reply is None:
        return Turn("agent", "", "", "", f"no reply: {call.error}")
    return replace(_reply_turn(call.reply.text, call.reply.truncated), verdict=call.verdict)


def _reply_turn(text: str, truncated: bool = False) -> Turn:
    try:
        parsed = parse_call(text, tuple(TOOLS), truncated)
    except Unusable:
        return Turn("agent", "", "", text)
    return Turn("agent", parsed.call.name, parsed.call.body, parsed.prose)
