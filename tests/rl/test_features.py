"""Features of versions and actions: what an edit of the plan changes, by name, from the plans before and after it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mtmc.agents.policies.learned.edits import children_of, places
from mtmc.agents.policies.learned.features import action_features, observation_features
from mtmc.agents.policies.learned.graphs import GraphFacts, graph_from_json, with_rules
from mtmc.agents.policies.learned.schedules import settings_features
from mtmc.agents.policies.learned.vectors import matrix, names_in
from mtmc.optimizations import KINDS
from mtmc.optimizations.version import Version
from mtmc.outcome import Outcome
from mtmc.protocols import Observation
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import Plan, Stage, root_plan
from mtmc.task import Task, load_task
from tests.rewrite.stepping import actions_on, after, child_of, version

SOURCE = """import torch
from torch import nn
rows, width = 2048, 1024
VARIANTS = {"small": {"rows": 8}, "odd1": {"rows": 5, "width": 24}}
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
            x = torch.sigmoid(x) * x
        return x.transpose(0, 1).transpose(0, 1).softmax(1)
def get_inputs():
    return [torch.randn(rows, width)]
def get_init_inputs():
    return [width]
"""
US = 8 * 2**20 / 3350 / 1e3
"""Microseconds that an H100 takes for 8 MiB, a tensor of the task, at its peak bandwidth."""


@pytest.fixture(scope="module")
def task() -> Task:
    return load_task(SOURCE)


@pytest.fixture(scope="module")
def root(task: Task) -> Version:
    return version(task, root_plan(export_graph(task)))


def seen(version_: Version) -> Observation:
    outcome = Outcome("ok", 0.5, runtime_kind="estimated")
    return Observation(version_.task, "", version_.plan.to_json(), outcome, (), "H100")


def facts_of(version_: Version, *more: tuple[str, ...]) -> GraphFacts:
    """As they are recorded with a tree."""
    return graph_from_json(with_rules(export_graph(version_.task), [version_.plan.algebra, *more]).to_json())


def told(version_: Version, beginning: str) -> dict[str, float]:
    """The features of the action whose sentence begins so."""
    actions = actions_on(version_)
    at = next(at for at, action in enumerate(actions) if action.sentence.startswith(beginning))
    return action_features(seen(version_), actions)[at]


def test_a_fusion_saves_launches_and_what_its_stages_hand_on(root: Version) -> None:
    """sigmoid and mul, in both layers: what the sigmoid writes is written and read no more, and so is the product's result
    by one of two. Each is 8 MiB."""
    found = told(root, "fuse sigmoid and mul,")
    assert found["kind:fuse"] == 1.0 and found["first:torch"] == found["second:torch"] == found["to:pointwise"] == 1.0
    assert found["times"] == 0.5 and found["parts"] == pytest.approx(0.5 * 1.585, rel=1e-3)  # log2 of 2, of 3
    assert found["kernels_saved"] == pytest.approx(1.585 / 2, rel=1e-3)
    saved_us = 2 ** (4 * found["saved"]) - 1
    assert saved_us == pytest.approx(2 * 3 * US, rel=0.01)
    everything = told(root, "fuse all neighbours")
    assert everything["kernels_saved"] == pytest.approx(2.3219 / 2, rel=1e-3)  # log2 of 1 + 4
    assert everything["saved"] > found["saved"] and everything["to:matmul"] == 1.0


def test_what_is_done_everywhere_is_told_by_its_places(root: Version) -> None:
    action, fused = after(root, "fuse all neighbours")
    (first, second) = places(root.plan, fused.plan)
    assert [stage.name for stage in first.before] == ["linear", "sigmoid", "mul"]
    assert [stage.name for stage in second.before] == ["linear_1", "sigmoid_1", "mul_1"]
    assert first.after == (fused.plan.stages[0],) and action.param("groups") == 2
    assert places(root.plan, root.plan) == []
    a, b, c = Stage(("a",)), Stage(("b",)), Stage(("c",))
    (other,) = places(Plan((a, b)), Plan((a, c)))  # ops that algebra replaced
    assert (other.before, other.after) == ((b,), (c,))


def test_nothing_is_read_from_the_words_of_an_action(root: Version) -> None:
    """Features hang on the plans: with another region, other parameters and another sentence they are the same."""
    actions = actions_on(root)
    known = children_of(seen(root))
    plans = {action.key: known(action) for action in actions}
    renamed = [
        replace(action, region=replace(action.region, name=f"r{at}"), params=(), sentence="")
        for at, action in enumerate(actions)
    ]
    by_new_key = {new.key: plans[old.key] for new, old in zip(renamed, actions, strict=True)}
    before = action_features(seen(root), actions)
    for row, again in zip(before, action_features(seen(root), renamed, None, lambda a: by_new_key[a.key]), strict=True):
        assert {**row, "heuristic": 0.0} == {**again, "heuristic": 0.0}


def test_every_kind_that_is_legal_is_told_and_all_actions_differ(root: Version) -> None:
    fused = after(root, "fuse all neighbours")[1]
    lowered = after(after(fused, "lower softmax")[1], "compute")[1]
    kinds = set[str]()
    for each in (root, fused, lowered, after(root, "lower sigmoid")[1]):
        actions = actions_on(each)
        rows = action_features(seen(each), actions)
        numbers = matrix(rows, names_in(rows))
        assert abs(numbers).max() < 16 and len({tuple(row) for row in numbers.tolist()}) == len(actions)
        kinds |= {name for row in rows for name in row if name.startswith("kind:")}
        for name in {setting for stage in each.kernels() for setting, _ in stage.schedule}:
            assert any(f":{name}" in told_name for row in rows for told_name in row), name
    assert kinds <= {f"kind:{kind}" for kind in KINDS} and len(kinds) > 8


def test_without_a_plan_after_it_only_the_kind_and_what_was_done_is_told(root: Version) -> None:
    actions = actions_on(root)
    (row,) = action_features(seen(root), actions, None, lambda action: None, only=[0])
    assert set(row) == {"kind:fuse", "repeats", "kind_done", "region_done", "kind_was_last", "heuristic"}
    assert "edit_known" in told(root, "fuse all")


def test_settings_by_hand() -> None:
    old = Stage(("a",), "matmul", (("block_m", 63), ("right", "turned")))
    new = old.scheduled({"block_m": 127, "operands": "descriptors", "fancy": 3})
    assert settings_features(old, new) == {
        **{"set:block_m": 1.75, "change:block_m": 0.5, "with:right=turned": 1.0, "with:operands=descriptors": 1.0},
        **{"to:operands=descriptors": 1.0, "settings_changed": 0.75, "set:fancy": 0.5, "change:fancy": 1.0},
    }
    assert settings_features(old, old) == {"set:block_m": 1.5, "with:right=turned": 1.0, "settings_changed": 0.0}


def test_vectors_go_by_name() -> None:
    rows = [{"a": 1.0, "new": 5.0}, {"b": 2.0}]
    assert names_in(rows) == ("a", "b", "new")
    assert matrix(rows, ("b", "gone", "a")).tolist() == [[0.0, 0.0, 1.0], [2.0, 0.0, 0.0]]


def test_a_simplified_version_is_told_by_its_own_graph(root: Version) -> None:
    action, simpler = after(root, "rewrite by algebra")
    assert simpler.plan.algebra == (action.param("rules"),)
    actions = actions_on(simpler)
    further = [(*simpler.plan.algebra, str(each.param("rules"))) for each in actions if each.kind == "algebra"]
    recorded, observation = facts_of(simpler, *further), seen(simpler)
    assert recorded.after_rules(simpler.plan.algebra).ops != recorded.ops
    assert observation_features(observation) == observation_features(observation, recorded)
    assert action_features(observation, actions) == action_features(observation, actions, recorded)
    assert observation_features(observation, recorded)["plan_algebra"] == 1.0
    plain = replace(recorded, after={})  # of a recording without it, the exported graph is all that is known
    assert observation_features(observation, plain)["plan_algebra"] == 1.0
    (place,) = places(root.plan, child_of(root, action))
    assert place.before and told(root, "rewrite by algebra")["edit_known"] == 1.0
