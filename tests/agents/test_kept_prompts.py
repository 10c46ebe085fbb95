"""Prompts that a provider is asked to keep: where the marks are, what is reserved for them, and what is booked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mtmc.agents.llm.litellm_api import find_target, load_litellm, takes_marks
from mtmc.agents.llm.messages import Sent, marked
from mtmc.agents.llm.prices import demand_of, list_rate
from mtmc.chat import ModelSettings
from mtmc.search import Budget, search
from mtmc.store import Store
from tests.agents import fault_server
from tests.agents.fault_server import Fault, FaultServer
from tests.agents.test_candidates import FILES, OnlyOnline, settings
from tests.agents.test_functions import CALLS

CLAUDE = "anthropic/claude-sonnet-4-5"
SAID: list[dict[str, Any]] = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]


def kept(message: dict[str, Any]) -> bool:
    """Whether a message, or a part of it, is marked."""
    return "cache_control" in json.dumps(message)


def test_the_rules_are_marked_and_the_end_of_a_conversation_that_goes_on() -> None:
    assert [kept(dict(each)) for each in marked(Sent(SAID), goes_on=True).messages] == [True, True]
    once = marked(Sent(SAID), goes_on=False)
    assert [kept(dict(each)) for each in once.messages] == [True, False]
    assert once.size == Sent(SAID).size == 2
    called = [*SAID, {"role": "assistant", "content": None, "tool_calls": []}]
    assert not kept(dict(marked(Sent(called), goes_on=True).messages[-1])), "nothing is said that could be kept"


@pytest.mark.parametrize(
    ("changes", "marks"),
    [
        ({"name": CLAUDE}, True),
        ({"name": "openai/gpt-5-mini"}, False),
        ({"name": "openai/scripted", "api_base": "http://127.0.0.1:9/v1"}, False),
        ({"name": CLAUDE, "usd_per_million_in": 3.0, "usd_per_million_out": 15.0}, False),
    ],
)
def test_only_a_provider_that_wants_marks_gets_them(changes: dict[str, Any], marks: bool) -> None:
    given = ModelSettings(**changes)
    assert takes_marks(load_litellm(), given, find_target(load_litellm(), given)) is marks


def test_what_is_reserved_is_the_price_of_keeping() -> None:
    litellm, given = load_litellm(), ModelSettings(CLAUDE)
    target = find_target(litellm, given)
    read, write = (list_rate(litellm, given, target, 100, kept=each) for each in (False, True))
    assert read is not None and write is not None
    assert write.usd_in == pytest.approx(1.25 * read.usd_in) and write.usd_out == read.usd_out
    assert demand_of(litellm, given, target, marked(Sent(SAID), goes_on=False)).rate == write


def reply(body: dict[str, Any]) -> Fault:
    """The next call of the agent's script; what was in the last question is read from what is kept, the rest is written."""
    turn = sum(message["role"] == "assistant" for message in body["messages"])
    name, arguments = CALLS[turn]
    used = {"type": "tool_use", "id": f"toolu_{turn}", "name": name, "input": json.loads(arguments or "{}")}
    usage = {"input_tokens": 10, "output_tokens": 20}
    usage |= {"cache_read_input_tokens": 2000 * bool(turn), "cache_creation_input_tokens": 100 if turn else 2000}
    return fault_server.anthropic(used, usage=usage, stop="tool_use")


def test_an_agent_pays_for_what_is_kept_once_and_its_books_say_so(tmp_path: Path) -> None:
    given = settings(coder="agent", repairs=2, budget=Budget(evaluations=3, calls=12, usd=3.0))
    with FaultServer(reply=reply) as server:
        model = ModelSettings(CLAUDE, server.url.removesuffix("/v1"), temperature=0.0)
        result = search(evaluator=OnlyOnline(), model=model, out=tmp_path / "run", **given)
        requests = server.requests
    assert result.tree[1].source == FILES["online"] and len(requests) == len(CALLS)
    for body in requests:
        assert kept(body["system"][-1]) and kept(body["messages"][-1]) and len(body["tools"]) > 5
        assert json.dumps(body).count("cache_control") == 2
    store = Store.read(result.run_dir)
    booked = [booking for booking in store.bookings() if booking.state == "answered"]
    store.close()
    first, other = 10 * 3e-6 + 2000 * 3.75e-6 + 20 * 15e-6, 10 * 3e-6 + 2000 * 0.3e-6 + 100 * 3.75e-6 + 20 * 15e-6
    assert [booking.usd for booking in booked] == pytest.approx([first] + [other] * (len(CALLS) - 1))
    assert [booking.tokens for booking in booked] == [2030] + [2130] * (len(CALLS) - 1)
