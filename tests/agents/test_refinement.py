"""Refinement: a model is shown what its right version takes and asked for a faster one, as long as that pays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mtmc.agents.coders.agent.calls import ToolCall, render_call
from mtmc.agents.coders.editing.refinement import SETTLED, is_settled
from mtmc.chat import ModelSettings
from mtmc.errors import ConfigError
from mtmc.evaluate import ReplaySettings
from mtmc.evaluate.lab import LabEvaluator
from mtmc.fakes import FakeEvaluator
from mtmc.outcome import Diagnosis, Outcome
from mtmc.protocols import EvaluationRequest
from mtmc.search import AgentSettings, Budget, SearchResult, load, resume, search
from mtmc.search.canonical import canonical_json
from mtmc.search.refinement import pays
from mtmc.store import Store
from tests.agents.fault_server import FaultServer, unserved_url
from tests.breadth import share

ATTENTION = Path(__file__).parent / "attention"
FILES = {path.stem: path.read_text() for path in sorted(ATTENTION.glob("*.py"))}
MARK = "\nSTEP = "


def fenced(source: str) -> str:
    return f"```python\n{source}```\n"


def step(number: int) -> str:
    """The kernel of attention as it is after so many turns."""
    return FILES["online"] + (f"{MARK}{number}\n" if number else "")


class Stepped(FakeEvaluator):
    """A version takes what `times` has for its step (ms); None: it is wrong. `rejected`: steps that fail verification."""

    def __init__(self, times: list[float | None], rejected: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.times, self.rejected, self.verifies = times, rejected, bool(rejected)

    def _evaluate(self, request: EvaluationRequest) -> Outcome:
        if "weights = tl.exp" not in request.source:
            return Outcome("ok", 10.0, runtime_kind="estimated")
        _, _, at = request.source.partition(MARK)
        runtime_ms = self.times[int(at or 0)]
        if runtime_ms is None:
            return Outcome("wrong_result", diagnosis=Diagnosis("check", "WrongValues", "a column was left out"))
        if request.depth == "verify" and int(at or 0) in self.rejected:
            return Outcome("rejected", diagnosis=Diagnosis("verify", "CachedOutput", "its output was not computed"))
        return Outcome("ok", runtime_ms, runtime_kind="estimated")


def steady(body: dict[str, Any]) -> str:
    """Writes the kernel, and at each further question its next step."""
    asked = str(body["messages"][-1]["content"])
    found = [number for number in range(9) if f"{MARK}{number}\n" in asked]
    return fenced(step(max(found) + 1 if found else 1 if "weights = tl.exp" in asked else 0))


def settings(**changes: Any) -> dict[str, Any]:
    """Of a search of attention by a model that edits once."""
    return {
        "task": ATTENTION / "task.py", "coder": "llm", "strategy": "greedy", "policy": "uniform", "progress": False,
        "repairs": 1, "budget": Budget(evaluations=20, calls=4), "agents": AgentSettings(refinements=5), "dumps": False,
        **changes,
    }  # fmt: skip


def searched(evaluator: Any, out: Path, reply: Any = steady, **changes: Any) -> tuple[SearchResult, list[str]]:
    """A search, and what each question was for."""
    with FaultServer(reply=reply) as server:
        model = ModelSettings("openai/scripted", server.url, temperature=0.0)
        result = search(evaluator=evaluator, model=model, out=out, **settings(**changes))
    return result, purposes(out)


def purposes(folder: Path) -> list[str]:
    store = Store.read(folder)
    try:
        return [call.purpose for call in store.model_calls() if not call.spent]
    finally:
        store.close()


def test_a_turn_pays_by_the_share_of_the_runtime_that_it_saves() -> None:
    assert pays(1.0, 0.94, 0.05) and not pays(1.0, 0.96, 0.05)
    assert not pays(1.0, 1.0, 0.0) and pays(1.0, 0.999, 0.0) and not pays(1.0, 1.2, 0.05)


@pytest.mark.parametrize(
    ("said", "settled"),
    [
        (SETTLED, True), (f"**{SETTLED.lower()}.**\n", True), (f"<think>so</think>\n{SETTLED}", True),
        (f"{SETTLED}\n```python\nx = 1\n```", False), ("I know of nothing faster than this.", False), ("", False),
    ],
)  # fmt: skip
def test_a_model_says_that_it_knows_of_nothing_more(said: str, settled: bool) -> None:
    assert is_settled(said) is settled


@pytest.mark.parametrize("changes", [{"refinements": -1}, {"refinements": 1.5}, {"refine_gain": 2}])
def test_settings_that_cannot_be(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(changes))):
        AgentSettings(**changes)


# Whole searches.


def good_model(body: dict[str, Any]) -> str:
    """One kernel for all of attention, then a larger tile, then nothing more."""
    asked = str(body["messages"][-1]["content"])
    if "weights = tl.exp" not in asked:
        return f"One kernel with an online softmax.\n\n{fenced(FILES['online'])}"
    if "length, 128" in asked:
        return SETTLED
    [line] = [line for line in FILES["online"].splitlines() if "triton.cdiv(length, 64)" in line]
    [other] = [line for line in FILES["online"].splitlines() if "M=64, N=32, D=lanes, num_warps=4" in line]
    changed = other.replace("M=64, N=32, D=lanes, num_warps=4", "M=128, N=64, D=lanes, num_warps=8")
    pairs = [(line, line.replace("length, 64", "length, 128")), (other, changed)]
    return "\n".join(f"<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n" for old, new in pairs)


def test_attention_goes_on_to_a_larger_tile_within_one_trial(tmp_path: Path, lab: LabEvaluator) -> None:
    result, asked = searched(lab, tmp_path / "run", good_model, budget=Budget(evaluations=3, calls=3))
    assert asked == ["edit", "refine", "refine"][: len(asked)] and len(asked) >= 2
    assert len(result.tree) == 2 and result.tree.best.source == FILES["tuned"] and result.evaluations == 3
    assert result.tree[1].repairs == 1 and result.tree[1].cost.calls == 2
    store = Store.read(result.run_dir)
    told = store.model_calls()[1].request.messages[-1].content
    first = store.model_calls()[0].request.messages[-1].content
    store.close()
    assert told.startswith(first), "what the provider may have kept"
    assert "times as fast as the previous code" in told and SETTLED in told
    again = search(
        evaluator=ReplaySettings(run=str(result.run_dir)),
        model=ModelSettings("openai/scripted", unserved_url(), 0.0, replay=str(result.run_dir)),
        out=tmp_path / "again",
        **settings(budget=Budget(evaluations=3, calls=3)),
    )
    assert canonical_json(again) == canonical_json(load(result.run_dir))


def test_it_goes_on_while_each_turn_pays_and_the_fastest_is_the_child(tmp_path: Path) -> None:
    result, asked = searched(Stepped([5.0, 4.0, 3.0, 3.1]), tmp_path / "run")
    assert asked == ["edit", "refine", "refine", "refine"], "the last one did not pay"
    assert len(result.tree) == 2 and result.tree[1].source == step(2) and result.evaluations == 5
    result, asked = searched(
        Stepped([5.0, 4.0, 3.9, 1.0]), tmp_path / "share", budget=Budget(evaluations=4, calls=9), repairs=0
    )
    assert asked == ["edit", "refine", "refine"], "2.5 of 100 are less than 5"
    assert result.tree[1].source == step(2), "and yet it is faster"


def test_none_is_asked_for_where_nothing_is_set_or_no_evaluation_is_left(tmp_path: Path) -> None:
    off = AgentSettings()
    _, asked = searched(Stepped([5.0, 4.0]), tmp_path / "off", agents=off, budget=Budget(evaluations=2))
    assert asked == ["edit"]
    result, asked = searched(Stepped([5.0, 4.0, 3.0]), tmp_path / "spent", budget=Budget(evaluations=3))
    assert asked == ["edit", "refine"] and result.evaluations == 3 and result.tree[1].source == step(1)


def test_a_turn_that_fails_is_repaired_and_what_was_right_stays(tmp_path: Path) -> None:
    result, asked = searched(Stepped([5.0, None, 3.0, 2.0]), tmp_path / "run")
    assert asked == ["edit", "refine", "repair", "refine"] and result.tree[1].source == step(3)
    result, asked = searched(Stepped([5.0, None, None, 2.0]), tmp_path / "wrong", budget=Budget(evaluations=4))
    assert asked == ["edit", "refine", "repair"] and result.tree[1].source == step(0) and result.tree[1].outcome.ok


def test_a_version_that_fails_verification_leaves_its_place_to_the_one_before(tmp_path: Path) -> None:
    budget = Budget(evaluations=4)
    evaluator = Stepped([5.0, 4.0, 3.0], rejected=(2,))
    result, _ = searched(evaluator, tmp_path / "run", budget=budget)
    assert result.tree[1].source == step(1) and result.tree.best.id == 1
    result, _ = searched(Stepped([5.0, 4.0, 3.0], rejected=(0, 1, 2)), tmp_path / "none", budget=budget)
    assert result.tree[1].outcome.status == "rejected" and result.tree.best.id == 0


def test_the_model_that_began_goes_on(tmp_path: Path) -> None:
    models = {"repair": {"name": "openai/cheap"}, "strong": {"name": "openai/strong"}}
    agents = AgentSettings(refinements=2, models=models)
    budget = Budget(evaluations=5, calls=4)
    result, _ = searched(Stepped([5.0, None, 3.0, 2.0]), tmp_path / "run", agents=agents, budget=budget)
    store = Store.read(result.run_dir)
    assert [(call.purpose, call.model) for call in store.model_calls()] == [
        ("edit", "openai/scripted"), ("refine", "openai/scripted"), ("repair", "openai/cheap"),
        ("refine", "openai/scripted"),
    ]  # fmt: skip
    store.close()


class Killed(BaseException):
    """What ends a search in the middle, as a signal does: all that is left of it is its record."""


class Dying(Stepped):
    """Ends the search instead of the evaluation of that number."""

    left = 0

    def _evaluate(self, request: EvaluationRequest) -> Outcome:
        if self.left == 0:
            raise Killed
        self.left -= 1
        return super()._evaluate(request)


TIMES: list[float | None] = [5.0, None, 4.0, 3.0, 3.1]
ENOUGH = Budget(evaluations=7, calls=5)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> SearchResult:
    """A run with a turn that pays, one that is repaired, and one that does not pay."""
    result, asked = searched(Stepped(TIMES), tmp_path_factory.mktemp("runs") / "whole", budget=ENOUGH)
    assert asked == ["edit", "refine", "repair", "refine", "refine"]
    return result


@pytest.mark.parametrize("left", share([3, 1, 5, 2, 4], 2))
def test_a_run_that_was_killed_in_a_turn_goes_on_as_if_nothing_had_been(
    left: int, whole: SearchResult, tmp_path: Path
) -> None:
    dying = Dying(TIMES)
    dying.left = left
    with FaultServer(reply=steady) as server:
        model = ModelSettings("openai/scripted", server.url, temperature=0.0)
        with pytest.raises(Killed):
            search(evaluator=dying, model=model, out=tmp_path / "run", **settings(budget=ENOUGH))
        assert len(server.requests) == left
        resumed = resume(tmp_path / "run", evaluator=Stepped(TIMES))
        assert len(server.requests) == 5, "no reply was asked for twice"
    assert canonical_json(resumed) == canonical_json(whole)


# An agent.

AGENT = (
    ("draft", FILES["online"]), ("check", ""), ("critique", "its tile may be small"), ("commit", ""),
    ("commit", ""),  # what is to be made faster
    ("draft", step(1)), ("check", ""), ("critique", "none"), ("commit", ""),
    ("give_up", "the products are at their peak"),
)  # fmt: skip


def test_an_agent_starts_from_its_own_version(tmp_path: Path) -> None:
    made = iter(AGENT)
    result, asked = searched(
        Stepped([5.0, 4.0]),
        tmp_path / "run",
        lambda body: render_call(ToolCall(*next(made))),
        coder="agent",
        budget=Budget(evaluations=4, calls=len(AGENT)),
    )
    assert len(asked) == len(AGENT) and result.tree[1].source == step(1) and len(result.tree) == 2
    store = Store.read(result.run_dir)
    calls = store.model_calls()
    store.close()
    begun = calls[4].request.messages
    assert len(begun) == 2 and "It is your draft d1. Make it faster" in begun[-1].content
    assert "is the version that is to be made faster" in calls[5].request.messages[-1].content
