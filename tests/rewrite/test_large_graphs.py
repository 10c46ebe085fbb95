"""Networks of hundreds of steps: what the rewriter does grows with the network, not with its square, and nothing is left."""

from __future__ import annotations

import pytest

from benchmarks.large_graphs import MODULE
from mtmc.hardware import hardware
from mtmc.optimizations import Version, legal_moves, merging
from mtmc.optimizations.version import MOST_OPERANDS
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.flow import Flow
from mtmc.rewrite.graph import Tensor
from mtmc.rewrite.plan import root_plan
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
