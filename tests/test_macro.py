from __future__ import annotations

import math
from dataclasses import replace

import pytest

from mtmc.action import STOP, Action, Region
from mtmc.agents.policies import POLICIES, Heuristic, Uniform
from mtmc.agents.policies.mixing import statistics_logits
from mtmc.errors import ConfigError
from mtmc.outcome import Outcome
from mtmc.protocols import Gain, Observation, Step
from mtmc.search.action_statistics import ActionStatistics
from mtmc.task import Task, Variant
from mtmc.tree import NO_PARENT, KernelNode, Tree

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


@pytest.mark.parametrize("name", [name for name in POLICIES if name != "lm" and not POLICIES[name]().asks_model])
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


def test_a_graph_is_worth_trying_where_launches_are_a_good_part_of_the_time() -> None:
    """32 launches of 3.5 us are 0.11 ms: of a runtime of 0.3 ms a third, of one of 1 ms a ninth."""
    actions = [*ACTIONS, action("cuda_graph", "forward", launches=32), action("fuse", "all", saved=8)]
    short = replace(seen(), outcome=Outcome("ok", 0.3, metrics={"roofline": 0.2}))
    priors, long = Heuristic().prior(short, actions), Heuristic().prior(seen(), actions)
    assert long[-2] < 0.1 * priors[-2]
    assert priors[0] < priors[-2] < priors[-1]  # fusing whole groups goes first all the same


def test_a_graph_is_tried_first_where_the_device_waits_for_launches() -> None:
    actions = [*ACTIONS, action("cuda_graph", "forward", launches=5)]
    times = {"device_ms": 0.118, "host_ms": 0.21, "call_ms": 0.21}
    waits, nearly, busy = (
        Heuristic().prior(replace(seen(), outcome=Outcome("ok", 0.21, metrics={"roofline": 0.2, **found})), actions)
        for found in (times, {**times, "call_ms": 0.12}, {**times, "host_ms": 0.05, "call_ms": 0.12})
    )
    assert waits[-1] > nearly[-1] > 10 * busy[-1] and waits[-1] == max(waits)


def test_the_last_tiles_are_shared_where_they_leave_the_chip_half_empty() -> None:
    """144 programs on 132 SMs are 0.55 of two waves; 1300 are 0.98 of ten."""
    actions = [*ACTIONS, action("persist", persistent=0, stream_k=132)]
    uneven, even = (Heuristic().prior(seen(programs=count), actions)[-1] for count in (144, 1300))
    assert uneven > 5 * even


def test_a_step_that_was_taken_is_not_taken_again_soon() -> None:
    step = Step(ACTIONS[4], "", Outcome("ok", 1.0), 1.0)
    assert Heuristic().prior(seen(history=(step,)), ACTIONS)[4] < Heuristic().prior(seen(), ACTIONS)[4]


def test_temperature_flattens_and_must_be_positive() -> None:
    sharp, flat = Heuristic().prior(seen(), ACTIONS), Heuristic(temperature=10).prior(seen(), ACTIONS)
    assert max(flat) < max(sharp)
    with pytest.raises(ConfigError, match="temperature is 0"):
        Heuristic(temperature=0)


def test_what_an_action_has_gained_elsewhere_counts_by_hand() -> None:
    """Three tries that doubled the speed: 4 ln 2 * 1 * 3/4, a factor of 8; one failure (-2, clipped to -1): 1/4."""
    statistics = {ACTIONS[1].key: Gain(3, 1.0), ACTIONS[6].key: Gain(1, -2.0)}
    known = statistics_logits(replace(seen(), action_statistics=statistics), ACTIONS, 4.0)
    assert known == pytest.approx([0, math.log(8), 0, 0, 0, 0, -math.log(4), 0])
    before, after = (
        Heuristic().prior(seen(), ACTIONS),
        Heuristic().prior(replace(seen(), action_statistics=statistics), ACTIONS),
    )
    assert after[1] / after[0] == pytest.approx(8 * before[1] / before[0])
    assert Heuristic(action_statistics=0.0).prior(replace(seen(), action_statistics=statistics), ACTIONS) == before
    with pytest.raises(ConfigError, match="action_statistics cannot be -1"):
        Heuristic(action_statistics=-1)


def test_experience_is_the_mean_gain_over_the_parents_by_action() -> None:
    """0.5 ms after 1 ms and 0.125 after 0.5: log2 gains 1 and 2 of `fuse`; a crash of `lower` counts -2."""
    tree = Tree("t")
    tree.add(KernelNode(0, NO_PARENT, None, "root", None, Outcome("ok", 1.0), -1, 0))
    known = ActionStatistics(tree)
    found = (("fuse", 0, Outcome("ok", 0.5)), ("fuse", 1, Outcome("ok", 0.125)), ("lower", 0, Outcome("crash")))
    for number, (kind, parent, outcome) in enumerate(found, 1):
        tree.add(KernelNode(number, parent, action(kind), str(number), None, outcome, number, 0))
        known.note(tree, tree[number])
    assert known.gains == {action("fuse").key: Gain(2, 1.5), action("lower").key: Gain(1, -2.0)}
    assert ActionStatistics(tree).gains == known.gains
