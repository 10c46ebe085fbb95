"""The agent's tools as functions of the provider: offered, called, answered and recorded, and text where there are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mtmc.agents.coders.agent.calls import ToolCall, parse_call, render_call
from mtmc.agents.coders.agent.functions import AgentFunctions
from mtmc.agents.coders.agent.tools import TOOLS
from mtmc.agents.llm.messages import FUNCTIONS_BYTES, messages_of
from mtmc.chat import ChatRequest, Message, ModelSettings
from mtmc.evaluate import ReplaySettings
from mtmc.search import Budget, SearchResult, load, search
from mtmc.search.canonical import canonical_json
from mtmc.store import Store
from tests.agents import fault_server
from tests.agents.fault_server import Fault, FaultServer, unserved_url
from tests.agents.test_candidates import FILES, OnlyOnline, settings

FUNCTIONS = AgentFunctions()
NAMES = tuple(TOOLS)
CALLS = (
    ("lineage", "{}"),
    ("playbook", '{"kind": "fuse"}'),
    ("draft", json.dumps({"text": FILES["broken"]})),
    ("check", ""),
    ("draft", json.dumps({"text": FILES["online"]})),
    ("check", "{}"),
    ("diff", '{"from": "d1", "to": "draft"}'),
    ("critique", json.dumps({"text": "its tile of 64 rows may be small"})),
    ("commit", "{}"),
)


@pytest.mark.parametrize("tool", TOOLS.values(), ids=NAMES)
def test_each_tool_is_offered_and_its_example_goes_both_ways(tool: Any) -> None:
    [form] = [each["function"] for each in FUNCTIONS.offered if each["function"]["name"] == tool.name]
    assert form["description"] == tool.help and form["parameters"]["type"] == "object"
    call = FUNCTIONS.read("I think so.\n\n" + render_call(ToolCall(tool.name, tool.example)))
    assert call is not None and call.name == tool.name and call.prose == "I think so."
    assert set(json.loads(call.arguments)) <= set(form["parameters"]["properties"])
    back = parse_call(FUNCTIONS.written(call.name, call.arguments), NAMES).call
    same = (json.loads(back.body), json.loads(tool.example)) if tool.example[:1] == "{" else (back.body, tool.example)
    assert back.name == tool.name and same[0] == same[1]


@pytest.mark.parametrize(
    "body", ["```python\nx = 1\n```", "a = '''\n````tool\ncheck\n````\n'''", "  x\n\n\ty", "ä\u2028b"]
)
def test_a_draft_comes_through_as_it_is(body: str) -> None:
    written = FUNCTIONS.written("draft", json.dumps({"text": body}))
    assert parse_call(written, NAMES).call == ToolCall("draft", body)
    call = FUNCTIONS.read(written)
    assert call is not None and json.loads(call.arguments) == {"text": body}


@pytest.mark.parametrize("arguments", ['{"text": "x = ', "[1]", "null", "nonsense"])
def test_arguments_that_cannot_be_read_are_no_call(arguments: str) -> None:
    assert FUNCTIONS.read(FUNCTIONS.written("draft", arguments)) is None
    assert "no JSON object" in FUNCTIONS.written("draft", arguments)


def test_a_conversation_goes_over_the_wire_in_the_providers_form_and_is_counted_so() -> None:
    said = render_call(ToolCall("draft", "x = 1\n" * 50))
    turns = (
        *(Message("system", "s"), Message("user", "u"), Message("assistant", said), Message("user", "set")),
        *(Message("assistant", "no call"), Message("user", "Not understood")),
    )
    request = ChatRequest(turns, "agent", functions=FUNCTIONS)
    sent = messages_of(request, native=True)
    assert [message["role"] for message in sent.messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]
    assert sent.messages[2]["tool_calls"][0]["id"] == sent.messages[3]["tool_call_id"]
    plain = messages_of(request, native=False)
    assert [message["content"] for message in plain.messages] == [
        turn.content for turn in turns
    ] and not plain.functions
    least = len(json.dumps([*sent.messages[2]["tool_calls"]])) + len(json.dumps(list(FUNCTIONS.offered)))
    assert sent.size >= least + FUNCTIONS_BYTES and plain.size == sum(len(turn.content) for turn in turns)


# Whole sessions.


def native(body: dict[str, Any]) -> Fault:
    """The next call of the script, as a function."""
    turn = sum(message["role"] == "assistant" for message in body["messages"])
    return fault_server.tool_calls(CALLS[turn], text="so" if turn % 2 else None)


def refusing(body: dict[str, Any]) -> str | Fault:
    """A server that takes no functions, and a model that writes its calls."""
    if "tools" in body:
        return fault_server.error_reply(400, "tools are not supported by this server")
    name, arguments = CALLS[sum(message["role"] == "assistant" for message in body["messages"])]
    return FUNCTIONS.written(name, arguments)


def searched(out: Path, reply: Any, name: str, **changes: Any) -> tuple[SearchResult, list[dict[str, Any]]]:
    given = {"coder": "agent", "repairs": 2, "budget": Budget(evaluations=3, calls=12, usd=2.0), **changes}
    with FaultServer(reply=reply) as server:
        model = ModelSettings(name, server.url, temperature=0.0, usd_per_million_in=1.0, usd_per_million_out=4.0)
        result = search(evaluator=OnlyOnline(), model=model, out=out, **settings(**given))
    return result, server.requests


def checked(result: SearchResult) -> None:
    assert result.tree[1].source == FILES["online"] and result.evaluations == 3
    store = Store.read(result.run_dir)
    calls = store.model_calls()
    store.close()
    assert [parse_call(call.reply.text, NAMES).call.name for call in calls if call.reply] == [name for name, _ in CALLS]
    assert all(call.verdict == "usable" for call in calls)


def test_an_agent_calls_functions_and_its_run_replays_without_them(tmp_path: Path) -> None:
    result, requests = searched(tmp_path / "run", native, "openai/gpt-4o")
    checked(result)
    assert all(len(body["tools"]) == len(TOOLS) for body in requests)
    last = requests[-1]["messages"]
    assert [message["role"] for message in last[2:]] == ["assistant", "tool"] * (len(CALLS) - 1)
    assert json.loads(last[6]["tool_calls"][0]["function"]["arguments"])["text"].strip() == FILES["broken"].strip()
    again = search(
        evaluator=ReplaySettings(run=str(result.run_dir)),
        model=ModelSettings("openai/gpt-4o", unserved_url(), 0.0, replay=str(result.run_dir)),
        out=tmp_path / "again",
        **settings(coder="agent", repairs=2, budget=Budget(evaluations=3, calls=12, usd=2.0)),
    )
    assert canonical_json(again) == canonical_json(load(result.run_dir))


def test_a_server_that_refuses_functions_is_asked_in_text_from_then_on(tmp_path: Path) -> None:
    result, requests = searched(tmp_path / "run", refusing, "openai/gpt-4o")
    checked(result)
    assert ["tools" in body for body in requests] == [True] + [False] * len(CALLS)


def test_a_call_that_was_never_offered_is_understood(tmp_path: Path) -> None:
    result, requests = searched(tmp_path / "run", native, "openai/scripted")
    checked(result)
    assert not any("tools" in body for body in requests)
    assert {message["role"] for message in requests[-1]["messages"]} == {"system", "user", "assistant"}


@pytest.mark.parametrize("tokens", [15_000, 40_000])
def test_what_functions_add_to_a_prompt_is_reserved(tokens: int, tmp_path: Path) -> None:
    _, requests = searched(tmp_path / "run", native, "openai/gpt-4o", budget=Budget(evaluations=3, tokens=tokens))
    for body in requests[:1]:
        assert len(json.dumps(body["tools"]).encode()) + body["max_tokens"] < tokens
        assert sum(len(str(each["content"]).encode()) for each in body["messages"]) + body["max_tokens"] < tokens
