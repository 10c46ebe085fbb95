"""Limits of what models may take: held against the bill of a provider that fails, and by processes that are killed."""

from __future__ import annotations

import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from mtmc.agents.llm import Client
from mtmc.agents.llm.litellm_api import load_litellm
from mtmc.booking import Booking, Demand, Rate
from mtmc.chat import ChatRequest, Message, ModelSettings
from mtmc.errors import BudgetSpent, CoderError, RunError
from mtmc.fakes import FAKE_TASK
from mtmc.outcome import Cost
from mtmc.search.budget import Budget, ModelSpent
from mtmc.search.ledger import LEAST_REPLY, Ledger
from mtmc.search.models import Models
from mtmc.store import Attempt, Store
from tests.agents.provider import ANSWERS, MODEL, Provider

QUESTIONS = 3400 if os.environ.get("MTMC_WIDE") else 340
"""For each of three limits: a thousand together, or ten times as many."""
SETTINGS = ModelSettings(MODEL, "http://127.0.0.1:9/v1", max_tokens=1024, timeout_s=0.05, retries=2)
AT_ONCE = 8


async def at_once(seconds: float) -> None:
    """Instead of a wait between tries."""


def kill(store: Store) -> None:
    """What a killed process leaves: all that is on disk at this moment, and the lock for others to take."""
    with store._guard:
        store._waiting.clear()
        store._connection.close()
        assert store._folder_lock is not None
        store._folder_lock.release()


def question(number: int) -> ChatRequest:
    text = "y = x * 2  # a line of code\n" * random.Random(number).randint(1, 120)
    return ChatRequest((Message("system", "You write kernels."), Message("user", text)), "edit", number)


def process(folder: Path, budget: Budget, provider: Provider, numbers: list[int]) -> list[int]:
    """One process that asks what is left to ask, eight at a time; the questions that are left when it ends or is killed."""
    store = Store.open(folder)
    provider.on_kill = lambda: kill(store)
    client = Client(SETTINGS, sleep=at_once)
    models = Models(SETTINGS, store, budget, client.send)

    def ask(number: int) -> bool:
        """Whether it was asked to the end, by a process that lives."""
        try:
            models.complete(question(number), number, 0)
        except CoderError:
            pass
        except RunError:
            return False
        return True

    with ThreadPoolExecutor(AT_ONCE) as threads:
        asked = {number: threads.submit(ask, number) for number in numbers}
        wait(asked.values())
    left = [number for number, done in asked.items() if not done.result()]
    if not left:
        store.close()
    return left


@pytest.mark.parametrize("limit", ["usd", "tokens", "calls"])
def test_no_limit_is_exceeded_whatever_fails_and_whenever_the_process_is_killed(
    limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = QUESTIONS
    limits = {"usd": Budget(usd=0.0008 * count), "tokens": Budget(tokens=700 * count), "calls": Budget(calls=count)}
    budget = limits[limit]
    provider = Provider(seed=len(limit), kill_every=17)
    monkeypatch.setattr(load_litellm(), "acompletion", provider.acompletion)
    Store.create(tmp_path, FAKE_TASK, {}, Attempt(-1, 0, "class ModelNew: ...\n", None, Cost())).close()
    left, processes = list(range(count)), 0
    while left:
        left = process(tmp_path, budget, provider, left)
        processes += 1
    store = Store.read(tmp_path)
    booked = Models(SETTINGS, store, budget).spent
    refused = sum(call.spent for call in store.model_calls(texts=False))
    store.close()
    billed = ModelSpent(provider.usd, provider.tokens, provider.calls)
    most = getattr(budget, limit)
    rounding = 1e-12
    assert getattr(billed, limit) <= getattr(booked, limit) + rounding, "what was billed is in the books"
    assert getattr(booked, limit) <= most + rounding, "and these hold the limit"
    assert billed.calls <= booked.calls and billed.usd <= booked.usd + rounding and billed.tokens <= booked.tokens
    assert getattr(billed, limit) > 0.3 * most and refused > 0, "the limit was what ended it"
    assert processes > 2 and set(provider.answers) == set(ANSWERS)


def test_a_reply_may_be_as_long_as_what_is_left() -> None:
    ledger = Ledger(Budget(tokens=2000), ModelSpent())
    demand = Demand(prompt_bytes=100, messages=1, max_tokens=8192)
    hold = ledger.begin(demand)
    assert hold.max_tokens == 2000 - 100 - 16 - 128 and hold.need.tokens == 2000
    rate = Rate(2.5e-7, 2e-6)
    hold = Ledger(Budget(usd=0.01), ModelSpent()).begin(Demand(8000, 2, 65536, rate))
    assert 3900 < hold.max_tokens < 4000 and hold.need.usd <= 0.01
    with pytest.raises(BudgetSpent, match=r"of budget\.usd=0\.0001 are spent, and the next question may need 0\.002"):
        Ledger(Budget(usd=0.0001), ModelSpent()).begin(Demand(8000, 2, 65536, rate))


def test_what_is_held_is_waited_for_and_not_refused() -> None:
    ledger, demand = Ledger(Budget(tokens=3000), ModelSpent()), Demand(100, 1, 2000)
    first = ledger.begin(demand)
    with ThreadPoolExecutor(1) as threads:
        second = threads.submit(ledger.begin, demand)
        assert not second.done()
        ledger.settle(first, Booking("k", "answered", 1, 60, 0.0, 0.0, 100, 30))
        assert second.result(timeout=100).max_tokens == 2000
    with pytest.raises(BudgetSpent, match=r"budget\.tokens=3000"):
        tight = Ledger(Budget(tokens=3000), ModelSpent(tokens=2999 - LEAST_REPLY))
        tight.begin(demand)


def test_a_prompt_counts_by_its_bytes_until_the_model_has_said_how_it_counts() -> None:
    ledger, demand = Ledger(Budget(), ModelSpent()), Demand(10_000, 2, 100)
    assert ledger.least(demand).tokens == 10_000 + 2 * 16 + 128 + 100
    ledger.charge(Booking("k", "answered", 1, 2600, 0.0, 0.0, 10_000, 2500))
    assert ledger.least(demand).tokens == 5_000 + 2 * 16 + 128 + 100
    ledger.charge(Booking("k", "answered", 1, 4475, 0.0, 0.0, 10_000, 4375))
    assert ledger.least(demand).tokens == 6_563 + 2 * 16 + 128 + 100, "a tokenizer that makes more of them"
    ledger.charge(Booking("k", "answered", 1, 9100, 0.0, 0.0, 10_000, 9000))
    assert ledger.least(demand).tokens == 10_000 + 2 * 16 + 128 + 100


def test_time_under_way_counts_and_is_shared() -> None:
    now = [0.0]
    ledger, demand = Ledger(Budget(model_seconds=10.0), ModelSpent(), clock=lambda: now[0]), Demand(10, 1, 10)
    first = ledger.begin(demand)
    assert ledger.seconds_left() == 10.0
    now[0] = 2.0
    second = ledger.begin(demand)
    assert ledger.seconds_left() == 4.0, "eight are left, for two"
    now[0] = 6.0
    assert ledger.seconds_left() == 0.0
    with pytest.raises(BudgetSpent, match=r"budget\.model_seconds=10\.0 is spent or under way"):
        ledger.begin(demand)
    ledger.settle(first, Booking("k", "unknown", 1, 0, 0.0, 6.0))
    ledger.settle(second, Booking("k", "unknown", 1, 0, 0.0, 4.0))
    assert ledger.spent.model_seconds == 10.0


def test_a_wait_is_booked_before_it_begins_and_refused_where_it_ends_too_late() -> None:
    ledger = Ledger(Budget(model_seconds=2.0), ModelSpent())
    ledger.pause(1.5)
    assert ledger.spent.model_seconds == 1.5
    with pytest.raises(BudgetSpent, match=r"a wait of 30\.0 s would end after the run's limit of time"):
        ledger.pause(30.0)
    with pytest.raises(BudgetSpent, match=r"budget\.wall_seconds=5\.0 is over"):
        Ledger(Budget(wall_seconds=5.0), ModelSpent(), wall_left=lambda: -0.1).begin(Demand(1, 1, 1))


def test_threads_that_wait_for_each_other_all_come_through() -> None:
    ledger, done = Ledger(Budget(tokens=100_000), ModelSpent()), threading.Semaphore(0)

    def ask(number: int) -> None:
        hold = ledger.begin(Demand(1000, 1, 90_000))
        ledger.settle(hold, Booking(str(number), "answered", 1, 50, 0.0, 0.0, 1000, 40))
        done.release()

    with ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(ask, range(40)))
    assert ledger.spent.tokens == 40 * 50 and ledger.spent.calls == 40
