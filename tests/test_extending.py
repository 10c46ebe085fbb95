"""To add one is what ARCHITECTURE says: a file and a line in a registry, and a search runs with it.

    a strategy             fastest_first.py      STRATEGIES
    a policy               shortest.py        POLICIES
    an evaluator           brevity.py         EVALUATORS
    an elementwise op      -                  a row in POINTWISE
    an optimization kind   one file           KINDS

Each test here adds one by that line alone, through names that a file of one's own could import as well.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path

import pytest

from mtmc.action import STOP, Action
from mtmc.agents.policies import POLICIES
from mtmc.cli import main
from mtmc.evaluate import EVALUATORS, LabSettings
from mtmc.optimizations import KINDS, Version
from mtmc.optimizations.schedule_change import Choice
from mtmc.optimizations.seen import moves_on
from mtmc.protocols import Observation, Policy
from mtmc.rewrite.operators.elementwise import POINTWISE, Row
from mtmc.rewrite.plan import Stage
from mtmc.search import load, resume, search
from mtmc.search.strategies import STRATEGIES
from mtmc.task import load_task
from tests import test_resume, test_strategies
from tests.extending import fastest_first
from tests.extending.brevity import BrevitySettings
from tests.extending.fastest_first import FastestFirst
from tests.extending.shortest import Shortest
from tests.extending.trim import Trim

LINES_OF_A_STRATEGY = 60

CONTRACT = (
    test_strategies.test_telling_twice_changes_nothing,
    test_strategies.test_adding_a_node_twice_changes_nothing,
    test_strategies.test_a_trial_that_was_never_asked_cannot_end,
    test_strategies.test_asking_before_the_root_is_known_is_an_error,
    test_strategies.test_a_root_without_actions_leaves_nothing_to_try,
    test_strategies.test_a_root_with_only_stop_leaves_nothing_to_try,
    test_strategies.test_every_node_has_notes_of_plain_numbers,
    test_strategies.test_a_strategy_keeps_nothing_to_itself,
    test_strategies.test_the_search_ends_by_itself,
)
"""What a strategy's line in `STRATEGIES` has tested, see `tests/test_strategies.py`."""


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """One line each, and an empty working folder."""
    monkeypatch.setitem(STRATEGIES, "fastest_first", FastestFirst)
    monkeypatch.setitem(POLICIES, "shortest", Shortest)
    monkeypatch.setitem(EVALUATORS, "brevity", BrevitySettings)
    monkeypatch.chdir(tmp_path)
    return tmp_path


# --- a strategy, a policy, an evaluator --------------------------------------------------------------------------------


def test_a_strategy_is_one_short_file() -> None:
    assert len(inspect.getsource(fastest_first).splitlines()) <= LINES_OF_A_STRATEGY


@pytest.mark.parametrize("deterministic", [True, False])
def test_a_strategy_keeps_the_contract_without_a_line_of_its_own(deterministic: bool) -> None:
    for check in CONTRACT:
        check(FastestFirst())
    test_strategies.test_the_same_seed_asks_for_the_same_trials(FastestFirst(), 5, deterministic)
    test_strategies.test_the_state_is_rebuilt_by_the_same_calls(FastestFirst(), deterministic)


def test_a_run_of_a_strategy_that_died_anywhere_goes_on(added: Path) -> None:
    test_resume.test_a_run_that_died_anywhere_goes_on_to_the_same_tree(added, "fastest_first", 4)


def test_a_strategy_tries_what_it_says() -> None:
    strategy = FastestFirst(width=2)
    state = strategy.add_node(strategy.start(0), 0, -1, [0.2, 0.5, 0.3], 0.0, None)
    asked = []
    for node_id, value in enumerate([-1.0, 0.5, 0.25, 0.5], 1):
        [trial], state = strategy.ask(state, 1)
        asked.append((trial.node_id, trial.action_index))
        state = strategy.add_node(state, node_id, trial.node_id, [0.9, 0.1], value, None)
        state = strategy.tell(state, trial.id, node_id, value)
    # The root is better than node 1, so it is gone on from until its width is reached; then node 2, the best, and node 4
    # only once that is used up, for of equals the first one counts.
    assert asked == [(0, 1), (0, 2), (2, 0), (2, 1)]
    assert [trial.node_id for trial in strategy.ask(state, 9)[0]] == [4, 4, 3, 3, 1, 1]


def test_all_of_them_from_the_command_line(added: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = ("strategy=fastest_first", "policy=shortest", "evaluator=brevity")
    settings = ("strategy.width=3", "policy.power=2.0", "evaluator.ms=0.25")
    assert main(["search", "task=bias_gelu", *parts, *settings, "budget.evaluations=6", "out=run"]) == 0
    result = load("run")
    assert result.evaluations == 6 and result.best.runtime_kind == "estimated"
    recorded = result.record.settings
    assert recorded["strategy"] == {"name": "fastest_first", "settings": {"width": 3}}
    assert recorded["policy"] == {"name": "shortest", "settings": {"power": 2.0}}
    assert recorded["evaluator"] == {"name": "brevity", "settings": {"ms": 0.25}}
    assert resume("run", budget=9).evaluations == 9, "its parts are made again from what is recorded"
    capsys.readouterr()
    assert main(["search", "task=bias_gelu", *parts, "strategy.widht=3"]) == 2
    assert "did you mean strategy.width?" in capsys.readouterr().err
    assert main(["search", "task=bias_gelu", *parts, "strategy.width=0"]) == 2
    assert "fastest_first.width cannot be 0: use 1 or more" in capsys.readouterr().err


# --- an elementwise op -------------------------------------------------------------------------------------------------

HYPOT = """
import torch

rows = 4096

VARIANTS = {"small": {"rows": 40}, "odd1": {"rows": 7}, "odd2": {"rows": 33}}


class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.hypot(x, y)


def get_inputs():
    return [torch.randn(rows, 512), torch.randn(rows, 512)]


def get_init_inputs():
    return []
"""


def test_an_elementwise_op_is_a_row_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task, other = tmp_path / "hypot.py", tmp_path / "other.py"
    task.write_text(HYPOT)
    other.write_text(HYPOT.replace("4096", "4032"))  # what is legal on a plan is remembered
    without = search(other, strategy="greedy", policy="uniform", evaluator=BrevitySettings(), budget=3)
    assert len(without.tree) == 1, "no kernel is known for it, so it stays a torch call"
    monkeypatch.setitem(POINTWISE, "aten.hypot.default", Row("tl.sqrt({0} * {0} + {1} * {1})", flops=4))
    result = search(task, strategy="greedy", policy="uniform", evaluator=LabSettings(workers=1), budget=2)
    assert [node.outcome.status for node in result.tree] == ["ok", "ok"], result.tree[1].outcome.diagnosis
    assert "tl.sqrt(" in result.tree[1].source and result.tree[1].outcome.metrics["kernels"] == 1


# --- an optimization kind ----------------------------------------------------------------------------------------------


class TrimFirst(Policy):
    """The new kind above all, a kernel to have it done to next."""

    def prior(self, observation: Observation, actions: Sequence[Action]) -> list[float]:
        weights = [{"trim": 100.0, "fuse": 10.0}.get(action.kind, 1.0) for action in actions]
        return [weight / sum(weights) for weight in weights]


def test_an_optimization_kind_is_one_file_and_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "trim", Trim())
    found = search("bias_gelu", strategy="greedy", policy=TrimFirst(), evaluator=LabSettings(workers=1), budget=3)
    trimmed = found.tree[2]
    assert trimmed.action is not None and trimmed.action.kind == "trim"
    assert trimmed.outcome.ok and "num_warps=1" in trimmed.source, trimmed.outcome.diagnosis
    assert all(legal[-1][0] == STOP for legal in found.record.legal.values() if legal), "stop stays last"


@pytest.mark.parametrize("policy", ["compact", "heuristic"])
def test_policies_weigh_a_kind_that_they_have_never_seen(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No weight knows the kind, and no search is stopped by it: what the plan's edit does is told all the same."""
    monkeypatch.setitem(KINDS, "trim", Trim())
    found = search("bias_gelu", policy=policy, evaluator=BrevitySettings(), budget=6)
    priors = {
        action.kind: prior for legal in found.record.legal.values() for action, prior in legal if action.kind == "trim"
    }
    assert len(found.tree) == 6 and priors and 0.0 < priors["trim"] < 1.0


def test_a_kind_weighs_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its place in the heuristic's prior is its own `weight`."""
    priors = []
    for weight in (0.5, 2.0):
        monkeypatch.setattr(Trim, "weight", weight)
        monkeypatch.setitem(KINDS, "trim", Trim())
        policy = POLICIES["heuristic"](action_statistics=0.0)
        found = search("bias_gelu", policy=policy, evaluator=BrevitySettings(), budget=4)
        legal = next(legal for legal in found.record.legal.values() if any(each.kind == "trim" for each, _ in legal))
        of = {action.kind: prior for action, prior in legal}
        priors.append(of["trim"] / of["stop"])
    assert priors[1] == pytest.approx(4 * priors[0])


def test_another_kind_of_the_same_name_takes_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is remembered of a version's moves was made by the kinds that were known then."""

    class Wider(Trim):
        def offer(self, version: Version, stage: Stage) -> list[tuple[Choice, str]]:
            return [({**choice, "num_warps": 2}, words) for choice, words in super().offer(version, stage)]

    monkeypatch.setitem(KINDS, "trim", Trim())
    found = search("bias_gelu", strategy="greedy", policy=TrimFirst(), evaluator=BrevitySettings(), budget=3)
    fused = found.tree[1]
    observation = Observation(load_task("bias_gelu"), fused.source, fused.plan, fused.outcome, (), "H100")
    warps = []
    for kind in (Trim(), Wider()):
        monkeypatch.setitem(KINDS, "trim", kind)
        (trim,) = (move for move in moves_on(observation).values() if move.action.kind == "trim")
        warps.append(trim.action.param("num_warps"))
    assert warps == [1, 2]
