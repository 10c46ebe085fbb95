"""Features of versions and actions: all kinds and settings that exist are told, groups and stages that are alike too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mtmc.agents.policies.learned import features
from mtmc.agents.policies.learned.features import ACTION_NAMES, OBSERVATION_NAMES, action_features, observation_features
from mtmc.agents.policies.learned.fit import SETTINGS, WORDS, settings_values
from mtmc.agents.policies.learned.forms import form
from mtmc.agents.policies.learned.graphs import GraphFacts, graph_from_json, with_simplified
from mtmc.agents.policies.learned.stages import stage_facts
from mtmc.agents.policies.learned.targets import Stages, Target
from mtmc.optimizations import KINDS, legal_actions
from mtmc.optimizations.version import Version
from mtmc.outcome import Outcome
from mtmc.protocols import Observation
from mtmc.rewrite.capture import capture
from mtmc.rewrite.plan import Stage, root_plan
from mtmc.task import Task, load_task
from tests.rewrite.stepping import after, version

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
MEBI = 2**20


@pytest.fixture(scope="module")
def task() -> Task:
    return load_task(SOURCE)


@pytest.fixture(scope="module")
def root(task: Task) -> Version:
    return version(task, root_plan(capture(task)))


def seen(version_: Version) -> Observation:
    outcome = Outcome("ok", 0.5, runtime_kind="estimated")
    return Observation(version_.task, "", version_.plan.to_json(), outcome, (), "H100")


def facts_of(version_: Version) -> GraphFacts:
    """As they are recorded with a tree."""
    return graph_from_json(with_simplified(capture(version_.task), [version_.plan.simplified]).to_json())


def stages_of(version_: Version) -> Stages:
    graph = facts_of(version_).simplified(version_.plan.simplified)
    stages = version_.plan.stages
    return Stages(graph, stages, [stage_facts(graph, stage.ops) for stage in stages])


def column(rows: np.ndarray, name: str) -> list[float]:
    return rows[:, ACTION_NAMES.index(name)].tolist()


def test_every_kind_has_a_number_of_its_own() -> None:
    assert set(features.KINDS) == set(KINDS)


def test_groups_say_what_they_save(root: Version) -> None:
    """Each product takes along what follows it; the softmax stays apart. A tensor is 8 MiB."""
    stages = stages_of(root)
    assert [stage.name for at, stage in enumerate(root.plan.stages) if not stages.is_free(at)] == [
        *("linear", "sigmoid", "mul", "linear_1", "sigmoid_1", "mul_1", "softmax")
    ]
    everything = next(action for action in legal_actions(root) if "all neighbours" in action.sentence)
    found = stages.target(everything)
    assert (found.times, found.kernels) == (2, 4)
    assert [root.plan.stages[at].name for at in found.places] == [
        "linear",
        "sigmoid",
        "mul",
        "linear_1",
        "sigmoid_1",
        "mul_1",
    ]
    assert found.bytes == 4 * 8 * MEBI  # what both products and both sigmoids write
    pair = next(action for action in legal_actions(root) if "fuse sigmoid and mul," in action.sentence)
    assert stages.target(pair) == Target((1, 2), times=2, kernels=2, bytes=8 * MEBI)


def test_one_group_is_what_lies_between_its_ends() -> None:
    text = SOURCE.replace("x = layer(x)", "x = torch.sin(x)").replace(".transpose(0, 1).transpose(0, 1)", "")
    made = version(task := load_task(text), root_plan(capture(load_task(text))))
    assert task.source == text
    action = next(action for action in legal_actions(made) if action.sentence.startswith("fuse the 7 calls"))
    found = stages_of(made).target(action)
    assert (found.places, found.times, found.kernels, found.bytes) == (tuple(range(7)), 1, 6, 6 * 8 * MEBI)


def test_stages_that_are_alike_are_those_the_rewriter_takes_together(root: Version) -> None:
    _, fused = after(root, "fuse all neighbours")
    for each in (root, fused):
        stages = stages_of(each)
        working = [at for at in range(len(stages.stages)) if not stages.is_free(at)]
        assert [stages.alike(at) for at in working] == [len(each.like(each.plan.stages[at])) for at in working]
    first, second = fused.plan.stages[0], fused.plan.stages[1]
    graph = facts_of(fused)
    assert form(graph, first) == form(graph, second)
    assert form(graph, first) != form(graph, second.scheduled({"num_warps": 16}))


def test_every_setting_that_is_offered_has_a_number(root: Version) -> None:
    """Of kernels of products, rows and elements: no setting is told by `settings_other` alone."""
    fused = after(root, "fuse all neighbours")[1]
    lowered = after(after(fused, "lower softmax")[1], "compute")[1]
    for each in (root, fused, lowered, after(root, "lower sigmoid")[1]):
        actions = legal_actions(each)
        rows = action_features(seen(each), actions, facts_of(each))
        assert np.isfinite(rows).all() and np.abs(rows).max() < 16
        assert max(column(rows, "settings_other")) == 0.0 and max(column(rows, "kind_other")) == 0.0
        assert len(np.unique(rows, axis=0)) == len(actions)
        unknown = {name for stage in each.kernels() for name, _ in stage.schedule}
        assert unknown <= {*SETTINGS, *(name for name, _ in WORDS)}


def test_settings_by_hand() -> None:
    old = Stage(("a",), "matmul", (("block_m", 63), ("right", "turned")))
    new = old.scheduled({"block_m": 127, "operands": "descriptors", "fancy": 3})
    values = dict(zip(features.SETTING_NAMES, settings_values(old, new), strict=True))
    assert {name: value for name, value in values.items() if value} == {
        **{"block_m_value": 1.75, "block_m_change": 0.5, "with_turned": 1.0, "with_descriptors": 1.0},
        **{"to_descriptors": 1.0, "settings_changed": 0.75, "settings_other": 1.0},
    }


def test_a_simplified_version_is_told_by_its_own_graph(root: Version) -> None:
    action, simpler = after(root, "simplify")
    assert simpler.plan.simplified == (action.param("rules"),)
    recorded, observation = facts_of(simpler), seen(simpler)
    assert recorded.simplified(simpler.plan.simplified).ops != recorded.ops
    actions = legal_actions(simpler)
    np.testing.assert_array_equal(observation_features(observation), observation_features(observation, recorded))
    np.testing.assert_array_equal(
        action_features(observation, actions), action_features(observation, actions, recorded)
    )
    names = dict(zip(OBSERVATION_NAMES, observation_features(observation, recorded), strict=True))
    assert names["plan_simplified"] == 1.0
    plain = replace(recorded, after={})  # of a recording without it, the captured graph is all that is known
    assert np.isfinite(observation_features(observation, plain)).all()
