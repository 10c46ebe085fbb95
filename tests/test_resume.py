"""A run that was killed goes on where it was: the same tree, and nothing that was recorded is paid for again."""

from __future__ import annotations

import importlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mtmc.errors import ConfigError, RunError
from mtmc.fakes import FAKE_TASK, FakeCoder, FakeEvaluator, FakePolicy, FakeStrategy
from mtmc.protocols import Edit, EditRequest
from mtmc.search import Budget, SearchResult, load, resume, search
from mtmc.search.canonical import canonical_json
from mtmc.search.strategies import STRATEGIES, BestOfN, Mcts
from mtmc.store import STORE_NAME
from tests.breadth import WIDE, share
from tests.killed_runs import AFTER, Killed, Mortal, doomed, evaluated, fork, logged, recorded

EVALUATIONS = 40
MOMENTS = 20 if WIDE else 6
ROOT = Path(__file__).parent.parent


def parts(evaluator: FakeEvaluator) -> dict[str, Any]:
    return {"policy": FakePolicy(), "coder": FakeCoder(), "evaluator": evaluator}


def begin(folder: Path, evaluator: FakeEvaluator | None = None, **arguments: Any) -> SearchResult:
    given = {"budget": EVALUATIONS, "seed": 6, "dumps": False, **parts(evaluator or FakeEvaluator(failing=0.4))}
    return search(FAKE_TASK, out=folder, **{**given, **arguments})


def go_on(folder: Path, evaluator: FakeEvaluator | None = None, **arguments: Any) -> SearchResult:
    given = parts(evaluator or FakeEvaluator(failing=0.4))
    return resume(folder, **{**given, "dumps": False, **arguments})


def die(folder: Path, at: int, **arguments: Any) -> None:
    """A run that ends when it asks for its `at`-th evaluation."""
    evaluator = Mortal(failing=0.4)
    evaluator.dies_at = at
    with pytest.raises(Killed):
        begin(folder, evaluator, **arguments)


@pytest.mark.parametrize(("strategy", "batch"), share([(name, batch) for name in STRATEGIES for batch in (1, 4)], 4))
def test_a_run_that_died_anywhere_goes_on_to_the_same_tree(tmp_path: Path, strategy: str, batch: int) -> None:
    whole = canonical_json(begin(tmp_path / "whole", strategy=strategy, batch=batch))
    spent = json.loads(whole)["evaluations"]
    for at in (2, 3, spent // 2, spent - 1, spent):
        folder = tmp_path / str(at)
        die(folder, at, strategy=strategy, batch=batch)
        assert canonical_json(go_on(folder)) == whole, f"died at evaluation {at}"


def test_a_run_that_dies_again_and_again_goes_on_to_the_same_tree(tmp_path: Path) -> None:
    whole = canonical_json(begin(tmp_path / "whole", batch=3))
    die(tmp_path / "run", 5, batch=3)
    result, deaths = None, 0
    while result is None:
        evaluator = Mortal(failing=0.4)
        evaluator.dies_at = 6
        try:
            result = go_on(tmp_path / "run", evaluator)
        except Killed:
            deaths += 1
    assert canonical_json(result) == whole
    assert deaths >= 5


def test_an_edit_that_was_recorded_is_not_asked_for_again(tmp_path: Path) -> None:
    class Noting(FakeCoder):
        def edit(self, request: EditRequest) -> Edit:
            seeds.append(request.seed)
            return super().edit(request)

    seeds: list[int] = []
    evaluator = Mortal(failing=0.4)
    evaluator.dies_at = 9
    coder = Noting(deterministic=False)
    with pytest.raises(Killed):
        begin(tmp_path, evaluator, coder=coder, batch=4)
    go_on(tmp_path, coder=coder)
    assert len(seeds) == len(set(seeds))


def test_what_a_run_has_found_can_be_read_while_it_stands_still(tmp_path: Path) -> None:
    die(tmp_path, 15)
    result = load(tmp_path)
    assert result.finished is None
    assert 5 < len(result.tree) <= result.evaluations == 14
    finished = go_on(tmp_path)
    assert list(finished.tree)[: len(result.tree)] == list(result.tree)
    assert load(tmp_path).finished == finished.finished == "40 evaluations are spent"


def test_a_finished_run_may_get_a_greater_budget(tmp_path: Path) -> None:
    begin(tmp_path, budget=20)
    first = load(tmp_path).tree
    assert go_on(tmp_path).evaluations == 20
    result = go_on(tmp_path, budget=45)
    assert result.evaluations == 45
    assert list(result.tree)[: len(first)] == list(first)
    assert load(tmp_path).record.settings["budget"]["evaluations"] == 45  # type: ignore[index]
    assert "evaluations: 45" in (tmp_path / "config.yaml").read_text()


def test_wall_seconds_go_on_from_what_was_spent(tmp_path: Path) -> None:
    slow = FakeEvaluator(seconds=0.02)
    budget = Budget(evaluations=500, wall_seconds=0.4)
    assert begin(tmp_path, slow, budget=budget).finished == "0.4 seconds are spent"
    spent = load(tmp_path).evaluations
    assert go_on(tmp_path, slow).evaluations == spent, "nothing is left of the time"
    assert go_on(tmp_path, slow, budget=Budget(evaluations=spent + 3, wall_seconds=900.0)).evaluations == spent + 3


def test_outputs_are_written_again_from_the_store(tmp_path: Path) -> None:
    begin(tmp_path, budget=12)
    best = (tmp_path / "best.py").read_text()
    config = (tmp_path / "config.yaml").read_text()
    for path in tmp_path.iterdir():
        if path.name != STORE_NAME:
            path.unlink()
    go_on(tmp_path, dumps=True)
    assert (tmp_path / "best.py").read_text() == best
    assert (tmp_path / "config.yaml").read_text() == config
    assert (tmp_path / "nodes" / "0.py").exists() and (tmp_path / "tree.json").exists()


def test_parts_of_the_registries_need_not_be_given_again(tmp_path: Path) -> None:
    begin(tmp_path, strategy=BestOfN(steps=3), budget=12)
    assert load(tmp_path).record.settings["strategy"] == {
        "name": "best_of_n",
        "settings": {"rollouts": None, "steps": 3, "patience": 200},
    }


def test_parts_of_no_registry_must_be_given_again(tmp_path: Path) -> None:
    begin(tmp_path, budget=3)
    with pytest.raises(
        RunError, match=r"the policy of this run was an object of mtmc\.fakes\.FakePolicy: give it again"
    ):
        resume(tmp_path)
    resume(tmp_path, dumps=False, **parts(FakeEvaluator()))


def test_a_run_that_has_ended_is_loaded_without_its_strategy(tmp_path: Path) -> None:
    result = begin(tmp_path, strategy=FakeStrategy(), budget=12)
    assert load(tmp_path).annotations == result.annotations
    with pytest.raises(RunError, match=r"Mcts asks for other trials"):
        load(tmp_path, strategy=Mcts(exploration=50.0))


def test_without_its_strategy_a_run_that_has_not_ended_is_loaded_without_statistics(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    die(tmp_path, 9, strategy=FakeStrategy())
    result = load(tmp_path)
    assert result.annotations == {} and len(result.tree) > 1
    assert "the search statistics are left out: the strategy of this run was an object of mtmc.fakes" in caplog.text
    assert len(load(tmp_path, strategy=FakeStrategy()).annotations) == len(result.tree)


def test_another_strategy_is_refused(tmp_path: Path) -> None:
    begin(tmp_path)
    with pytest.raises(RunError, match=r"BestOfN asks for other trials than the run .* records"):
        go_on(tmp_path, strategy=BestOfN(), budget=60)
    with pytest.raises(RunError, match="Mcts asks for other trials"):
        go_on(tmp_path, strategy=Mcts(exploration=50.0), budget=60)
    assert load(tmp_path).record.settings["budget"]["evaluations"] == 40  # type: ignore[index]
    assert go_on(tmp_path).evaluations == 40, "nothing was changed"


def test_another_depth_is_refused(tmp_path: Path) -> None:
    begin(tmp_path, budget=5)
    with pytest.raises(ConfigError, match=r"budget\.depth cannot be 9 for a run that has 8"):
        go_on(tmp_path, budget=Budget(50, depth=9))


def test_a_run_that_goes_on_cannot_be_resumed(tmp_path: Path) -> None:
    def interfere(progress: object) -> None:
        if not refused:
            with pytest.raises(RunError) as caught:
                go_on(tmp_path)
            refused.append(str(caught.value))

    refused: list[str] = []
    begin(tmp_path, budget=5, progress=interfere)
    assert "is open already in this process" in refused[0]


def test_no_run_no_resume(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="there is no run in"):
        resume(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


# kill -9, with real processes


def test_kill_9_at_any_moment_and_resume(tmp_path: Path) -> None:
    """Runs of forty evaluations, each killed at a random moment by a signal that no process survives."""
    command = [sys.executable, "-m", "tests.test_resume", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    kills = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(kills) == MOMENTS
    for number, kill in enumerate(kills):
        assert kill["same_tree"], f"kill {number}: {kill}"
        assert kill["repeated"] == [], f"kill {number}: {kill}"
    in_flight = [kill for kill in kills if 0 < kill["recorded"] < EVALUATIONS]
    assert len(in_flight) >= MOMENTS // 2, "most kills must hit a run that was under way"


def nursery(folder: Path) -> None:
    """Kill and resume runs in forks of this process, which has all the slow imports; one line of JSON for each kill.

    A run kills itself some thousandths of a second after a random one of its evaluations has begun, every fifth run at
    a random moment from its start. This process has no other threads when it forks.
    """
    for name in ("langgraph.checkpoint.sqlite", "langgraph.graph", "omegaconf", "mtmc.evaluate", "mtmc.agents.coders"):
        importlib.import_module(name)
    chance = random.Random(9)
    whole = {}
    begun = {}
    for batch in (1, 4):
        run = folder / f"whole{batch}"
        os.waitpid(fork(run_logged, run, batch), 0)
        begun[batch] = len(evaluated(run))
        whole[batch] = canonical_json(load(run))
    for number in range(MOMENTS):
        batch = (1, 4)[number % 2]
        after = chance.randint(2, begun[batch] - AFTER) if number % 5 else 0
        moment = chance.uniform(0.0, 0.012 if after else 0.4)
        run = folder / f"run{number}"
        os.waitpid(fork(run_doomed, run, batch, after, moment), 0)
        before = recorded(run)
        logged_lines = len(evaluated(run))
        _, status = os.waitpid(fork(finish_logged, run, batch), 0)
        again = evaluated(run)[logged_lines:]
        facts = {
            "after": after,
            "moment": moment,
            "batch": batch,
            "recorded": sum(each.startswith("screen") for each in before),
            "same_tree": status == 0 and canonical_json(load(run)) == whole[batch],
            "repeated": sorted(set(again) & before),
        }
        print(json.dumps(facts), flush=True)


def run_doomed(run: Path, batch: int, after: int, moment: float) -> None:
    begin(run, doomed(run, after, moment), batch=batch)


def run_logged(run: Path, batch: int) -> None:
    begin(run, logged(run), batch=batch)


def finish_logged(run: Path, batch: int) -> None:
    """Go on with a killed run; where it was killed before its store was there, begin it."""
    if (run / STORE_NAME).exists():
        go_on(run, logged(run))
    else:
        run_logged(run, batch)


if __name__ == "__main__":
    nursery(Path(sys.argv[1]))
