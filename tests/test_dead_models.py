"""Models that answer nothing, or nothing usable: the search ends with the reason, and what was not answered is not lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mtmc import cli
from mtmc.chat import ChatRequest, Message, ModelSettings
from mtmc.cli.console import one_line_summary, summary
from mtmc.errors import ModelDown, ModelError, NoReply
from mtmc.fakes import FAKE_TASK, FakeCoder, FakeEvaluator, FakePolicy
from mtmc.protocols import Observation
from mtmc.search import Budget, SearchResult, breaker, load, resume, search
from mtmc.search.breaker import Breaker
from mtmc.search.canonical import canonical_json
from mtmc.search.opening import recorded_budget
from mtmc.search.stagnation import Stagnation
from mtmc.store import Store, TrialEnd
from tests.agents.asking import AskingFake
from tests.agents.fault_server import Fault, FaultServer, Reply, error_reply, server_error


class AskingPolicy(FakePolicy):
    """A policy that asks a model, and takes its own prior all the same."""

    def prior(self, observation: Observation, actions: Any) -> list[float]:
        assert observation.context is not None
        observation.context.complete(ChatRequest((Message("user", observation.source),), "policy"))
        return super().prior(observation, actions)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breaker, "PAUSE_S", 0.01)


def model(url: str, **others: Any) -> ModelSettings:
    return ModelSettings("openai/scripted", url, **{"retries": 0, "patience_s": 0.0, "max_tokens": 512, **others})


def grown(folder: Path, reply: Callable[[dict[str, Any]], Reply], **others: Any) -> tuple[SearchResult, FaultServer]:
    asked = {"coder": AskingFake(), "policy": FakePolicy(), "budget": 12, "batch": 2, "dumps": False, **others}
    patience = asked.pop("patience_s", 0.0)
    with FaultServer(reply=reply) as server:
        settings = model(server.url, patience_s=patience)
        result = search(FAKE_TASK, evaluator=FakeEvaluator(), model=settings, out=folder, **asked)
    return result, server


def dead_after(count: int) -> Callable[[dict[str, Any]], Reply]:
    """A server that answers so many requests."""
    left = iter(range(count))

    def reply(body: dict[str, Any]) -> Reply:
        return "edit" if next(left, None) is not None else server_error(503)

    return reply


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_dead_model_ends_the_search_and_a_resumed_one_grows_the_tree_that_it_would_have(
    count: int, tmp_path: Path
) -> None:
    whole, _ = grown(tmp_path / "whole", lambda body: "edit")
    cut, server = grown(tmp_path / "cut", dead_after(count))
    assert cut.cut_short and cut.finished is not None
    assert "has answered nothing for 0 s" in cut.finished and "status 503" in cut.finished
    assert count < len(server.requests) <= count + 5, "each question under way, and a short one"
    assert (tmp_path / "cut" / "best.py").exists() and len(cut.tree) < len(whole.tree)
    with FaultServer(reply=lambda body: "edit") as server:
        parts = {"coder": AskingFake(), "policy": FakePolicy(), "evaluator": FakeEvaluator()}
        again = resume(tmp_path / "cut", model=model(server.url), dumps=False, **parts)
    assert not again.cut_short and again.finished == whole.finished
    trees = [json.loads(canonical_json(each)) for each in (whole, again)]
    assert trees[0]["nodes"] == trees[1]["nodes"]


def test_what_fails_in_passing_uses_up_no_edge(tmp_path: Path) -> None:
    whole, _ = grown(tmp_path / "whole", lambda body: "edit", batch=1)
    numbers = iter(range(1000))

    def flaky(body: dict[str, Any]) -> Reply:
        return server_error(503) if next(numbers) % 3 == 0 else "edit"

    found, server = grown(tmp_path / "flaky", flaky, batch=1, patience_s=600.0)
    assert len(server.requests) > 1.3 * len([call for call in found.record.calls if call.reply])
    assert all(call.reply is not None for call in found.record.calls)
    assert json.loads(canonical_json(found))["nodes"] == json.loads(canonical_json(whole))["nodes"]


def test_a_question_that_the_server_cannot_take_is_at_fault_itself_where_a_short_one_is_answered(
    tmp_path: Path,
) -> None:
    def reply(body: dict[str, Any]) -> Reply:
        text = body["messages"][-1]["content"]
        return "edit" if text == breaker.PROBE.messages[0].content or "fuse" not in text else server_error(500)

    found, _ = grown(tmp_path / "run", reply)
    failed = [call for call in found.record.calls if call.reply is None]
    assert failed and all("status 500" in call.error for call in failed)
    assert not found.cut_short and len(found.tree) > 3
    store = Store.read(found.run_dir)
    assert {row.end.kind for batch in store.batches() for row in batch.trials if row.end} >= {"coder_error", "node"}
    store.close()


def test_a_model_that_is_dead_before_the_root_is_an_error(tmp_path: Path) -> None:
    with FaultServer(reply=lambda body: server_error(503)) as server, pytest.raises(ModelDown, match="status 503"):
        search(FAKE_TASK, coder=FakeCoder(), policy=AskingPolicy(), evaluator=FakeEvaluator(), model=model(server.url))


@pytest.mark.parametrize("strategy", ["best_of_n", "mcts", "greedy"])
def test_a_model_that_refuses_ends_the_search_after_a_few_questions(strategy: str, tmp_path: Path) -> None:
    coder = AskingFake(width=40, calls=2)
    found, server = grown(
        tmp_path / "run", lambda body: "I cannot help with that.", strategy=strategy, coder=coder, dumps=True
    )
    assert 32 <= len(server.requests) <= 36, "a batch may end beyond"
    assert found.cut_short and found.finished is not None
    assert "questions in a row led to no evaluation; the last: the reply has no code: I cannot" in found.finished
    assert load(found.run_dir).cut_short and load(found.run_dir).finished == found.finished
    assert found.finished in summary(found) and found.finished in one_line_summary(found)
    assert "questions in a row led to no evaluation" in (found.run_dir / "report.md").read_text()


def test_a_search_that_runs_out_of_edges_says_that_no_question_led_to_anything(tmp_path: Path) -> None:
    refused: Fault = error_reply(400, "the prompt is not to my liking")
    coder = AskingFake(width=6)
    found, server = grown(tmp_path / "run", lambda body: refused, coder=coder, strategy="greedy", budget=Budget(32))
    assert found.cut_short and len(server.requests) <= 6
    assert found.finished is not None and found.finished.startswith("nothing is left to try: no question of ")
    assert "not to my liking" in found.finished


def test_stagnation_counts_questions_since_the_last_evaluation() -> None:
    state = Stagnation()
    for end, questions, counted in (
        (TrialEnd("coder_error", None, 0, "no code"), 2, 2),
        (TrialEnd("duplicate", 3, 0, "known"), 1, 3),
        (TrialEnd("coder_error", None, 0, "no rule"), 0, 3),
        (TrialEnd("coder_error", None, 1, "gave up"), 9, 0),
        (TrialEnd("coder_error", None, 0, "no code"), 4, 4),
    ):
        state = state.after(end, questions)
        assert state.questions == counted
    assert state.reached(5) is None and state.reached(None) is None
    assert state.reached(4) == "4 questions in a row led to no evaluation; the last: no code"


def test_a_run_of_before_does_not_end_for_stagnation() -> None:
    assert recorded_budget({"budget": {"evaluations": 9, "calls": None}}) == Budget(9, calls=None, stagnation=None)
    assert Budget().calls == 1000 and Budget().stagnation == 32


def test_the_breaker_is_patient_from_the_first_question_without_a_reply() -> None:
    now = [100.0]
    guard = Breaker("m", 60.0, clock=lambda: now[0])
    guard.asked()
    now[0] = 159.0
    assert guard.may_ask_again()
    now[0] = 160.0
    guard.asked()
    assert not guard.may_ask_again()
    guard.answered()
    guard.asked()
    assert guard.may_ask_again()
    guard.check()
    error = guard.open(NoReply("gave no reply to 5 requests"))
    assert isinstance(error, ModelError) and "answered nothing for 60 s (gave no reply to 5 requests)" in str(error)
    with pytest.raises(ModelDown, match="resume the run"):
        guard.check()


def test_the_exit_status_tells_a_search_that_was_cut_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused, _ = grown(tmp_path / "refused", lambda body: "no", coder=AskingFake(calls=40))
    fine, _ = grown(tmp_path / "fine", lambda body: "edit")
    for result, status in ((refused, 3), (fine, 0)):
        monkeypatch.setattr("mtmc.cli.search.run", lambda config, result=result: result)
        assert cli.main(["search", "task=softmax"]) == status
        assert str(result.finished) in capsys.readouterr().out
