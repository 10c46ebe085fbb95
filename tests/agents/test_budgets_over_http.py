"""Limits of what models may take, by whole searches and questions over real HTTP, and a process that is really killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mtmc.agents.llm import Client
from mtmc.chat import ChatRequest, Message, ModelSettings
from mtmc.errors import BudgetSpent, CoderError
from mtmc.fakes import FAKE_TASK, FakeEvaluator, FakePolicy
from mtmc.outcome import Cost
from mtmc.search import Budget, resume, search
from mtmc.search.models import Models
from mtmc.store import Attempt, Store
from tests.agents.asking import AskingFake
from tests.agents.fault_server import FaultServer, Reply, completion, hang, rate_limited, reset, server_error

TASK = Path(__file__).parent / "attention" / "task.py"
PROMPT = ChatRequest((Message("user", "make it fast"),), "edit")
PROMPT_TOKENS = 12 + 16 + 128
"""The most that the prompt may have: its bytes, and what a template adds."""


class Waits(list[float]):
    """A sleep that only notes how long it was to be."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store.create(tmp_path / "run", FAKE_TASK, {}, Attempt(-1, 0, "class ModelNew: ...\n", None, Cost()))
    yield made
    made.close()


def asked(
    store: Store, budget: Budget, *script: Reply, **others: Any
) -> tuple[Models, FaultServer, Waits, CoderError | None]:
    """One question to a server with this script."""
    waits, failed = Waits(), None
    with FaultServer(script) as server:
        given = {
            "name": "openai/scripted",
            "max_tokens": 1000,
            "retries": 2,
            "timeout_s": 30.0,
            "patience_s": 0.0,
            **others,
        }
        settings = ModelSettings(api_base=server.url, **given)
        models = Models(settings, store, budget, Client(settings, sleep=waits).send)
        try:
            models.complete(PROMPT, 0, 0)
        except CoderError as error:
            failed = error
    return models, server, waits, failed


def test_every_request_counts_and_only_what_may_be_billed_costs_tokens(store: Store) -> None:
    models, server, _, failed = asked(store, Budget(), server_error(503), reset(), "fine")
    assert failed is None and models.spent.calls == len(server.requests) == 3
    assert [each.state for each in store.bookings()] == ["failed", "unknown", "answered"]
    assert [each.tokens for each in store.bookings()] == [0, PROMPT_TOKENS + 1000, 4]
    assert all(each.seconds > 0 for each in store.bookings())


def test_a_request_that_hung_is_booked_as_the_most_that_it_may_take(store: Store) -> None:
    prices = {"usd_per_million_in": 1.0, "usd_per_million_out": 10.0}
    models, _, _, failed = asked(store, Budget(usd=1.0), hang(), retries=0, timeout_s=2.0, **prices)
    assert failed is not None and [each.state for each in store.bookings()] == ["unknown", "failed"], "and a short one"
    assert models.spent.tokens == PROMPT_TOKENS + 1000
    assert models.spent.usd == pytest.approx((PROMPT_TOKENS + 10 * 1000) / 1e6) and models.spent.model_seconds >= 2.0


@pytest.mark.parametrize("usage", [(-50, -100), (0, 0), (6, -1), None])
def test_usage_that_cannot_be_is_booked_as_the_most_that_it_may_be(usage: tuple[int, int] | None, store: Store) -> None:
    models, *_ = asked(store, Budget(tokens=5000), completion("some text", usage=usage))
    assert models.spent.tokens == PROMPT_TOKENS + 1000


def test_the_server_is_asked_for_no_more_than_what_is_left(store: Store) -> None:
    prices = {"usd_per_million_in": 1.0, "usd_per_million_out": 10.0}
    models, server, _, failed = asked(store, Budget(usd=0.01), "fine", max_tokens=65536, **prices)
    assert failed is None and server.requests[0]["max_tokens"] == (10_000 - PROMPT_TOKENS) // 10
    assert 0 < models.spent.usd < 0.01


def test_a_price_that_is_set_is_the_price_also_of_nothing(store: Store) -> None:
    free = {"usd_per_million_in": 0.0, "usd_per_million_out": 0.0}
    models, _, _, failed = asked(store, Budget(usd=0.0001), "fine", **free)
    assert failed is None and models.spent.usd == 0.0 and models.spent.tokens == 4


def test_a_wait_that_a_server_asks_for_does_not_outlast_the_limit(store: Store) -> None:
    models, server, waits, failed = asked(store, Budget(model_seconds=20.0), rate_limited(30), "too late")
    assert isinstance(failed, BudgetSpent) and "a wait of 30.0 s" in str(failed) and "status 429" in str(failed)
    assert len(server.requests) == 1 and waits == [] and 0 < models.spent.model_seconds < 20.0


def test_waits_between_tries_are_booked(store: Store) -> None:
    models, _, waits, _ = asked(store, Budget(model_seconds=500.0), rate_limited(30), "fine")
    assert waits == [30.0] and models.spent.model_seconds > 30.0
    assert sum(each.seconds for each in store.bookings()) == pytest.approx(models.spent.model_seconds)


def test_a_request_ends_with_the_limit_of_seconds_long_before_its_own(store: Store) -> None:
    models, server, _, failed = asked(store, Budget(model_seconds=0.5), hang(), "too late", timeout_s=3600.0)
    assert isinstance(failed, BudgetSpent) and "before the run's limit of time" in str(failed)
    assert len(server.requests) == 1 and models.spent.model_seconds >= 0.5


def test_the_wall_clock_ends_a_search_whose_model_hangs(tmp_path: Path) -> None:
    with FaultServer(reply=lambda body: hang()) as server:
        result = search(
            TASK,
            coder="llm",
            policy="uniform",
            evaluator=FakeEvaluator(),
            model=ModelSettings("openai/scripted", server.url, timeout_s=3600.0),
            budget=Budget(wall_seconds=3.0),
            out=tmp_path / "run",
        )
    assert result.finished == "3 seconds are spent"


@pytest.mark.parametrize("limit", ["model_seconds", "wall_seconds"])
def test_a_search_ends_where_its_model_asks_for_a_wait_beyond_the_limit(limit: str, tmp_path: Path) -> None:
    with FaultServer(reply=lambda body: rate_limited(30)) as server:
        parts = {"coder": AskingFake(width=40), "policy": FakePolicy(), "evaluator": FakeEvaluator()}
        settings = ModelSettings("openai/scripted", server.url)
        budget = Budget(64, **{limit: 20.0})  # type: ignore[arg-type]
        result = search(FAKE_TASK, **parts, model=settings, budget=budget, out=tmp_path / "run", dumps=False)
        assert len(server.requests) == 1
        again = resume(tmp_path / "run", **parts, dumps=False)
        assert len(server.requests) == 1
    assert result.finished is not None and again.finished is not None
    for finished in (result.finished, again.finished):
        assert "30" in finished and f"budget.{limit}=20" in finished


PROGRAM = """
import sys
from mtmc.chat import ModelSettings
from mtmc.fakes import FakeEvaluator
from mtmc.search import Budget, search
model = ModelSettings("openai/scripted", sys.argv[2], max_tokens=1000)
search({task!r}, coder="llm", policy="uniform", evaluator=FakeEvaluator(), model=model, budget={budget}, out=sys.argv[1])
"""


def test_a_question_of_a_killed_process_stays_in_the_books_when_it_is_asked_again(tmp_path: Path) -> None:
    arrived = threading.Event()

    def reply(body: dict[str, Any]) -> Reply:
        arrived.set()
        return hang()

    folder = tmp_path / "run"
    with FaultServer(reply=reply) as server:
        program = PROGRAM.format(task=str(TASK), budget="Budget(evaluations=2, calls=2)")
        killed = subprocess.Popen([sys.executable, "-c", program, str(folder), server.url])
        assert arrived.wait(300)
        killed.send_signal(signal.SIGKILL)
        assert killed.wait(300) == -signal.SIGKILL
    store = Store.read(folder)
    [begun] = store.bookings()
    assert store.model_calls() == () and begun.state == "begun" and begun.tokens > 1000
    store.close()
    with FaultServer(reply=lambda body: "no code") as server:
        model = ModelSettings("openai/scripted", server.url, max_tokens=1000)
        result = resume(folder, evaluator=FakeEvaluator(), model=model)
        assert len(server.requests) == 1
    assert result.finished == "2 of budget.calls=2 are spent"
    store = Store.read(folder)
    assert [each.state for each in store.bookings()][:2] == ["begun", "answered"]
    assert store.bookings()[0] == begun
    store.close()
