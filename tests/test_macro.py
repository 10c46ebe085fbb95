from __future__ import annotations

import math

import pytest

from mtmc.action import STOP, Action, Region
from mtmc.agents.macro import POLICIES, Heuristic, Uniform
from mtmc.errors import ConfigError
from mtmc.outcome import Outcome
from mtmc.protocols import Observation, Step
from mtmc.task import Task, Variant

TASK = Task("t", "", Variant("full"), Variant("small"))


def action(kind: str, region: str = "linear", **params: object) -> Action:
    return Action(kind, Region(region, 1, 2), tuple(sorted(params.items())), kind)  # type: ignore[arg-type]


def seen(roofline: float = 0.2, history: tuple[Step, ...] = (), **metrics: float) -> Observation:
    return Observation(TASK, "", None, Outcome("ok", 1.0, metrics={"roofline": roofline, **metrics}), history, "H100")


ACTIONS = [
    action("fuse", "linear and gelu"),
    action("lower"),
    action("precision", precision="tf32x3"),
    action("precision", precision="ieee"),
    action("tile", block_m=128, block_n=128, block_k=32),
    action("tile", block_m=16, block_n=64, block_k=64),
    action("split", split_k=4),
    STOP,
]


@pytest.mark.parametrize("name", [name for name in POLICIES if not hasattr(POLICIES[name], "asks_model")])
def test_priors_are_probabilities_in_order(name: str) -> None:
    priors = POLICIES[name]().prior(seen(), ACTIONS)
    assert len(priors) == len(ACTIONS)
    assert all(prior > 0 for prior in priors)
    assert math.isclose(sum(priors), 1.0)
    assert POLICIES[name]().prior(seen(), ACTIONS) == priors


def test_uniform_by_hand() -> None:
    assert Uniform().prior(seen(), ACTIONS) == [1 / 8] * 8


def test_the_expert_fuses_before_it_tiles_and_never_takes_plain_fp32_first() -> None:
    fuse, lower, three, plain, good_tile, odd_tile, split, stop = Heuristic().prior(seen(), ACTIONS)
    assert fuse > lower > stop
    assert three > plain
    assert good_tile > odd_tile
    assert split < good_tile


def test_stopping_is_best_near_the_roofline() -> None:
    priors = Heuristic().prior(seen(roofline=0.95), ACTIONS)
    assert max(range(len(priors)), key=priors.__getitem__) == len(priors) - 1


def test_splitting_pays_only_with_few_programs() -> None:
    few = Heuristic().prior(seen(programs=16), ACTIONS)[6]
    many = Heuristic().prior(seen(programs=5000), ACTIONS)[6]
    assert few > 5 * many


def test_a_step_that_was_taken_is_not_taken_again_soon() -> None:
    step = Step(ACTIONS[4], "", Outcome("ok", 1.0), 1.0)
    assert Heuristic().prior(seen(history=(step,)), ACTIONS)[4] < Heuristic().prior(seen(), ACTIONS)[4]


def test_temperature_flattens_and_must_be_positive() -> None:
    sharp, flat = Heuristic().prior(seen(), ACTIONS), Heuristic(temperature=10).prior(seen(), ACTIONS)
    assert max(flat) < max(sharp)
    with pytest.raises(ConfigError, match="temperature is 0"):
        Heuristic(temperature=0)
