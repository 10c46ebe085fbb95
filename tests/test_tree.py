from __future__ import annotations

import pytest

from mtmc.action import STOP, Action, Region, action_from_json, action_to_json
from mtmc.errors import RunError
from mtmc.outcome import STATUSES, Cost, Diagnosis, Outcome, outcome_from_json, outcome_to_json, speedup
from mtmc.tree import NO_PARENT, ROOT_ID, KernelNode, Tree, source_hash

ACTION = Action(
    "tile", Region("linear", 3, 9), (("block_m", 64), ("fast", True)), "retile the linear kernel, lines 3-9"
)


def node(node_id: int, parent: int, runtime: float | None, source: str = "") -> KernelNode:
    outcome = Outcome("ok", runtime) if runtime else Outcome("crash", diagnosis=Diagnosis("check", "SIGSEGV", "gone"))
    return KernelNode(node_id, parent, None if parent == NO_PARENT else ACTION, source or f"v{node_id}", None, outcome)


def small_tree() -> Tree:
    tree = Tree("softmax")
    for each in (node(0, NO_PARENT, 4.0), node(1, 0, 2.0), node(2, 0, None), node(3, 1, 1.0), node(4, 1, 1.0)):
        tree.add(each)
    return tree


def test_best_is_the_earliest_of_the_fastest() -> None:
    tree = small_tree()
    assert tree.best.id == 3
    assert tree.speedup(3) == 4.0
    assert tree.speedup(2) is None


def test_a_slower_version_never_replaces_the_root() -> None:
    tree = Tree("softmax")
    tree.add(node(0, NO_PARENT, 1.0))
    tree.add(node(1, 0, 1.0))
    tree.add(node(2, 0, 1.5))
    assert tree.best.id == ROOT_ID


def test_paths_children_and_look_up() -> None:
    tree = small_tree()
    assert [each.id for each in tree.path(4)] == [0, 1, 4]
    assert tree.depth(4) == 2
    assert [each.id for each in tree.children(0)] == [1, 2]
    assert tree.find("v3  \n") is tree[3]
    assert tree.find("nothing like it") is None


def test_bad_nodes_are_refused_by_name() -> None:
    tree = small_tree()
    with pytest.raises(RunError, match="next id is 5"):
        tree.add(node(7, 0, 1.0))
    with pytest.raises(RunError, match="parent 9"):
        tree.add(node(5, 9, 1.0))
    with pytest.raises(RunError, match="no node 99"):
        tree[99]


def test_source_hash_ignores_trailing_space_only() -> None:
    assert source_hash("a = 1  \nb\n") == source_hash("a = 1\nb")
    assert source_hash("a = 1") != source_hash("a  = 1")


def test_actions_round_trip_and_their_keys_ignore_wording_and_lines() -> None:
    assert action_from_json(action_to_json(ACTION)) == ACTION
    assert action_from_json(action_to_json(STOP)) == STOP
    moved = Action(ACTION.kind, Region("linear", 30, 40), ACTION.params, "another sentence")
    assert moved.key == ACTION.key
    assert ACTION.param("block_m") == 64


@pytest.mark.parametrize("status", STATUSES)
def test_outcomes_round_trip(status: str) -> None:
    outcome = Outcome(
        status,  # type: ignore[arg-type]
        runtime_ms=1.5 if status == "ok" else None,
        metrics={"flops": 2.0, "bytes_moved": 1.0},
        diagnosis=None if status == "ok" else Diagnosis("build", "CompilationError", "no", 7, "7 | x"),
    )
    assert outcome_from_json(outcome_to_json(outcome)) == outcome
    assert list(outcome_to_json(outcome)["metrics"]) == ["bytes_moved", "flops"]


def test_costs_add_up_and_speedups_need_two_runtimes() -> None:
    assert Cost(1.0, 0.5, 10, 2, 1) + Cost(2.0, 0.25, 5, 1, 1) == Cost(3.0, 0.75, 15, 3, 2)
    assert speedup(Outcome("ok", 1.0), Outcome("ok", 3.0)) == 3.0
    assert speedup(Outcome("crash"), Outcome("ok", 3.0)) is None
