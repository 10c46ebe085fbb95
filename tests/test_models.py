"""A run's questions to its language model: asked once, recorded, held within the budget, replayed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mtmc.booking import Demand, Meter, Rate
from mtmc.chat import ChatReply, ChatRequest, Message, ModelCall, ModelSettings, request_key
from mtmc.errors import BudgetSpent, CoderError, ModelError, MtmcError
from mtmc.fakes import FAKE_TASK
from mtmc.outcome import Cost
from mtmc.search.budget import Budget, ModelSpent, Spent, exhausted
from mtmc.search.ledger import spent_on
from mtmc.search.models import Ask, Models
from mtmc.store import Attempt, Store

SETTINGS = ModelSettings("openai/fake", max_tokens=512)
RATE = Rate(0.001, 0.01)
PROMPT = 100
"""Bytes of a prompt: at most 244 tokens before the model has answered, and 194 when it counts few of them."""
Answer = Callable[[ChatRequest], ChatReply]


def question(text: str, seed: int = 0) -> ChatRequest:
    return ChatRequest((Message("user", text),), "edit", seed)


def store_in(folder: Path) -> Store:
    return Store.create(folder, FAKE_TASK, {}, Attempt(-1, 0, "class ModelNew: ...\n", None, Cost()))


def echo(request: ChatRequest) -> ChatReply:
    return ChatReply(f"re: {request.messages[-1].content}", 10, 5, 0.25, 1.0)


def metered(answer: Answer, rate: Rate | None = RATE) -> Ask:
    """One request a question, admitted and booked as the client does it."""

    def ask(request: ChatRequest, meter: Meter) -> ChatReply:
        meter.begin(Demand(PROMPT, 1, SETTINGS.max_tokens, rate))
        try:
            reply = answer(request)
        except CoderError:
            meter.settle("failed", Cost())
            raise
        meter.settle("answered", reply.cost)
        return reply

    return ask


def test_a_question_is_asked_once_and_recorded(tmp_path: Path) -> None:
    asked: list[ChatRequest] = []

    def ask(request: ChatRequest) -> ChatReply:
        asked.append(request)
        return echo(request)

    with_store = store_in(tmp_path / "run")
    models = Models(SETTINGS, with_store, Budget(), metered(ask))
    first, again = (models.complete(question("a"), 3, 1) for _ in range(2))
    assert first == again and first.text == "re: a" and len(asked) == 1
    other = models.complete(question("a", seed=1), 4, 1)
    assert other.id != first.id and len(asked) == 2
    models.judge(other, "unusable: no code")
    calls = with_store.model_calls()
    assert [(call.trial_id, call.node_id, call.verdict) for call in calls] == [(3, 1, ""), (4, 1, "unusable: no code")]
    assert calls[0].request == question("a") and calls[0].reply == first and calls[0].model == "openai/fake"
    assert with_store.model_calls(4) == calls[1:]
    assert (models.spent.usd, models.spent.tokens, models.spent.calls) == (0.5, 30, 2)
    assert spent_on(calls, with_store.bookings()) == models.spent
    assert spent_on(calls, []) == ModelSpent(0.5, 30, 2, 2.0), "a run from before requests were booked"
    with_store.close()


def test_what_failed_is_recorded_and_fails_again_without_asking(tmp_path: Path) -> None:
    asked = 0

    def ask(request: ChatRequest) -> ChatReply:
        nonlocal asked
        asked += 1
        raise CoderError("the server answered 500 five times")

    store = store_in(tmp_path / "run")
    models = Models(SETTINGS, store, Budget(), metered(ask))
    for _ in range(2):
        with pytest.raises(CoderError, match="500 five times"):
            models.complete(question("a"), 0, 0)
    assert asked == 1 and (models.spent.calls, models.spent.tokens, models.spent.usd) == (1, 0, 0.0)
    assert models.spent.model_seconds > 0, "it was waited for"
    store.close()


def test_a_model_that_cannot_be_used_leaves_nothing_recorded(tmp_path: Path) -> None:
    def ask(request: ChatRequest) -> ChatReply:
        raise ModelError("no key")

    store = store_in(tmp_path / "run")
    with pytest.raises(ModelError, match="no key"):
        Models(SETTINGS, store, Budget(), metered(ask)).complete(question("a"), 0, 0)
    assert store.model_calls() == ()
    with pytest.raises(ModelError, match=r"set model\.name"):
        Models(ModelSettings(), store, Budget()).complete(question("a"), 0, 0)
    store.close()


@pytest.mark.parametrize(
    ("budget", "calls"),
    [
        (Budget(calls=3), 3),
        (Budget(tokens=499), 0),  # the first may take 244 of the prompt, and a reply of 256 at the least
        (Budget(tokens=500), 4),  # 15 each: after four, 440 are left, and 194 + 256 are needed
        (Budget(usd=2.8), 0),
        (Budget(usd=2.81), 1),  # 0.25 each: after the first, 2.56 are left, and 2.754 are needed
        (Budget(calls=0), 0),
    ],
)
def test_a_limit_is_held(tmp_path: Path, budget: Budget, calls: int) -> None:
    store = store_in(tmp_path / "run")
    models = Models(SETTINGS, store, budget, metered(echo))
    answered = 0
    for number in range(6):
        try:
            models.complete(question("a", number), number, 0)
            answered += 1
        except BudgetSpent as spent:
            assert "of budget." in str(spent)
    assert answered == calls == models.spent.calls
    assert len([call for call in store.model_calls() if call.spent]) == 6 - calls
    reason = exhausted(budget, Spent(1, 0.0, None, models.spent, models.needs))
    assert reason is not None and "of budget." in reason, "the search ends"
    store.close()
    store = Store.open(tmp_path / "run")
    again = Models(SETTINGS, store, budget, metered(echo))
    assert exhausted(budget, Spent(1, 0.0, None, again.spent, again.needs)) == reason, "and has ended when resumed"
    more = Budget(usd=9.0, tokens=9000)
    assert exhausted(more, Spent(1, 0.0, None, again.spent, again.needs)) is None, "but not with a greater budget"
    store.close()


def test_a_resumed_run_goes_on_from_what_was_spent(tmp_path: Path) -> None:
    store = store_in(tmp_path / "run")
    models = Models(SETTINGS, store, Budget(calls=2), metered(echo))
    models.complete(question("a"), 0, 0)
    store.close()
    store = Store.open(tmp_path / "run")
    models = Models(SETTINGS, store, Budget(calls=2), metered(echo))
    assert (models.spent.usd, models.spent.tokens, models.spent.calls) == (0.25, 15, 1)
    models.complete(question("b"), 1, 0)
    with pytest.raises(BudgetSpent):
        models.complete(question("c"), 2, 0)
    store.close()


def test_a_replay_gives_what_was_recorded_and_asks_nobody(tmp_path: Path) -> None:
    def ask(request: ChatRequest) -> ChatReply:
        if request.messages[-1].content == "b":
            raise CoderError("no answer")
        return echo(request)

    def nobody(request: ChatRequest, meter: Meter) -> ChatReply:
        raise AssertionError("asked")

    settings = replace(SETTINGS, replay=str(tmp_path / "run"))
    store = store_in(tmp_path / "run")
    models = Models(SETTINGS, store, Budget(calls=2), metered(ask))
    found = [_caught(lambda text=text: models.complete(question(text), 0, 0)) for text in "abc"]
    assert [type(each) for each in found] == [ChatReply, CoderError, BudgetSpent]
    store.close()
    second = store_in(tmp_path / "second")
    replayed = Models(settings, second, Budget(calls=2), nobody)
    again = [_caught(lambda text=text: replayed.complete(question(text), 0, 0)) for text in "abc"]
    assert [str(each) for each in again] == [str(each) for each in found]
    assert all(call.replayed for call in second.model_calls())
    assert replayed.spent == models.spent and replayed.needs == models.needs
    with pytest.raises(ModelError, match="has no reply to this question"):
        replayed.complete(question("d"), 0, 0)
    replayed.close()
    second.close()


def test_dollars_cannot_be_held_without_a_price(tmp_path: Path) -> None:
    store, asked = store_in(tmp_path / "run"), list[ChatRequest]()

    def answer(request: ChatRequest) -> ChatReply:
        asked.append(request)
        return echo(request)

    models = Models(SETTINGS, store, Budget(usd=1.0), metered(answer, None))
    with pytest.raises(ModelError, match=r"no known price; set model\.usd_per_million_in .* or set budget\.tokens"):
        models.complete(question("a"), 0, 0)
    assert not asked and store.model_calls() == () and store.bookings() == [], "nothing was sent"
    store.close()


def test_a_key_follows_from_content_and_not_from_where_the_model_is_served() -> None:
    here, there = ModelSettings("a/b", "http://127.0.0.1:1/v1"), ModelSettings("a/b", "http://127.0.0.1:2/v1")
    assert request_key(question("x"), here) == request_key(question("x"), there)
    keys = {
        request_key(question("x"), ModelSettings(name, temperature=t)) for name in ("a/b", "a/c") for t in (0.0, 1.0)
    }
    assert len(keys | {request_key(question("x", 1), here), request_key(question("y"), here)}) == 6


def test_a_run_from_before_there_were_models_can_be_read(tmp_path: Path) -> None:
    import sqlite3

    store_in(tmp_path / "run").close()
    with sqlite3.connect(tmp_path / "run" / "run.sqlite") as connection:
        connection.execute("DROP TABLE model_calls")
        connection.execute("DROP TABLE model_requests")
    connection.close()
    store = Store.read(tmp_path / "run")
    assert store.model_calls() == () and store.call("x") is None and store.bookings() == []
    store.close()
    store = Store.open(tmp_path / "run")
    number = store.add_call(ModelCall(-1, 0, 0, "k", "m", question("a"), None, "failed"))
    assert store.call("k") == ModelCall(number, 0, 0, "k", "m", question("a"), None, "failed")
    store.close()


def _caught(ask: Callable[[], ChatReply]) -> ChatReply | MtmcError:
    try:
        return ask()
    except MtmcError as error:
        return error
