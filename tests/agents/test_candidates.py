"""Several candidates for one edit: the first that may be right is evaluated, and the next only where it fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mtmc.chat import ModelSettings
from mtmc.errors import ConfigError
from mtmc.evaluate import ReplaySettings
from mtmc.fakes import FakeEvaluator
from mtmc.outcome import Diagnosis, Outcome
from mtmc.protocols import EvaluationRequest
from mtmc.search import AgentSettings, Budget, SearchResult, load, resume, search
from mtmc.search.canonical import canonical_json
from mtmc.store import Store
from tests.agents import fault_server
from tests.agents.fault_server import Fault, FaultServer, unserved_url
from tests.breadth import share

ATTENTION = Path(__file__).parent / "attention"
FILES = {path.stem: path.read_text() for path in sorted(ATTENTION.glob("*.py"))}


def fenced(source: str) -> str:
    return f"```python\n{source}```\n"


def variant(number: int) -> str:
    """A kernel that is wrong, in one of many ways."""
    return FILES["broken"] + f"\nVARIANT = {number}\n"


RIGHT = fenced(FILES["online"])
FORBIDDEN = fenced(
    "import os\nimport torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, q, k, v):\n        return q\n"
)


class OnlyOnline(FakeEvaluator):
    """The kernel that masks is right, no other is. made: what was evaluated."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[str] = []

    def _evaluate(self, request: EvaluationRequest) -> Outcome:
        self.made.append(request.source)
        if "tl.exp" not in request.source or request.source == FILES["online"]:
            return Outcome("ok", 1.0 if "tl.exp" in request.source else 3.0, runtime_kind="estimated")
        return Outcome("wrong_result", diagnosis=Diagnosis("check", "WrongValues", "columns were not masked"))


def settings(**changes: Any) -> dict[str, Any]:
    return {
        "task": ATTENTION / "task.py", "coder": "llm", "strategy": "greedy", "policy": "uniform", "progress": False,
        "repairs": 0, "budget": Budget(evaluations=4, calls=9), "agents": AgentSettings(candidates=3), "dumps": False,
        **changes,
    }  # fmt: skip


class Scripted:
    """Answers each request with the next item; `n` of them at once where that is asked and may be."""

    def __init__(self, *replies: str, several: bool = True) -> None:
        self.left, self.several = list(replies), several

    def __call__(self, body: dict[str, Any]) -> str | Fault:
        if body.get("n", 1) == 1:
            return self.left.pop(0)
        if not self.several:
            return fault_server.error_reply(400, "only one completion choice is allowed")
        return fault_server.choices(*[self.left.pop(0) for _ in range(body["n"])], usage=(1000, 100 * body["n"]))


def searched(out: Path, reply: Scripted, **changes: Any) -> tuple[SearchResult, OnlyOnline, list[dict[str, Any]]]:
    evaluator = OnlyOnline()
    with FaultServer(reply=reply) as server:
        model = ModelSettings("openai/scripted", server.url, temperature=0.0, stream=changes.pop("stream", False))
        result = search(evaluator=evaluator, model=model, out=out, **settings(**changes))
    return result, evaluator, server.requests


def calls_of(folder: Path) -> list[tuple[str, str, int]]:
    store = Store.read(folder)
    try:
        return [(call.purpose, call.verdict, call.reply.tries if call.reply else -1) for call in store.model_calls()]
    finally:
        store.close()


@pytest.mark.parametrize("value", [0, 1.5, True])
def test_settings_that_cannot_be(value: Any) -> None:
    with pytest.raises(ConfigError, match="candidates"):
        AgentSettings(candidates=value)


def test_the_prompt_is_paid_once_and_the_third_candidate_is_the_child(tmp_path: Path) -> None:
    reply = Scripted(FORBIDDEN, fenced(variant(1)), RIGHT)
    result, evaluator, requests = searched(tmp_path / "run", reply, budget=Budget(evaluations=3, calls=4, tokens=10**6))
    assert [body.get("n") for body in requests] == [3]
    assert evaluator.made[1:] == [variant(1), FILES["online"]], "what the audit refuses is not evaluated"
    assert result.tree[1].source == FILES["online"] and result.evaluations == 3 and len(result.tree) == 2
    assert result.tree[1].cost.calls == 1 and result.tree[1].cost.tokens_in == 1000
    assert calls_of(tmp_path / "run") == [
        ("edit", "unusable: Forbidden", 1), ("edit", "usable", 0), ("edit", "usable", 0)
    ]  # fmt: skip
    store = Store.read(result.run_dir)
    assert [booking.tokens for booking in store.bookings()] == [1300]
    store.close()
    again = search(
        evaluator=ReplaySettings(run=str(result.run_dir)),
        model=ModelSettings("openai/scripted", unserved_url(), 0.0, replay=str(result.run_dir)),
        out=tmp_path / "again",
        **settings(budget=Budget(evaluations=3, calls=4, tokens=10**6)),
    )
    assert canonical_json(again) == canonical_json(load(result.run_dir))


def test_a_candidate_that_is_right_leaves_the_others_alone(tmp_path: Path) -> None:
    result, evaluator, _ = searched(
        tmp_path / "run", Scripted(RIGHT, fenced(variant(1)), fenced(variant(2))), budget=Budget(evaluations=2)
    )
    assert evaluator.made[1:] == [FILES["online"]] and result.evaluations == 2
    assert [verdict for _, verdict, _ in calls_of(tmp_path / "run")] == ["usable", "", ""]


@pytest.mark.parametrize("how", ["refuses", "streams"])
def test_where_a_server_gives_one_reply_no_more_is_asked_for_than_is_needed(how: str, tmp_path: Path) -> None:
    reply = Scripted(fenced(variant(1)), RIGHT, RIGHT, several=False)
    budget = Budget(evaluations=3, calls=9)
    result, evaluator, requests = searched(tmp_path / "run", reply, stream=how == "streams", budget=budget)
    asked = [body.get("n") for body in requests]
    assert asked == ([3, None, None] if how == "refuses" else [None, None]), "it is not asked for several again"
    assert len({body["seed"] for body in requests[-2:]}) == 2
    assert evaluator.made[1:] == [variant(1), FILES["online"]] and result.tree[1].cost.calls == 2


def test_all_that_fail_are_followed_by_a_repair_of_the_last(tmp_path: Path) -> None:
    replies = [fenced(variant(number)) for number in range(3)]
    result, evaluator, requests = searched(
        tmp_path / "run", Scripted(*replies, RIGHT), repairs=1, budget=Budget(evaluations=5, calls=9)
    )
    assert evaluator.made[1:] == [variant(0), variant(1), variant(2), FILES["online"]]
    assert "VARIANT = 2" in requests[-1]["messages"][-1]["content"] and len(requests) == 2
    assert result.tree[1].source == FILES["online"] and result.tree[1].cost.calls == 2


def test_evaluations_are_a_limit_of_candidates_too(tmp_path: Path) -> None:
    replies = [fenced(variant(number)) for number in range(3)]
    result, evaluator, _ = searched(tmp_path / "run", Scripted(*replies), budget=Budget(evaluations=3, calls=9))
    assert len(evaluator.made) == result.evaluations == 3


def test_candidates_without_a_file_are_answered_with_the_reason(tmp_path: Path) -> None:
    result, _, requests = searched(
        tmp_path / "run", Scripted("I will not.", "Nor I.", "", RIGHT), budget=Budget(evaluations=2, calls=9)
    )
    assert len(requests) == 2 and "cannot be used" in requests[-1]["messages"][-1]["content"]
    assert result.tree[1].source == FILES["online"]
    assert [verdict for _, verdict, _ in calls_of(tmp_path / "run")] == ["repaired", "repaired", "repaired", "usable"]


def test_equal_candidates_are_evaluated_once_and_what_the_audit_refuses_where_nothing_else_came(tmp_path: Path) -> None:
    same = fenced(variant(1))
    _, evaluator, _ = searched(tmp_path / "same", Scripted(same, same, same), budget=Budget(evaluations=2, calls=3))
    assert evaluator.made[1:] == [variant(1)]
    _, evaluator, _ = searched(
        tmp_path / "refused", Scripted(FORBIDDEN, "no", "no"), budget=Budget(evaluations=2, calls=3)
    )
    assert "import os" in evaluator.made[1], "a rule may repair it"


@pytest.mark.parametrize("tokens", [20_000, 30_000, 45_000])
def test_what_is_left_of_the_budget_holds_for_all_replies_together(tokens: int, tmp_path: Path) -> None:
    reply = Scripted(*[fenced(variant(number)) for number in range(9)])
    result, _, requests = searched(
        tmp_path / "run", reply, budget=Budget(evaluations=9, calls=9, tokens=tokens), repairs=0
    )
    for body in requests[:1]:
        sent = sum(len(message["content"].encode()) for message in body["messages"])
        assert sent + body.get("n", 1) * body["max_tokens"] <= tokens
    store = Store.read(result.run_dir)
    assert sum(booking.tokens for booking in store.bookings() if booking.state != "refused") <= tokens
    store.close()


class Killed(BaseException):
    """What ends a search in the middle."""


class Dying(OnlyOnline):
    """Ends the search instead of the evaluation of that number."""

    left = 0

    def _evaluate(self, request: EvaluationRequest) -> Outcome:
        if self.left == 0:
            raise Killed
        self.left -= 1
        return super()._evaluate(request)


@pytest.mark.parametrize(("left", "several"), share([(2, True), (2, False), (3, True), (1, True), (1, False)], 2))
def test_a_run_that_was_killed_goes_on_with_the_next_candidate(left: int, several: bool, tmp_path: Path) -> None:
    replies = [fenced(variant(0)), fenced(variant(1)), RIGHT]
    whole, _, asked = searched(tmp_path / "whole", Scripted(*replies, several=several))
    dying = Dying()
    dying.left = left
    with FaultServer(reply=Scripted(*replies, several=several)) as server:
        model = ModelSettings("openai/scripted", server.url, temperature=0.0)
        with pytest.raises(Killed):
            search(evaluator=dying, model=model, out=tmp_path / "run", **settings())
        resumed = resume(tmp_path / "run", evaluator=OnlyOnline())
        replied = len([body for body in server.requests if several or body.get("n") is None])
        assert replied == len([body for body in asked if several or body.get("n") is None]), "none was asked twice"
    assert canonical_json(resumed) == canonical_json(whole)
