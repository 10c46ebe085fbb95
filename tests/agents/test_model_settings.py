"""How a model is asked besides its question: limits of reasoning models, further arguments, streaming, callbacks."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.tracers.context import register_configure_hook

from mtmc.agents.llm import Client
from mtmc.agents.llm.litellm_api import find_target, left_out, load_litellm
from mtmc.chat import ChatReply, ChatRequest, Message, ModelSettings, request_key
from mtmc.errors import ConfigError, NoReply
from mtmc.fakes import FAKE_TASK, FakeCoder, FakeEvaluator, FakePolicy
from mtmc.outcome import Cost
from mtmc.search import Budget, search
from mtmc.search.models import Models
from mtmc.store import Attempt, Store
from tests.agents.fault_server import Fault, FaultServer, Reply

QUESTION = ChatRequest((Message("user", "make it fast"),), "edit")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)


def ask(*script: Reply, **others: Any) -> tuple[ChatReply, FaultServer]:
    with FaultServer(script) as server:
        settings = ModelSettings(**{"name": "openai/scripted", "retries": 0, **others}, api_base=server.url)
        return Client(settings).send(QUESTION), server


@pytest.mark.parametrize(
    ("given", "name", "tokens"),
    [
        ({"name": "openai/gpt-5-mini"}, "max_completion_tokens", 32768),
        ({"name": "openai/gpt-4o"}, "max_tokens", 8192),
        ({}, "max_tokens", 8192),
        ({"reasoning_effort": "high"}, "max_tokens", 32768),
        ({"max_tokens": 99, "reasoning_effort": "high"}, "max_tokens", 99),
    ],
)
def test_a_model_that_reasons_may_say_more(given: dict[str, Any], name: str, tokens: int) -> None:
    _, server = ask("fine", **given)
    assert server.requests[0][name] == tokens
    assert server.requests[0].get("reasoning_effort", "") == given.get("reasoning_effort", "")


def test_further_arguments_are_sent_and_their_secrets_kept(tmp_path: Path) -> None:
    extra = {"top_p": 0.9, "extra_headers": {"X-Gateway": "Bearer gw-77"}, "metadata_token": "mt-5"}
    with FaultServer(["top secret gw-77 and mt-5"]) as server:
        settings = ModelSettings("openai/scripted", server.url, retries=0, extra=extra)
        facts = {"model": {"name": settings.name, "api_base": server.url, "extra": extra}}
        store = Store.create(tmp_path / "run", FAKE_TASK, facts, Attempt(-1, 0, "class ModelNew: ...\n", None, Cost()))
        reply = Models(settings, store, Budget(), Client(settings).send).complete(QUESTION, 0, 0)
        store.close()
    assert server.requests[0]["top_p"] == 0.9 and server.headers[0]["x-gateway"] == "Bearer gw-77"
    assert reply.text == "top secret [redacted] and [redacted]"
    kept = b"".join(path.read_bytes() for path in (tmp_path / "run").iterdir())
    assert b"gw-77" not in kept and b"mt-5" not in kept and b"top_p" in kept


def test_an_argument_with_a_setting_of_its_own_is_refused_among_the_others() -> None:
    with pytest.raises(ConfigError, match=r"model\.extra cannot hold 'max_tokens', which is model\.max_tokens"):
        ModelSettings(extra={"max_tokens": 5})


def test_a_question_asked_otherwise_is_another_question_and_an_old_one_is_found_as_before() -> None:
    plain = ModelSettings("a/b")
    assert request_key(QUESTION, plain) == request_key(QUESTION, ModelSettings("a/b", max_tokens=8192, stream=True))
    others = (ModelSettings("a/b", reasoning_effort="low"), ModelSettings("a/b", extra={"top_p": 0.5}))
    assert len({request_key(QUESTION, each) for each in (plain, *others)}) == 3


def test_what_a_provider_does_not_take_is_said_aloud_once(caplog: pytest.LogCaptureFixture) -> None:
    litellm = load_litellm()
    for name, expected in (
        ("openai/gpt-5-mini", ["temperature"]),
        ("openai/gpt-4o", ["reasoning_effort"]),
        ("anthropic/claude-sonnet-4-5", ["seed"]),
        ("openai/scripted", []),
    ):
        settings = ModelSettings(name, reasoning_effort="low")
        assert left_out(litellm, settings, find_target(litellm, settings)) == expected, name
    with FaultServer(["fine", "fine"]) as server, caplog.at_level(logging.WARNING):
        client = Client(ModelSettings("openai/gpt-5-mini", server.url))
        client.send(QUESTION)
        client.send(QUESTION)
    assert caplog.text.count("model openai/gpt-5-mini takes no temperature: it is left out of the requests") == 1
    assert "temperature" not in server.requests[0]


def test_a_streamed_reply_is_put_together_with_its_usage() -> None:
    reply, server = ask("def f(): return 1", stream=True)
    assert server.requests[0]["stream"] is True and server.requests[0]["stream_options"] == {"include_usage": True}
    assert (reply.text, reply.tokens_in, reply.tokens_out) == ("def f(): return 1", 3, 4)
    assert not reply.truncated


def test_a_streamed_reply_may_take_longer_than_the_limit_as_long_as_pieces_come() -> None:
    ask("what the first request of all has to import takes longer")
    text = " ".join(["word"] * 12)
    reply, _ = ask(Fault(text=text, pause_s=0.2), stream=True, timeout_s=2.0)
    assert reply.text == text and reply.seconds > 2.0
    with pytest.raises(NoReply, match="gave no reply to 1 request"):
        ask(Fault(text=text, act="stall"), stream=True, timeout_s=0.5)


def test_callbacks_are_told_of_requests_only_where_they_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.agents.callbacks import LOGGER

    monkeypatch.setattr(load_litellm(), "callbacks", [LOGGER])
    ask("fine")
    assert not LOGGER.heard.wait(0.5) and LOGGER.told == []
    ask("fine", callbacks=("tests.agents.callbacks:LOGGER",))
    assert LOGGER.heard.wait(100) and LOGGER.told == ["make it fast"]
    with pytest.raises(ConfigError, match=r"model\.callbacks cannot hold 'no\.module:x'"):
        ask("fine", callbacks=("no.module:x",))


class Steps(BaseCallbackHandler):
    """Notes the names of what LangChain starts."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def on_chain_start(self, serialized: Any, inputs: Any, **facts: Any) -> None:
        self.names.add(str(facts.get("name")))


STEPS: ContextVar[Steps | None] = ContextVar("steps", default=None)
register_configure_hook(STEPS, inheritable=True)


def test_langchain_is_told_of_the_steps_of_a_search_where_it_is_switched_on() -> None:
    steps = Steps()
    parts = {"coder": FakeCoder(), "policy": FakePolicy(), "evaluator": FakeEvaluator()}
    search(FAKE_TASK, **parts, budget=3)
    assert steps.names == set()
    before = STEPS.set(steps)
    try:
        search(FAKE_TASK, **parts, budget=3)
    finally:
        STEPS.reset(before)
    assert {"prepare", "grow", "trial", "code", "evaluate", "finish"} <= steps.names
