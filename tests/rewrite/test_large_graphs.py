"""Networks of hundreds of steps: what the rewriter does grows with the network, not with its square, and nothing is left."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from benchmarks.large_graphs import DENSE, MODULE
from mtmc.hardware import hardware
from mtmc.optimizations import Version, legal_moves, merging
from mtmc.optimizations.version import MOST_OPERANDS
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.flow import Flow
from mtmc.rewrite.graph import Graph, Tensor
from mtmc.rewrite.plan import root_plan
from mtmc.rewrite.printing import print_stage
from mtmc.rewrite.size_terms import Terms
from mtmc.rewrite.sizes import Scope
from mtmc.task import task_from_source

STEPS = MODULE.replace("1024", "32").replace("128", "8")


def recurrent(steps: int) -> Version:
    """The root of a recurrence that is written out."""
    task = task_from_source(STEPS.replace("STEPS", str(steps)), "recurrence")
    return Version.of(task, root_plan(export_graph(task)), hardware("H100"))


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many kernels were tried, and how many stretches between products were gone through."""
    counts = [0, 0]
    merged, between = merging.merged, Flow.between

    def merge(*given: object) -> object:
        counts[0] += 1
        return merged(*given)  # type: ignore[arg-type]

    def go_through(*given: object) -> object:
        counts[1] += 1
        return between(*given)  # type: ignore[arg-type]

    monkeypatch.setattr("mtmc.optimizations.fuse.merged", merge)
    monkeypatch.setattr(Flow, "between", go_through)
    return counts


def test_twice_the_steps_are_twice_the_work(counted: list[int]) -> None:
    seen = []
    for steps in (12, 24):
        counted[:] = [0, 0]
        assert legal_moves(recurrent(steps))
        seen.append(tuple(counted))
    (few, short), (many, long) = seen
    assert short and long <= 2.5 * short
    pairs = 24 * 23 // 2 - 12 * 11 // 2  # those that read the same weights, and are small enough to be looked at at all
    assert many <= 2.5 * few + pairs


def test_what_joins_more_than_a_kernel_reads_stays_a_torch_call() -> None:
    version = recurrent(MOST_OPERANDS + 4)
    [joined] = [op.name for op in version.graph.ops if "stack" in op.target]
    assert version.as_kernel((joined,), {}) is None
    assert recurrent(8).as_kernel((joined,), {}) is not None


def test_a_thousand_tensors_of_two_shapes_give_the_sizes_of_two() -> None:
    shapes = [((64, 8), (32, 4)), ((48, 6), (5, 5))]
    tensors = [(f"self.weight_{at}", Tensor(shapes[at % 2], "float32", True)) for at in range(1000)]
    numbers = {f"self.width_{at}": (64, 8) for at in range(100)}
    few, all_of_them = Terms.distinct(tensors, numbers), Terms.of(tensors, numbers)
    assert len(list(few.quotients())) < 50 and len(all_of_them.simple) == 2100
    assert [text for text, _ in few.simple] == [
        *("self.weight_0.shape[0]", "self.weight_0.shape[1]", "self.weight_1.shape[0]", "self.weight_1.shape[1]")
    ]
    scope = Scope(tuple(tensors[:4]), numbers)
    first = dict[tuple[int, ...], str]()
    for text, size in Terms.of(tensors[:4], numbers).all():
        first.setdefault(size, text)
    # what is found is what looking at everything finds
    assert {size: scope.size(size) for size in first if len(set(size)) > 1} == {
        size: text for size, text in first.items() if len(set(size)) > 1
    }


def test_a_child_prints_what_its_parent_has_not() -> None:
    task = task_from_source(DENSE.replace("STEPS", "6"), "dense")
    root = Version.of(task, root_plan(export_graph(task)), hardware("H100"))
    lowered = root.made(next(move.child for move in legal_moves(root) if move.action.sentence.startswith("lower all")))
    print_stage.cache_clear()
    moves = legal_moves(lowered)
    all_stages = print_stage.cache_info().misses
    below = lowered.made(next(move.child for move in moves if move.stage is not None))
    assert len(legal_moves(below)) > 50
    assert print_stage.cache_info().misses - all_stages < 0.2 * all_stages


def test_a_graph_that_knows_more_of_its_values_is_the_same_in_all_else() -> None:
    graph = recurrent(4).graph
    weight, first = next(iter(graph.parameters)), graph.ops[0].outputs[0]
    wide = Tensor(((7, 5), (9, 3)), "float32", True)
    changes = ({first: wide}, {weight: wide}, {"x_turned": wide})
    for known, expected in ((graph.knowing(each), replace(graph, values={**graph.values, **each})) for each in changes):
        for part in fields(Graph):
            assert getattr(known, part.name) == getattr(expected, part.name), part.name
        assert known.own_sizes == expected.own_sizes and known.used == expected.used and known.given == expected.given
    assert graph.values[first] != wide and "x_turned" not in graph.values
    assert (7, 5) in graph.knowing({weight: wide}).own_sizes and (7, 5) not in graph.own_sizes
