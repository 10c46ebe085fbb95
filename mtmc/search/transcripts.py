"""Transcripts: what was said between a version's coder and its model, for people to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from mtmc.chat import POLICY, ModelCall
from mtmc.store import Store
from mtmc.tree import Tree

Said = Mapping[str, str]
"""One turn: "role" ("brief", "agent" or "tool"), "tool", "arguments", "text", "verdict"; see `agents.agent.transcript`."""


def transcripts(tree: Tree, store: Store, first: int = 0) -> dict[int, tuple[Said, ...]]:
    """By node id, the turns of the trial that made it; nothing for versions that no model had a part in.

    first: the version from which on they are asked for.
    """
    from mtmc.agents.coders.agent.loop import PURPOSE
    from mtmc.agents.coders.agent.transcript import turns_of

    trials = {call.trial_id for call in store.model_calls(texts=False) if call.purpose != POLICY}
    found: dict[int, tuple[Said, ...]] = {}
    for node in tree:
        if node.id >= first and node.trial_id in trials:
            calls = [call for call in store.model_calls(node.trial_id) if call.purpose != POLICY]
            agents = [call for call in calls if call.purpose == PURPOSE]
            turns = [asdict(turn) for turn in turns_of(agents)] if agents else []
            found[node.id] = (*_asked([call for call in calls if call.purpose != PURPOSE]), *turns)
    return found


def _asked(calls: Sequence[ModelCall]) -> list[Said]:
    """Plain questions and their answers."""
    turns: list[Said] = []
    for call in calls:
        question = "\n\n".join(message.content for message in call.request.messages[-1:])
        turns.append({"role": "brief", "tool": call.purpose, "arguments": "", "text": question, "verdict": ""})
        text = call.error if call.reply is None else call.reply.text
        turns.append({"role": "agent", "tool": "", "arguments": "", "text": text, "verdict": call.verdict})
    return turns
