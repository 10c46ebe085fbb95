"""Asynchronous searches: a trial begins as soon as another ends, and what was asked and told is recorded in its order."""

from __future__ import annotations

import importlib
import json
import os
import random
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from mtmc.errors import ConfigError
from mtmc.fakes import FAKE_TASK, FakeCoder, FakeEvaluator, FakePolicy
from mtmc.outcome import Outcome
from mtmc.protocols import EvaluationRequest
from mtmc.search import Budget, SearchResult, graph, load, resume, search
from mtmc.search.canonical import canonical_json
from mtmc.search.result import evaluation_order
from mtmc.search.strategies import STRATEGIES
from mtmc.search.strategies.common import derive_seed
from mtmc.store import STORE_NAME, Batch, Store
from tests.breadth import WIDE, share
from tests.killed_runs import AFTER, Killed, Mortal, doomed, evaluated, fork, logged, recorded
from tests.together import Together

EVALUATIONS = 40
MOMENTS = 10 if WIDE else 6


def begin(folder: Path | None = None, evaluator: FakeEvaluator | None = None, **arguments: Any) -> SearchResult:
    given = {"policy": FakePolicy(), "coder": FakeCoder(), "evaluator": evaluator or FakeEvaluator(failing=0.4)}
    given |= {"budget": EVALUATIONS, "seed": 6, "batch": 5, "asynchronous": True, "dumps": False}
    return search(FAKE_TASK, out=folder, **{**given, **arguments})


def go_on(folder: Path, evaluator: FakeEvaluator | None = None, **arguments: Any) -> SearchResult:
    parts: dict[str, Any] = {"policy": FakePolicy(), "coder": FakeCoder()}
    return resume(folder, **parts, evaluator=evaluator or FakeEvaluator(failing=0.4), dumps=False, **arguments)


def batches(folder: Path) -> list[Batch]:
    store = Store.read(folder)
    found = list(store.batches())
    store.close()
    return found


class Drawn:
    """A flight whose trials end in an order that follows from what is in flight, whatever the machine does."""

    def __init__(self, at_once: int, work: Callable[[int], None]) -> None:
        self.at_once, self.work = at_once, work
        self.waiting: dict[int, Batch] = {}

    def start(self, batch: Batch) -> None:
        self.waiting[batch.id] = batch
        assert sum(len(each.trials) for each in self.waiting.values()) <= self.at_once

    def wait(self) -> list[int]:
        chosen = min(self.waiting, key=lambda batch_id: derive_seed(0, "order", batch_id))
        for row in self.waiting.pop(chosen).trials:
            self.work(row.trial.id)
        return [chosen]

    def close(self) -> None:
        self.waiting.clear()


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "ThreadedFlight", Drawn)


@pytest.mark.parametrize("strategy", share([*STRATEGIES], 2))
def test_a_run_that_died_anywhere_goes_on_to_the_same_tree(drawn: None, tmp_path: Path, strategy: str) -> None:
    whole = begin(tmp_path / "whole", strategy=strategy)
    spent = whole.evaluations
    for at in (2, 3, spent // 3, spent // 2, spent - 1, spent):
        folder = tmp_path / str(at)
        evaluator = Mortal(failing=0.4)
        evaluator.dies_at = at
        with pytest.raises(Killed):
            begin(folder, evaluator, strategy=strategy)
        assert canonical_json(go_on(folder)) == canonical_json(whole), f"died at evaluation {at}"


def test_the_order_of_asks_and_ends_is_recorded(drawn: None, tmp_path: Path) -> None:
    result = begin(tmp_path, strategy="random")
    found = [batch for batch in batches(tmp_path) if batch.trials]
    assert all(len(batch.trials) == batch.asked == 1 for batch in found)
    assert [batch.after for batch in found[:5]] == [0] * 5, "five at once"
    ends = sorted(found, key=lambda batch: -1 if batch.ended is None else batch.ended)
    assert [batch.ended for batch in ends] == list(range(len(found)))
    assert [batch.id for batch in ends] != [batch.id for batch in found], "they did not end in the order of asking"
    made = [row.end.child_id for batch in ends for row in batch.trials if row.end and row.end.kind == "node"]
    assert made == list(range(1, len(result.tree)))
    store = Store.read(tmp_path)
    order = evaluation_order(store)
    store.close()
    assert len(order) == result.evaluations == EVALUATIONS
    assert [node_id for node_id in dict.fromkeys(order) if node_id in set(made)] == sorted(set(order) & set(made))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_a_run_knows_can_be_rebuilt_from_its_record(tmp_path: Path, strategy: str) -> None:
    class Unsteady(FakeEvaluator):
        def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
            time.sleep(derive_seed(1, requests[0].source) % 5 / 1000)
            return super().evaluate(requests)

    result = begin(
        tmp_path, Unsteady(failing=0.4, rejecting=0.2), strategy=strategy, coder=FakeCoder(deterministic=False)
    )
    again = load(tmp_path, strategy=STRATEGIES[strategy]())
    assert dict(again.annotations) == dict(result.annotations)
    assert canonical_json(again) == canonical_json(result)


def test_a_trial_begins_as_soon_as_another_ends() -> None:
    """The first version's evaluation lasts until twenty others have ended. Batch by batch that would be never."""

    class FirstIsLast(FakeEvaluator):
        def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
            with guard:
                number = len(begun)
                begun.append(number)
            if number == 1:  # 0 is the root
                assert enough.wait(300.0), "the others waited for this one"
            outcomes = super().evaluate(requests)
            with guard:
                ended.append(number)
                if len(ended) > 20:
                    enough.set()
            return outcomes

    guard, enough = threading.Lock(), threading.Event()
    begun: list[int] = []
    ended: list[int] = []
    result = begin(evaluator=FirstIsLast(), batch=3, strategy="random")
    assert result.evaluations == EVALUATIONS == len(begun)
    assert ended.index(1) >= 20


def test_as_many_at_once_as_were_asked_for_and_never_more() -> None:
    evaluator = Together().wait_for(4)
    begin(evaluator=evaluator, batch=4, strategy="random")
    assert evaluator.most == 4


@pytest.mark.parametrize("budget", [1, 2, 7, 23])
@pytest.mark.parametrize("repairs", [0, 2])
def test_the_budget_is_used_up_and_never_exceeded(budget: int, repairs: int) -> None:
    evaluator = FakeEvaluator(failing=0.5)
    result = begin(evaluator=evaluator, budget=budget, repairs=repairs, batch=6, strategy="random")
    assert result.evaluations == budget and result.finished == f"{budget} evaluations are spent"


def test_with_one_at_a_time_it_is_the_same_search() -> None:
    trees = [begin(batch=1, asynchronous=asynchronous) for asynchronous in (True, False)]
    assert list(trees[0].tree) == list(trees[1].tree)
    assert trees[0].annotations == trees[1].annotations


def test_what_becomes_the_best_was_verified(tmp_path: Path) -> None:
    result = begin(tmp_path, FakeEvaluator(failing=0.1, rejecting=0.5), budget=60)
    store = Store.read(tmp_path)
    bests = [node for node in result.tree if node.outcome.ok and node.id]
    faster = [
        node
        for node in bests
        if node.outcome.runtime_ms is not None
        and all(
            node.outcome.runtime_ms < (each.outcome.runtime_ms or 0)
            for each in result.tree
            if each.id < node.id and each.outcome.ok
        )
    ]
    assert len(faster) >= 2
    for node in faster:
        found = store.outcome(node.hash, "verify")
        assert found is not None and found[1].ok
    store.close()
    assert any(node.outcome.status == "rejected" for node in result.tree)


def test_an_error_of_a_trial_ends_the_search_once_the_others_have_ended(tmp_path: Path) -> None:
    evaluator = Mortal(failing=0.0, seconds=0.002)
    evaluator.dies_at = 9
    with pytest.raises(Killed):
        begin(tmp_path, evaluator)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("trial")]
    in_flight = [batch for batch in batches(tmp_path) if batch.seconds is None]
    assert 1 <= len(in_flight) <= 5
    before = [batch for batch in batches(tmp_path) if batch.seconds is not None]
    log = tmp_path.with_suffix(".log")
    result = go_on(tmp_path, FakeEvaluator(failing=0.0, log=log))
    after = batches(tmp_path)
    assert [batch for batch in after if batch.id in {each.id for each in before}] == before
    assert result.evaluations == EVALUATIONS
    screened = [line for line in log.read_text().splitlines() if line.startswith("screen")]
    assert len(screened) == len(set(screened)) <= EVALUATIONS - 8, "the eight that were recorded are not made again"


def test_a_strategy_that_waits_for_its_trials_is_asked_again_when_one_ends(tmp_path: Path) -> None:
    result = begin(tmp_path, strategy="beam", budget=Budget(30, depth=3))
    found = batches(tmp_path)
    empty = [batch for batch in found if not batch.trials]
    assert empty and all(batch.ended is None and batch.seconds is not None for batch in empty)
    assert result.evaluations == 30


def test_kill_9_at_any_moment_and_resume(tmp_path: Path) -> None:
    """What had ended before a signal that no process survives stays, and nothing that was recorded is made again."""
    command = [sys.executable, "-m", "tests.search.test_asynchronous", str(tmp_path)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    kills = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(kills) == MOMENTS
    for kill in kills:
        assert kill["same"] and kill["rebuilt"] and kill["repeated"] == [], kill
        assert kill["evaluations"] == EVALUATIONS, kill
    assert sum(0 < kill["ended"] < EVALUATIONS - 1 for kill in kills) >= MOMENTS // 2, "most must hit a run under way"


def run_doomed(run: Path, after: int, moment: float) -> None:
    begin(run, doomed(run, after, moment))


def nursery(folder: Path) -> None:
    """Kill and resume asynchronous runs in forks of this process, each by itself; one line of JSON for each."""
    for name in ("langgraph.checkpoint.sqlite", "langgraph.graph", "omegaconf", "mtmc.evaluate", "mtmc.agents.coders"):
        importlib.import_module(name)
    chance = random.Random(4)
    for number in range(MOMENTS):
        run = folder / f"run{number}"
        after, moment = chance.randint(2, EVALUATIONS - AFTER), chance.uniform(0.0, 0.012)
        os.waitpid(fork(run_doomed, run, after, moment), 0)
        before = [batch for batch in batches(run) if batch.seconds is not None]
        known, lines = recorded(run), len(evaluated(run))
        _, status = os.waitpid(fork(go_on, run, logged(run)), 0)
        result, later = load(run), {batch.id: batch for batch in batches(run)}
        facts = {
            "ended": len(before),
            "same": status == 0 and all(later[batch.id] == batch for batch in before),
            "rebuilt": dict(load(run, strategy=STRATEGIES["mcts"]()).annotations) == dict(result.annotations),
            "repeated": sorted(set(evaluated(run)[lines:]) & known),
            "evaluations": result.evaluations,
        }
        print(json.dumps(facts), flush=True)


def test_asynchronous_is_true_or_false() -> None:
    with pytest.raises(ConfigError, match=r"asynchronous cannot be 'yes': use true or false"):
        begin(asynchronous="yes")


def test_a_run_of_version_3_goes_on(tmp_path: Path) -> None:
    whole = begin(tmp_path / "whole", asynchronous=False)
    evaluator = Mortal(failing=0.4)
    evaluator.dies_at = 20
    with pytest.raises(Killed):
        begin(tmp_path / "run", evaluator, asynchronous=False)
    connection = sqlite3.connect(tmp_path / "run" / STORE_NAME)
    for table, column in (("batches", "after"), ("batches", "ended"), ("nodes", "gains")):
        connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    connection.execute("PRAGMA user_version = 3")
    connection.commit()
    connection.close()
    assert 3 < len(load(tmp_path / "run").tree) < len(whole.tree)
    assert canonical_json(go_on(tmp_path / "run")) == canonical_json(whole)


if __name__ == "__main__":
    nursery(Path(sys.argv[1]))
