"""Several models in one run: which is asked what, from one account, and the same when the run is replayed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from mtmc.booking import Booking, Demand
from mtmc.chat import ModelSettings
from mtmc.errors import BudgetSpent, ConfigError
from mtmc.evaluate import ReplaySettings
from mtmc.fakes import FAKE_TASK, FakeEvaluator, FakePolicy
from mtmc.outcome import Diagnosis, Outcome
from mtmc.search import AgentSettings, Budget, load, search
from mtmc.search.budget import ModelSpent
from mtmc.search.canonical import canonical_json
from mtmc.search.ledger import Ledger
from mtmc.search.models import models_of
from mtmc.search.routing import EXPLORATION, PRICE_WEIGHT, Tried, chosen, heated, worth
from mtmc.store import Store
from tests.agents.asking import AskingFake
from tests.agents.fault_server import FaultServer, unserved_url

ATTENTION = Path(__file__).parent / "attention"
FILES = {path.stem: path.read_text() for path in sorted(ATTENTION.glob("*.py"))}


def test_a_model_that_was_never_asked_comes_first() -> None:
    assert chosen(["a", "b"], []) == 0
    assert chosen(["a", "b"], [Tried("a", 1.0, 0.0)]) == 1


def test_the_greatest_bound_is_chosen() -> None:
    tried = [Tried("a", 0.5, 0.0)] * 3 + [Tried("b", 0.9, 0.0)]
    means, total = {"a": 0.5, "b": 0.9}, math.log(4)
    bounds = {name: means[name] + EXPLORATION * math.sqrt(2 * total / count) for name, count in (("a", 3), ("b", 1))}
    assert chosen(["a", "b"], tried) == (0 if bounds["a"] >= bounds["b"] else 1) == 1
    often = [Tried("a", 0.5, 0.0)] * 20 + [Tried("b", 0.0, 0.0)] * 20
    assert chosen(["a", "b"], often) == 0 and chosen(["b", "a"], often) == 1


def test_of_two_that_gain_the_same_the_cheap_one_is_asked() -> None:
    tried = [Tried("dear", 0.8, 1.0), Tried("cheap", 0.8, 0.1)] * 10
    assert chosen(["dear", "cheap"], tried) == 1
    better = [Tried("dear", 0.8 + PRICE_WEIGHT, 1.0), Tried("cheap", 0.8, 0.1)] * 10
    assert chosen(["dear", "cheap"], better) == 0, "what it gains beyond its price counts"


def test_worth_of_a_trial() -> None:
    assert [worth(gain) for gain in (None, 0.5, 1.0, math.sqrt(2), 2.0, 9.0)] == pytest.approx(
        [0, 0.5, 0.5, 0.75, 1, 1]
    )


def test_the_temperature_rises_with_failures_and_not_beyond_its_limit() -> None:
    settings = ModelSettings("openai/a", temperature=0.7)
    assert [heated(settings, 0.3, failures).temperature for failures in (0, 1, 2, 9)] == [0.7, 1.0, 1.3, 1.5]
    assert heated(settings, 0.0, 5) is settings
    assert heated(ModelSettings("openai/a", temperature=None), 0.3, 2).temperature is None
    assert heated(ModelSettings("openai/a", temperature=2.0), 0.3, 2).temperature == 2.0


def test_other_models_have_the_settings_of_the_first_but_for_its_prices() -> None:
    base = ModelSettings(
        "openai/a", "http://127.0.0.1:9/v1", usd_per_million_in=1.0, usd_per_million_out=2.0, retries=7
    )
    found = models_of(base, {"repair": {"name": "openai/b", "temperature": 0.1}})
    assert found[""] is base and found["repair"].retries == 7 and found["repair"].api_base == base.api_base
    assert (found["repair"].name, found["repair"].temperature, found["repair"].usd_per_million_in) == (
        "openai/b",
        0.1,
        None,
    )


@pytest.mark.parametrize(
    ("models", "words"),
    [
        ({"repair": {}}, "name: PROVIDER/MODEL"),
        ({"repair": "openai/b"}, "name: PROVIDER/MODEL"),
        ({"repair": {"name": "openai/b", "colour": 1}}, "colour"),
        ({"repair": {"name": "openai/b"}, "strong": {"name": "openai/b"}}, "twice"),
        ({"repair": {"name": "openai/b", "temperature": 9}}, "temperature"),
    ],
)
def test_models_that_cannot_be_are_refused_before_a_search_begins(
    models: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=words):
        search(FAKE_TASK, agents=AgentSettings(models=models), model="openai/a", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_how_one_model_counts_tokens_says_nothing_of_another() -> None:
    ledger = Ledger(Budget(tokens=2000), ModelSpent())
    hold = ledger.begin(Demand(1000, 1, 256, None, "a"))
    ledger.settle(hold, Booking("k", "answered", 1, 300, prompt_bytes=1000, tokens_in=200))
    assert ledger.least(Demand(1000, 1, 256, None, "a")).tokens < ledger.least(Demand(1000, 1, 256, None, "b")).tokens
    with pytest.raises(BudgetSpent):
        ledger.begin(Demand(1500, 1, 256, None, "b"))


# Whole searches, with replies as good models would write them.


class OnlyOnline(FakeEvaluator):
    """The broken kernel is wrong, what says so does not compile, the right one is three times as fast."""

    def _evaluate(self, request: Any) -> Outcome:
        if "does not compile" in request.source:
            return Outcome("build_error", diagnosis=Diagnosis("build", "CompilationError", "it does not compile"))
        if request.source == FILES["broken"]:
            return Outcome("wrong_result", diagnosis=Diagnosis("check", "WrongValues", "columns were not masked"))
        return Outcome("ok", 1.0 if request.source == FILES["online"] else 3.0, runtime_kind="estimated")


ROLES = {"repair": {"name": "openai/cheap"}, "strong": {"name": "openai/strong"}}


def by_role(body: dict[str, Any]) -> str:
    """The first model writes the kernel with a mistake, the cheap one makes it worse, the strong one mends it."""
    file = {
        "first": FILES["broken"],
        "cheap": FILES["broken"] + "\nNOTE = 'it does not compile'\n",
        "strong": FILES["online"],
    }
    return f"```python\n{file[body['model']]}```\n"


def test_a_cheap_model_repairs_and_a_strong_one_mends_what_it_could_not(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "coder": "llm", "strategy": "greedy", "policy": "uniform", "repairs": 2, "progress": False,
        "budget": Budget(evaluations=4, calls=3), "agents": AgentSettings(models=ROLES),
    }  # fmt: skip
    with FaultServer(reply=by_role) as server:
        model = ModelSettings("openai/first", server.url, temperature=0.0)
        result = search(ATTENTION / "task.py", evaluator=OnlyOnline(), model=model, out=tmp_path / "run", **settings)
        assert [body["model"] for body in server.requests] == ["first", "cheap", "strong"]
    assert [node.outcome.status for node in result.tree] == ["ok", "ok"] and result.tree[1].repairs == 2
    store = Store.read(result.run_dir)
    assert [call.model for call in store.model_calls()] == ["openai/first", "openai/cheap", "openai/strong"]
    assert len(store.bookings()) == 3, "all are in the same books"
    store.close()
    again = search(
        ATTENTION / "task.py",
        evaluator=ReplaySettings(run=str(result.run_dir)),
        model=ModelSettings("openai/first", unserved_url(), 0.0, replay=str(result.run_dir)),
        out=tmp_path / "again",
        **settings,
    )
    assert canonical_json(again) == canonical_json(load(result.run_dir))


def test_a_bandit_leaves_the_model_that_gives_nothing_and_all_calls_count_together(tmp_path: Path) -> None:
    def reply(body: dict[str, Any]) -> str:
        return "edit" if body["model"] == "good" else "I would rather not."

    with FaultServer(reply=reply) as server:
        result = search(
            FAKE_TASK,
            coder=AskingFake(width=40),
            policy=FakePolicy(),
            evaluator=FakeEvaluator(failing=0.0),
            strategy="best_first",
            repairs=0,
            model=ModelSettings("openai/bad", server.url),
            agents=AgentSettings(models={"other": {"name": "openai/good"}}),
            budget=Budget(evaluations=200, calls=30),
            progress=False,
            dumps=False,
            out=tmp_path / "run",
        )
        asked = [body["model"] for body in server.requests]
    assert len(asked) == 30 and asked[:2] == ["bad", "good"], "each once at first, and no call more than the budget has"
    assert asked.count("good") > 2 * asked.count("bad") and "bad" in asked[2:], "it is asked again now and then"
    assert "calls" in (result.finished or "")
