"""A whole search with fake parts: the state machine, the budget, and what is on disk afterwards."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mtmc.action import STOP, Action
from mtmc.errors import CoderError, ConfigError, EvaluatorError, RunError, TaskError
from mtmc.evaluate import ReplaySettings
from mtmc.fakes import FAKE_TASK, FakeCoder, FakeEvaluator, FakePolicy, FakeStrategy
from mtmc.outcome import RESOURCE_ERROR, Cost, Diagnosis, Outcome
from mtmc.protocols import Coder, Edit, EditRequest, EvaluationRequest, Evaluator, Observation
from mtmc.search import Budget, Progress, SearchResult, load, run_state, search
from mtmc.search.budget import Spent, allowances, batch_size, exhausted
from mtmc.search.canonical import canonical_json
from mtmc.search.evaluation import is_not_faster, verified
from mtmc.search.result import evaluation_order
from mtmc.search.run_state import Settings
from mtmc.search.strategies import STRATEGIES, Mcts
from mtmc.store import Store
from mtmc.task import Task
from mtmc.tree import source_hash
from tests.together import Together

GOLDEN = Path(__file__).parent / "golden"
ROOT = Path(__file__).parent.parent


@dataclass
class Counted(Evaluator):
    """An evaluator that counts what it is asked."""

    inner: FakeEvaluator = field(default_factory=FakeEvaluator)
    asked: Counter[str] = field(default_factory=Counter)
    hashes: Counter[str] = field(default_factory=Counter)
    guard: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.hardware, self.verifies = self.inner.hardware, self.inner.verifies

    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
        with self.guard:
            for request in requests:
                self.asked[request.depth] += 1
                self.hashes[f"{request.depth} {source_hash(request.source)}"] += 1
        return self.inner.evaluate(requests)

    def close(self) -> None:
        self.inner.close()


def fake(evaluator: Any = None, coder: Coder | None = None, **arguments: Any) -> SearchResult:
    """A search with fake parts."""
    parts = {"policy": FakePolicy(), "coder": coder or FakeCoder(), "evaluator": evaluator or FakeEvaluator()}
    return search(FAKE_TASK, **{**parts, "dumps": False, **arguments})


def ends(result: SearchResult) -> list[Any]:
    """How each trial ended."""
    store = Store.read(result.run_dir)
    rows = [row for batch in store.batches() for row in batch.trials]
    store.close()
    return rows


# what a coder finds out while the root is evaluated


@dataclass(frozen=True)
class Ahead(FakeCoder):
    """Looks ahead for a while, and fails then where it should."""

    fails: bool = False
    told: list[tuple[str, str | None, str]] = field(default_factory=list)
    seen_at: list[int] = field(default_factory=list)

    def ahead(self, task: Task, plan: str | None, hardware: str) -> None:
        time.sleep(0.2)
        self.told.append((task.name, plan, hardware))
        if self.fails:
            raise ValueError("of no use")

    def actions(self, observation: Observation, failures: Sequence[tuple[str | None, Outcome]]) -> list[Action]:
        self.seen_at.append(len(self.told))
        return super().actions(observation, failures)


@pytest.mark.parametrize("fails", [False, True])
def test_a_coder_looks_ahead_once_before_actions_are_asked_for_and_nothing_hangs_on_it(fails: bool) -> None:
    coder = Ahead(fails=fails)
    evaluator = FakeEvaluator()
    result, plain = fake(evaluator, coder, budget=8, seed=3), fake(budget=8, seed=3)
    assert coder.told == [(FAKE_TASK.name, result.tree.root.plan, evaluator.hardware)]
    assert {*coder.seen_at} == {1}
    assert canonical_json(result) == canonical_json(plain)


def test_no_coder_looks_ahead_where_no_version_may_be_made() -> None:
    coder = Ahead()
    fake(coder=coder, budget=Budget(evaluations=8, depth=0))
    assert coder.told == []


# the same seed, the same tree


@pytest.mark.parametrize("name", [*STRATEGIES, "fake"])
def test_the_golden_tree(name: str) -> None:
    strategy = FakeStrategy() if name == "fake" else name
    result = fake(FakeEvaluator(rejecting=0.3), strategy=strategy, budget=24, seed=5, batch=2)
    golden = GOLDEN / f"{name}.json"
    text = canonical_json(result)
    assert text == (golden.read_text() if golden.exists() else ""), (
        "the tree differs; write it anew with `python -m tests.test_search` if it should, and for a new strategy"
    )


@pytest.mark.parametrize("batch", [1, 6])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_same_seed_gives_the_same_tree(strategy: str, batch: int) -> None:
    coder = FakeCoder(deterministic=False)
    trees = [canonical_json(fake(coder=coder, strategy=strategy, batch=batch, seed=2)) for _ in range(2)]
    assert trees[0] == trees[1]
    assert trees[0] != canonical_json(fake(coder=coder, strategy=strategy, batch=batch, seed=3))


def test_a_batch_is_deterministic_whatever_its_timing() -> None:
    class Unsteady(FakeEvaluator):
        def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
            time.sleep(pauses.pop() if pauses else 0.0)
            return super().evaluate(requests)

    trees = []
    for order in (1, -1):
        pauses = [0.004 * (number % 7) for number in range(60)][::order]
        trees.append(canonical_json(fake(Unsteady(failing=0.4), budget=48, batch=6)))
    assert trees[0] == trees[1]


@pytest.mark.parametrize("batch", [1, 4])
def test_a_replayed_run_gives_the_same_tree(tmp_path: Path, batch: int) -> None:
    recorded = fake(FakeEvaluator(rejecting=0.3, hardware="A100"), out=tmp_path / "recorded", batch=batch, seed=4)
    assert any(node.outcome.status == "rejected" for node in recorded.tree)
    replayed = fake(ReplaySettings(run=str(tmp_path / "recorded")), out=tmp_path / "replayed", batch=batch, seed=4)
    assert canonical_json(replayed) == canonical_json(recorded)
    assert replayed.record.settings["hardware"] == "A100"
    with pytest.raises(EvaluatorError, match="not among the"):
        fake(ReplaySettings(run=str(tmp_path / "recorded")), FakeCoder(commuting=False), batch=batch, budget=64)


def test_a_replay_without_a_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"set evaluator\.run"):
        fake("replay", out=tmp_path / "run")
    with pytest.raises(RunError, match="there is no run in"):
        fake(ReplaySettings(run=str(tmp_path / "nowhere")), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_trials_of_a_batch_run_at_once() -> None:
    for count in (4, 1):
        evaluator = Together().wait_for(count)
        fake(evaluator, budget=25, batch=count)
        assert evaluator.most == count


# budget


@pytest.mark.parametrize("batch", [1, 3, 8])
@pytest.mark.parametrize("evaluations", [1, 2, 7, 30])
@pytest.mark.parametrize("strategy", ["mcts", "best_of_n"])
def test_never_one_evaluation_more_than_the_budget(strategy: str, evaluations: int, batch: int) -> None:
    evaluator = Counted(FakeEvaluator(failing=0.6))
    result = fake(evaluator, strategy=strategy, budget=evaluations, batch=batch, repairs=3)
    assert evaluator.asked["screen"] == result.evaluations <= evaluations
    assert result.evaluations == evaluations or result.finished == "nothing is left to try"
    assert max(evaluator.hashes.values()) == 1, "no source is evaluated twice"


def test_allowances_are_given_to_the_first_trials_and_never_exceed_what_is_left() -> None:
    budget = Budget(evaluations=10)
    assert allowances(budget, Spent(2, 0.0), 3, 2) == [3, 3, 2]
    assert allowances(budget, Spent(2, 0.0), 2, 2) == [3, 3]
    assert allowances(budget, Spent(7, 0.0), 3, 2) == [1, 1, 1]
    assert allowances(budget, Spent(0, 0.0), 1, 0) == [1]
    assert batch_size(budget, Spent(7, 0.0), 8) == 3
    assert batch_size(budget, Spent(10, 0.0), 8) == 0


def test_the_first_limit_that_is_reached_ends_the_search() -> None:
    budget = Budget(evaluations=10, wall_seconds=60, roofline=0.8)
    assert exhausted(budget, Spent(9, 59.9, 0.79)) is None
    assert exhausted(budget, Spent(10, 0.0)) == "10 evaluations are spent"
    assert exhausted(budget, Spent(0, 60.0)) == "60 seconds are spent"
    assert exhausted(budget, Spent(0, 0.0, 0.8)) == "the best version reaches 0.80 of the roofline, 0.80 was asked"
    assert exhausted(Budget(), Spent(0, 1e9, 1.0)) is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"evaluations": -5}, r"budget\.evaluations cannot be -5: use 1 or more"),
        ({"evaluations": 0}, r"budget\.evaluations cannot be 0"),
        ({"evaluations": 2.5}, r"budget\.evaluations cannot be 2\.5: use a whole number"),
        ({"depth": -1}, r"budget\.depth cannot be -1"),
        ({"wall_seconds": 0.0}, r"budget\.wall_seconds cannot be 0\.0"),
        ({"wall_seconds": float("nan")}, r"budget\.wall_seconds cannot be nan"),
        ({"roofline": 1.5}, r"budget\.roofline cannot be 1\.5: use a fraction"),
    ],
)
def test_a_budget_that_cannot_be_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Budget(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch": 0}, "batch cannot be 0: use 1 or more"),
        ({"repairs": -1}, "repairs cannot be -1: use 0 or more"),
        ({"seed": "x"}, "seed cannot be 'x': use a whole number"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Settings(**settings)


def test_wall_seconds_end_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ticking(FakeEvaluator):
        def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
            ticks.append(0.25)
            return super().evaluate(requests)

    ticks: list[float] = []
    monkeypatch.setattr(run_state, "time", SimpleNamespace(monotonic=lambda: sum(ticks)))
    result = fake(Ticking(failing=0.0), budget=Budget(evaluations=1000, wall_seconds=5.0))
    assert result.finished == "5 seconds are spent"
    assert result.evaluations == 20


def test_a_task_whose_output_tells_nothing_ends_with_its_root(tmp_path: Path) -> None:
    class Blind(FakeEvaluator):
        def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
            reason = "its output says too little to tell work from none: output 0: zeros pass for it"
            return [replace(outcome, undecided=reason) for outcome in super().evaluate(requests)]

    result = fake(Blind(), budget=Budget(evaluations=9), out=tmp_path / "run", dumps=True)
    assert len(result.tree) == 1 and result.finished == result.undecided != ""
    assert result.best.speedup is None and result.undecided == load(tmp_path / "run").undecided
    assert "No version of this task earns a reward" in (tmp_path / "run" / "report.md").read_text()


def test_reaching_the_roofline_ends_the_search() -> None:
    result = fake(budget=Budget(evaluations=500, roofline=0.2))
    assert result.finished is not None and "of the roofline, 0.20 was asked" in result.finished
    assert result.tree.best.outcome.metrics["roofline"] >= 0.2
    assert all(
        node.outcome.metrics.get("roofline", 0.0) < 0.2 for node in result.tree if node.id != result.tree.best.id
    )


@pytest.mark.parametrize(("behind", "goes_on"), [(1e-9, True), (1e9, False)])
def test_reaching_the_roofline_is_not_enough_while_a_baseline_is_faster(behind: float, goes_on: bool) -> None:
    """behind: milliseconds that the baseline takes; one without a runtime is none."""

    class Compared(FakeEvaluator):
        def baselines(self, task: Task) -> dict[str, Outcome]:
            return {"library": Outcome("unsupported"), "torch.compile": Outcome("ok", runtime_ms=behind)}

    result = fake(Compared(), budget=Budget(evaluations=60, roofline=0.2))
    assert result.tree.best.outcome.metrics["roofline"] >= 0.2
    assert (result.finished == "60 evaluations are spent") == goes_on


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_no_version_is_deeper_than_the_budget(depth: int) -> None:
    result = fake(strategy=FakeStrategy(), budget=Budget(evaluations=40, depth=depth))
    assert max(result.tree.depth(node.id) for node in result.tree) == depth


# a trial


@dataclass
class Scripted(Coder):
    """A coder whose edits are written down: per action key the sources of its attempts; "refuse" is a CoderError."""

    script: dict[str, list[str]]
    deterministic: bool = True
    requests: list[EditRequest] = field(default_factory=list)
    failures: list[int] = field(default_factory=list)

    def root(self, task: Task) -> Edit:
        return Edit("root\n", "root's plan", Cost(calls=1))

    def actions(self, observation: Observation, failures: Sequence[tuple[str | None, Outcome]]) -> list[Action]:
        self.failures.append(len(failures))
        if observation.history:
            return [STOP]
        return [*(Action(name, STOP.region, (), name) for name in self.script), STOP]

    def edit(self, request: EditRequest) -> Edit:
        self.requests.append(request)
        sources = self.script[request.action.kind]
        source = sources[0] if request.feedback is None else sources[1 + sources.index(str(request.failed_source))]
        if source == "refuse":
            raise CoderError("no such loop: choose another region")
        return Edit(source, f"plan of {source}", Cost(usd=0.5, calls=1))


@dataclass
class Judge(Evaluator):
    """An evaluator that reads the outcome off the source: its first word is a status, the second the runtime."""

    hardware: str = "H100"
    verifies: bool = True
    asked: list[EvaluationRequest] = field(default_factory=list)
    imported: list[str] = field(default_factory=list)

    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
        self.asked += requests
        [request] = requests
        word, _, rest = request.source.strip().partition(" ")
        if word == "root":
            return [Outcome("ok", 8.0, runtime_kind="measured")]
        if word == "busy" and request.depth == "verify":  # the host was, when it was screened
            return [Outcome("ok", 2.5, runtime_kind="measured", metrics={"eager_ms": 2.0})]
        if word == "noisy" and request.depth == "verify":  # the host was, when it was verified first
            again = [each.depth for each in self.asked if each.source == request.source].count("verify") > 1
            return [Outcome("ok", 1.0 if again else 2.5, runtime_kind="measured", metrics={"eager_ms": 2.0})]
        if word in ("ok", "busy", "noisy", "leaning") or (word == "cheat" and request.depth == "screen"):
            return [Outcome("ok", float(rest), runtime_kind="measured")]
        if word == "cheat":
            return [Outcome("wrong_result", diagnosis=Diagnosis("verify", "StaleOutput", "not computed"))]
        kind = RESOURCE_ERROR if rest == "resources" else "SomeError"
        return [Outcome(word, diagnosis=Diagnosis("build", kind, "it failed", 3))]  # type: ignore[arg-type]

    def imports(self, source: str) -> Outcome | None:
        self.imported.append(source)
        leaning = source.startswith("leaning")  # on what somebody else has imported
        return Outcome("rejected", diagnosis=Diagnosis("verify", "NameError", "no tl")) if leaning else None

    def close(self) -> None: ...


def play(script: dict[str, list[str]], verifies: bool = True, **arguments: Any) -> tuple[SearchResult, Scripted, Judge]:
    coder, judge = Scripted(script), Judge(verifies=verifies)
    result = search(
        FAKE_TASK,
        strategy=FakeStrategy(),
        policy=FakePolicy(),
        coder=coder,
        evaluator=judge,
        **{"repairs": 2, "dumps": False, **arguments},
    )
    return result, coder, judge


def test_a_failed_version_is_repaired_with_its_diagnosis() -> None:
    result, coder, _ = play({"tile": ["build_error a", "wrong_result b", "ok 4.0"]})
    node = result.tree[1]
    assert (node.source, node.repairs, node.plan, node.cost) == ("ok 4.0", 2, "plan of ok 4.0", Cost(usd=1.5, calls=3))
    assert result.best.speedup == 2.0
    first, second, third = coder.requests
    assert first.feedback is None and first.failed_source is None
    assert (
        second.feedback == Diagnosis("build", "SomeError", "it failed", 3) and second.failed_source == "build_error a"
    )
    assert third.failed_source == "wrong_result b"
    assert len({request.seed for request in coder.requests}) == 3
    assert [row.end.evaluations for row in ends(result)] == [3]
    assert result.evaluations == 4, "every round of repair counts"


def test_repairs_end_at_their_limit_and_the_failure_is_a_node() -> None:
    result, _, _ = play({"tile": ["crash a", "crash b", "crash c", "ok 1.0"]})
    assert (result.tree[1].source, result.tree[1].repairs, result.tree[1].outcome.status) == ("crash c", 2, "crash")
    assert result.best.node_id == 0


@pytest.mark.parametrize("verifies", [True, False])
def test_a_version_that_cannot_be_imported_by_itself_is_not_handed_out(
    verifies: bool, caplog: pytest.LogCaptureFixture
) -> None:
    script = {"a": ["leaning 1.0"], "b": ["ok 2.0"], "c": ["ok 3.0"]}
    result, _, judge = play(script, verifies, batch=3)
    assert result.best.source == "ok 2.0" and judge.imported == ["leaning 1.0", "ok 2.0"]
    assert [node.outcome.status for node in load(result.run_dir, strategy=FakeStrategy()).tree] == [
        "ok",
        "rejected",
        "ok",
        "ok",
    ]
    assert "is not handed out: no tl" in caplog.text
    alone, _, _ = play({"a": ["leaning 1.0"]}, verifies)
    assert alone.best.node_id == 0 and alone.tree[1].outcome.status == "rejected"


@pytest.mark.parametrize("status", ["timeout", "out_of_memory", "rejected"])
def test_some_failures_are_let_go(status: str) -> None:
    result, coder, _ = play({"tile": [f"{status} a", "ok 1.0"]})
    assert len(coder.requests) == 1
    assert result.tree[1].outcome.status == status


def test_an_edit_that_is_given_again_ends_the_trial() -> None:
    result, coder, judge = play({"tile": ["crash a", "crash a"]})
    assert len(coder.requests) == 2
    assert [request.source for request in judge.asked] == ["root\n", "crash a"]
    assert result.tree[1].outcome.status == "crash"


def test_a_coder_without_an_edit_ends_the_trial_without_a_node() -> None:
    result, _, _ = play({"tile": ["refuse"], "fuse": ["ok 4.0"]})
    refused, made = ends(result)
    assert (refused.end.kind, refused.end.child_id, refused.end.evaluations) == ("coder_error", None, 0)
    assert refused.end.reason == "no such loop: choose another region"
    assert (made.end.kind, made.end.child_id) == ("node", 1)
    assert result.evaluations == 2


def test_a_coder_without_a_repair_leaves_the_failed_version() -> None:
    result, _, _ = play({"tile": ["crash a", "refuse"]})
    assert result.tree[1].source == "crash a"
    assert [row.end.kind for row in ends(result)] == ["node"]


def test_a_source_that_is_in_the_tree_costs_no_evaluation() -> None:
    result, _, judge = play({"tile": ["ok 4.0"], "fuse": ["ok 4.0  \n"], "split": ["root"]})
    assert [row.end.kind for row in ends(result)] == ["node", "duplicate", "duplicate"]
    assert [row.end.child_id for row in ends(result)] == [1, 1, 0]
    assert (len(result.tree), result.evaluations) == (2, 2)
    assert len([request for request in judge.asked if request.depth == "screen"]) == 2


def test_two_trials_of_a_batch_with_one_source_evaluate_it_once() -> None:
    result, _, judge = play({"tile": ["ok 4.0"], "fuse": ["ok 4.0"]}, batch=2)
    assert [row.end.kind for row in ends(result)] == ["node", "duplicate"]
    assert [row.end.evaluations for row in ends(result)] == [1, 0]
    assert [request.depth for request in judge.asked] == ["screen", "screen", "verify"]


def test_a_failed_attempt_that_another_trial_repeats_is_not_evaluated_again() -> None:
    result, _, judge = play({"tile": ["crash a", "ok 4.0"], "fuse": ["crash a", "ok 2.0"]})
    assert [request.source for request in judge.asked].count("crash a") == 1
    assert [row.end.evaluations for row in ends(result)] == [2, 1]
    assert (result.evaluations, result.best.speedup) == (4, 4.0)


def test_a_version_that_would_be_the_best_is_verified_first() -> None:
    result, _, judge = play({"tile": ["cheat 1.0"], "fuse": ["ok 4.0"], "split": ["ok 5.0"]})
    assert [(node.source, node.outcome.status) for node in result.tree][1:] == [
        ("cheat 1.0", "rejected"),
        ("ok 4.0", "ok"),
        ("ok 5.0", "ok"),
    ]
    assert result.tree[1].outcome.diagnosis == Diagnosis("verify", "StaleOutput", "not computed")
    assert [request.source for request in judge.asked if request.depth == "verify"] == ["cheat 1.0", "ok 4.0"]
    assert result.best.source == "ok 4.0"
    assert result.evaluations == 4, "verification is not counted"
    seeds = {request.depth: request.seed for request in judge.asked if request.source == "ok 4.0"}
    assert seeds["screen"] != seeds["verify"]


def test_of_a_batch_the_fastest_that_stands_is_verified_and_none_after_it() -> None:
    script = {"tile": ["ok 3.0"], "fuse": ["cheat 1.0"], "split": ["ok 2.0"], "pipeline": ["ok 2.00"]}
    result, _, judge = play(script, batch=4)
    verified = [request.source for request in judge.asked if request.depth == "verify"]
    assert verified == ["cheat 1.0", "ok 2.0"]
    assert [node.outcome.status for node in result.tree] == ["ok", "ok", "rejected", "ok", "ok"]
    assert result.best.source == "ok 2.0", "the earlier of two that are equally fast"


def test_what_is_slower_than_the_reference_when_verified_is_not_handed_back(tmp_path: Path) -> None:
    result, _, judge = play({"tile": ["busy 1.0"], "fuse": ["ok 7.0"]}, batch=2, out=tmp_path / "run")
    asked = [request for request in judge.asked if request.source == "busy 1.0" and request.depth == "verify"]
    assert len(asked) == len({request.seed for request in asked}) == 2, "once more, with other inputs"
    outcome, root = result.tree[1].outcome, result.tree.root.outcome
    diagnosis = outcome.diagnosis
    assert outcome.ok and diagnosis is not None and root.runtime_ms is not None
    assert outcome.runtime_ms == pytest.approx(root.runtime_ms * 2.5 / 2), "right, and as much slower than the root"
    assert (diagnosis.kind, diagnosis.message) == ("NotFaster", "when verified it took 2.5 ms, the reference 2 ms")
    assert result.best.source == "ok 7.0"
    again = load(tmp_path / "run", strategy=FakeStrategy())
    assert [node.outcome for node in again.tree] == [node.outcome for node in result.tree]
    assert again.best.source == "ok 7.0"
    slower = verified(Outcome("ok", 9.0), Outcome("ok", 8.0))
    assert slower.ok and slower.runtime_ms == 9.0 and is_not_faster(slower), "where it is not timed in turn"
    assert verified(Outcome("ok", 8.0), Outcome("ok", 8.0)).ok


def test_what_is_made_of_a_version_that_is_not_faster_may_be() -> None:
    """It was the only child: the search ended with it when it was rejected."""
    result, coder, _ = play({"tile": ["busy 1.0"]}, batch=1)
    assert result.best.source.strip() == "root"
    assert coder.failures == [0, 0], "both are asked for their actions"


def test_a_verification_on_a_busy_host_is_made_once_more() -> None:
    result, _, judge = play({"tile": ["noisy 1.0"]}, batch=1)
    assert [request.depth for request in judge.asked if request.source == "noisy 1.0"] == ["screen", "verify", "verify"]
    assert result.best.source == "noisy 1.0"
    play_again, _, judge = play({"tile": ["cheat 1.0"]}, batch=1)
    assert [request.depth for request in judge.asked if request.source == "cheat 1.0"] == ["screen", "verify"], "once"
    assert play_again.best.source.strip() == "root"


def test_an_evaluator_without_that_gate_is_not_asked_to_verify() -> None:
    evaluator = Counted(FakeEvaluator())
    assert fake(evaluator).best.speedup is not None
    assert set(evaluator.asked) == {"screen"}


def test_the_coder_learns_of_resource_failures_and_only_of_these() -> None:
    _, coder, _ = play(
        {"tile": ["crash a"], "fuse": ["build_error resources"], "split": ["ok 4.0"], "pipeline": ["ok 3.0"]}, repairs=0
    )
    # The root, then the two right versions; the failed ones have no legal actions.
    assert coder.failures == [0, 1, 1]


def test_a_failed_version_has_no_actions_and_the_floor_as_its_value() -> None:
    result = fake(FakeEvaluator(failing=0.5), budget=40, strategy="mcts")
    failed = [node for node in result.tree if not node.outcome.ok]
    assert len(failed) > 3
    for node in failed:
        assert result.record.legal[node.id] == ()
        assert result.annotations[node.id]["value"] == -4.0
        assert result.tree.children(node.id) == ()


def test_legal_actions_and_priors_are_recorded_at_every_node() -> None:
    result = fake(budget=Budget(30, depth=2))
    for node in result.tree:
        legal = result.record.legal[node.id]
        assert bool(legal) == (node.outcome.ok and result.tree.depth(node.id) < 2)
        if legal:
            assert legal[-1][0] == STOP
            assert sum(prior for _, prior in legal) == pytest.approx(1.0)


def test_a_policy_that_breaks_its_contract_is_named() -> None:
    class Short(FakePolicy):
        def prior(self, observation: Observation, actions: Sequence[Action]) -> list[float]:
            return [1.0]

    with pytest.raises(ConfigError, match=r"policy Short gave \[1\.0\] for 7 actions: it must give 7 probabilities"):
        fake(policy=Short())


# the run's folder and the result


def test_what_a_search_hands_back(tmp_path: Path) -> None:
    seen: list[Progress] = []
    result = fake(out=tmp_path / "run", progress=seen.append, budget=20, dumps=True)
    assert result.run_dir == tmp_path / "run"
    assert result.best.source == result.tree.best.source == (tmp_path / "run" / "best.py").read_text()
    assert result.best.speedup == pytest.approx(result.root.runtime_ms / result.best.runtime_ms)  # type: ignore[operator]
    assert (result.best.runtime_kind, result.root.speedup, result.root.node_id) == ("estimated", 1.0, 0)
    assert result.baselines == {"fake compiler": Outcome("ok", 4.0, runtime_kind="estimated")}
    assert result.tree.to_networkx().number_of_nodes() == len(result.tree)
    assert len(result.record.evaluations) == result.evaluations
    assert result.record.spent is not None and result.record.spent.usd > 0
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert {
        "config.yaml",
        "run.sqlite",
        "best.py",
        "nodes",
        "tree.json",
        "tree.graphml",
        "tree.html",
        "report.md",
    } <= names
    assert {"tree.png", "progress.png"} <= names
    assert not {name for name in names if name.startswith(".writing") or name.endswith((".new", "-wal"))}
    for node in result.tree:
        assert (tmp_path / "run" / "nodes" / f"{node.id}.py").read_text() == node.source
    assert seen[0].evaluations == 1 and seen[0].nodes == 1
    assert seen[-1].evaluations == result.evaluations and seen[-1].finished == result.finished
    assert seen[-1].speedup == result.best.speedup
    assert [each.evaluations for each in seen] == sorted(each.evaluations for each in seen)


def test_best_py_follows_the_best_version(tmp_path: Path) -> None:
    written: list[tuple[float | None, str]] = []

    def look(progress: Progress) -> None:
        written.append((progress.speedup, (tmp_path / "best.py").read_text()))

    tree = fake(out=tmp_path, budget=30, progress=look).tree
    assert len({text for _, text in written}) > 2
    for speedup, text in written:
        node = tree.find(text)
        assert node is not None and tree.speedup(node.id) == speedup


def test_config_yaml_says_what_ran(tmp_path: Path) -> None:
    from omegaconf import OmegaConf

    fake(out=tmp_path, strategy=Mcts(exploration=2.0), budget=Budget(9, depth=3), seed=11, batch=2)
    config: Any = OmegaConf.to_container(OmegaConf.load(tmp_path / "config.yaml"))
    assert config["strategy"] == {
        "name": "mcts",
        "settings": asdict(Mcts(exploration=2.0)),
    }
    assert config["coder"]["object"] == "mtmc.fakes.FakeCoder" and config["coder"]["settings"]["width"] == 6
    assert (config["seed"], config["batch"], config["repairs"], config["task"]) == (11, 2, 2, "fake")
    assert config["budget"] == asdict(Budget(9, depth=3))
    assert config["versions"]["python"] == sys.version.split()[0]
    assert set(config["versions"]) >= {"torch", "triton", "langgraph"}


def test_a_run_nobody_gave_a_folder_can_be_saved(tmp_path: Path) -> None:
    result = fake(budget=15)
    assert result.save(tmp_path / "kept") == tmp_path / "kept"
    kept = load(tmp_path / "kept", strategy=Mcts())
    assert canonical_json(kept) == canonical_json(result)
    assert kept.finished == "15 evaluations are spent"
    with pytest.raises(RunError, match="already used"):
        result.save(tmp_path / "kept")


def test_a_temporary_folder_goes_with_its_result() -> None:
    result = fake(budget=3)
    folder = result.run_dir
    assert folder.exists()
    del result
    assert not folder.exists()


def test_the_order_of_evaluations_counts_repairs_for_the_node_they_started_from() -> None:
    result, _, _ = play({"tile": ["crash a", "ok 4.0"], "fuse": ["refuse"], "split": ["ok 2.0"]})
    store = Store.read(result.run_dir)
    assert evaluation_order(store) == [0, 0, 1, 2]
    store.close()


# what goes wrong


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"strategy": "mtcs"},
            r"there is no strategy 'mtcs': did you mean 'mcts'\? use one of mcts, greedy, best_of_n",
        ),
        ({"strategy": "zzz"}, r"there is no strategy 'zzz': use one of"),
        ({"strategy": Mcts}, "is no strategy: give a name"),
        (
            {"evaluator": object()},
            r"is no evaluator: give a name .*base mtmc\.protocols\.Evaluator; it lacks hardware, ver",
        ),
        ({"budget": -1}, r"budget\.evaluations cannot be -1"),
        ({"batch": 0}, "batch cannot be 0"),
    ],
)
def test_bad_input_is_named_and_nothing_is_written(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        fake(out=tmp_path / "run", **arguments)
    assert not (tmp_path / "run").exists()


def test_an_unknown_task_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="softmaxx"):
        search("softmaxx", policy=FakePolicy(), coder=FakeCoder(), evaluator=FakeEvaluator(), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_used_folder_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    fake(out=tmp_path, budget=3)
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    with pytest.raises(RunError, match="already used"):
        fake(out=tmp_path, budget=3)
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


class Uncapturable(FakeCoder):
    def root(self, task: Task) -> Edit:
        raise TaskError("op aten.nonzero, line 12, does not export: remove it")


class Broken(FakeEvaluator):
    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
        return [Outcome("crash", diagnosis=Diagnosis("check", "ZeroDivisionError", "division by zero"))]


class Missing(FakeEvaluator):
    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
        raise EvaluatorError("no GPU: use evaluator=lab")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"coder": Uncapturable()}, TaskError, "op aten.nonzero, line 12"),
        ({"evaluator": Broken()}, TaskError, "fails its own evaluation: crash: ZeroDivisionError: division by zero"),
        ({"evaluator": Missing()}, EvaluatorError, "no GPU"),
    ],
)
def test_a_search_that_cannot_start_leaves_nothing(
    tmp_path: Path, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "notes.txt").write_text("mine")
    for folder in ("there", "new"):
        with pytest.raises(error, match=message):
            fake(out=tmp_path / folder, **arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["notes.txt"]


def test_an_evaluator_made_from_a_name_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    from mtmc.search import components

    closed = []

    class Closing(FakeEvaluator):
        def close(self) -> None:
            closed.append(self)

    registries = {"evaluator": {"closing": Closing}, "strategy": STRATEGIES}
    monkeypatch.setattr(components, "registry", lambda kind: registries.get(kind, {}))
    fake(evaluator="closing", budget=2)
    assert len(closed) == 1
    given = Closing()
    fake(evaluator=given, budget=2)
    assert closed[1:] == []


# the state machine


def test_the_machine_is_the_one_that_the_design_draws() -> None:
    from mtmc.search.graph import Leg, run_graph, trial_graph

    run: Any = None
    drawn = run_graph(run, Leg(), None, None).get_graph()
    edges = {(edge.source, edge.target) for edge in drawn.edges}
    assert edges == {
        ("__start__", "prepare"),
        ("prepare", "grow"),
        ("grow", "finish"),
        ("grow", "__end__"),
        ("finish", "__end__"),
    }
    drawn = trial_graph(lambda: run).get_graph()
    assert {(edge.source, edge.target) for edge in drawn.edges} == {
        ("__start__", "code"),
        ("code", "evaluate"),
        ("code", "__end__"),
        ("evaluate", "repair"),
        ("evaluate", "__end__"),
        ("repair", "evaluate"),
        ("repair", "__end__"),
        ("evaluate", "other"),
        ("other", "evaluate"),
        ("other", "repair"),
        ("other", "__end__"),
        ("evaluate", "refine"),
        ("refine", "evaluate"),
        ("refine", "__end__"),
    }


@pytest.mark.parametrize("durability", ["exit", "async"])
def test_checkpoints_hold_ids_and_counters_and_do_not_pile_up(
    monkeypatch: pytest.MonkeyPatch, durability: str, tmp_path: Path
) -> None:
    from langgraph.checkpoint.sqlite import SqliteSaver

    from mtmc.search import graph

    monkeypatch.setattr(graph, "LEG_ROUNDS", 5)
    monkeypatch.setattr(graph, "DURABILITY", durability)
    sizes = []
    for evaluations in (30, 120):
        folder = tmp_path / str(evaluations)
        result = fake(out=folder, budget=evaluations, batch=2)
        connection = sqlite3.connect(folder / "run.sqlite", check_same_thread=False)
        found = SqliteSaver(connection).get_tuple({"configurable": {"thread_id": graph.THREAD}})
        assert found is not None
        values = found.checkpoint["channel_values"]
        assert (values["evaluations"], values["nodes"], values["best"]) == (
            result.evaluations,
            len(result.tree),
            result.tree.best.id,
        )
        assert values["finished"] == result.finished and values["trials"] == []
        assert all(isinstance(value, (int, str, list, type(None))) for value in values.values())
        [(rows, size)] = connection.execute("SELECT count(*), sum(length(checkpoint)) FROM checkpoints").fetchall()
        assert rows == 1
        sizes.append(size)
        connection.close()
    assert sizes[1] <= 1.1 * sizes[0]


def test_a_search_longer_than_langgraphs_limit_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    from mtmc.search import graph

    monkeypatch.setattr(graph, "LEG_ROUNDS", 10)
    assert fake(budget=100, strategy=FakeStrategy()).evaluations == 100


def test_importing_the_search_is_light() -> None:
    code = """
import sys
before = set(sys.modules)
import mtmc.search, mtmc.search.graph, mtmc.search.strategies, mtmc.search.canonical, mtmc.fakes, mtmc.store
heavy = {"torch", "triton", "langgraph", "litellm", "matplotlib", "jinja2", "omegaconf", "networkx", "hydra", "numpy"}
print(sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def write_golden() -> None:
    """Write the golden trees anew."""
    GOLDEN.mkdir(exist_ok=True)
    for name in (*STRATEGIES, "fake"):
        strategy = FakeStrategy() if name == "fake" else name
        result = fake(FakeEvaluator(rejecting=0.3), strategy=strategy, budget=24, seed=5, batch=2)
        (GOLDEN / f"{name}.json").write_text(canonical_json(result))


if __name__ == "__main__":
    write_golden()
