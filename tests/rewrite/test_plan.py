from __future__ import annotations

import pytest

from mtmc.errors import RunError
from mtmc.hardware import hardware
from mtmc.optimizations import legal_moves, possible
from mtmc.optimizations.resources import asks_as_much, blamed, shared_bytes
from mtmc.optimizations.version import Version
from mtmc.outcome import RESOURCE_ERROR, Diagnosis, Outcome
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.flow import Flow
from mtmc.rewrite.graph import Graph
from mtmc.rewrite.operators.table import FREE
from mtmc.rewrite.plan import Plan, Stage, graph_of, in_order, merged_ops, plan_from_json, root_plan
from mtmc.rewrite.source import print_plan, root_regions, root_source
from mtmc.task import Task, load_task, task_from_source
from tests.rewrite import stepping
from tests.rewrite.references import reference
from tests.rewrite.stepping import actions_on, child_of


@pytest.fixture(scope="module")
def task() -> Task:
    return load_task("linear_gelu")


@pytest.fixture(scope="module")
def graph(task: Task) -> Graph:
    return export_graph(task)


def version(task: Task, graph: Graph, plan: Plan, name: str = "H100") -> Version:
    return stepping.version(task, plan, name)


def fused(task: Task, graph: Graph) -> Plan:
    start = version(task, graph, root_plan(graph))
    action = next(action for action in actions_on(start) if action.kind == "fuse")
    plan = child_of(start, action)
    return plan


def test_sizes_are_known_at_every_variant(graph: Graph) -> None:
    assert graph.variants[0] == "full"
    assert len(graph.variants) >= 3
    assert all(len(size) == len(graph.variants) for value in graph.values.values() for size in value.shape)


def test_plans_round_trip_as_json(task: Task, graph: Graph) -> None:
    for plan in (root_plan(graph), fused(task, graph)):
        assert plan_from_json(plan.to_json()) == plan


def test_the_root_keeps_the_reference_and_its_line_numbers(task: Task, graph: Graph) -> None:
    text = root_source(task).splitlines()
    assert "class ModelNew(nn.Module):" in text
    assert not any("def get_inputs" in line for line in text)
    plan = root_plan(graph)
    for stage, region in root_regions(task, graph, plan).items():
        assert stage.ops[0].split("_")[0] in text[region.first_line - 1].lower()


def test_every_kernel_action_names_the_lines_of_its_kernel(task: Task, graph: Graph) -> None:
    plan = fused(task, graph)
    source = print_plan(task, graph, plan).source.splitlines()
    for action in actions_on(version(task, graph, plan))[:-1]:
        assert "@triton.jit" in source[action.region.first_line - 1]
        assert action.sentence.endswith(f"lines {action.region.first_line}-{action.region.last_line}")


def test_legal_actions_have_unique_keys_and_end_with_stop(task: Task, graph: Graph) -> None:
    for plan in (root_plan(graph), fused(task, graph)):
        actions = actions_on(version(task, graph, plan))
        assert len({action.key for action in actions}) == len(actions)
        assert actions[-1].kind == "stop"


def test_an_action_that_changes_nothing_is_not_legal(task: Task, graph: Graph) -> None:
    plan = fused(task, graph)
    start = version(task, graph, plan)
    for action in actions_on(start)[:-1]:
        assert child_of(start, action) != plan


def test_schedules_beyond_shared_memory_are_not_legal(task: Task, graph: Graph) -> None:
    plan = fused(task, graph)
    small = "MI300X"
    for action in actions_on(version(task, graph, plan, small))[:-1]:
        if action.kind == "direct_launch":  # changes no schedule
            continue
        child = child_of(version(task, graph, plan, small), action)
        assert child is not None and all(shared_bytes(graph, stage) <= 64 * 1024 for stage in child.stages)


def test_shared_bytes_by_hand(graph: Graph) -> None:
    schedule = {"block_m": 128, "block_n": 64, "block_k": 32, "num_stages": 3}
    stage = Stage(("linear",), "matmul", tuple(sorted(schedule.items())))
    assert shared_bytes(graph, stage) == 3 * (128 * 32 + 32 * 64) * 4


def test_what_failed_for_lack_of_resources_is_not_offered_again(task: Task, graph: Graph) -> None:
    plan = fused(task, graph)
    stage = plan.stages[0].scheduled({"num_stages": 2})
    plan = plan.with_stage(plan.stages[0], stage)
    too_much = plan.with_stage(stage, stage.scheduled({"num_stages": 4}))
    failure = Outcome(
        "build_error", diagnosis=Diagnosis("build", RESOURCE_ERROR, f"{stage.name}_kernel needs 300000 bytes")
    )
    found = blamed(graph, [(too_much.to_json(), failure)])
    assert found == too_much.stages
    assert asks_as_much(stage.scheduled({"num_stages": 5}), found)
    assert not asks_as_much(stage.scheduled({"num_stages": 3}), found)
    moves = possible(legal_moves(version(task, graph, plan)), found)
    stages = [move.stage.number("num_stages") for move in moves if move.action.kind == "pipeline" and move.stage]
    assert stages == [3]


def test_a_large_product_starts_with_the_tile_that_makes_the_fewest_turns(task: Task, graph: Graph) -> None:
    """On an H100 256 tiles of 128 x 128 are two turns of 132, as are those of 128 x 64 with two a multiprocessor; 64 x 64
    with three takes three. An A100 has no descriptors, and its shared memory does not hold the three stages."""
    for name, tile, stages in (("H100", (128, 128, 64), 3), ("A100", (64, 64, 32), 2)):
        kernel = version(task, graph, root_plan(graph), name).as_kernel((graph.ops[0].name,), {})
        assert kernel is not None
        assert tuple(kernel.number(f"block_{axis}") for axis in "mnk") == tile
        assert kernel.number("num_stages") == stages


def test_fused_stages_can_always_be_put_in_order() -> None:
    graph = export_graph(load_task("transformer_block"))
    plan = root_plan(graph)
    free = [stage for stage in plan.stages if graph.by_name[stage.ops[0]].target in FREE]
    flow, found = Flow(graph, plan, free), 0
    for first in plan.stages:
        for second in plan.stages:
            parts = flow.together(first, second) if first != second else None
            if parts:
                found += 1
                rest = [stage for stage in plan.stages if stage not in parts]
                merged = Stage(merged_ops(graph, parts))
                assert len(in_order(graph, [*rest, merged])) == len(rest) + 1
    assert found > 10


def test_small_stages_that_need_nothing_of_each_other_become_one_kernel() -> None:
    source = """import torch
from torch import nn
rows, cols = 64, 40
VARIANTS = {"small": {"rows": 8, "cols": 12}, "odd1": {"rows": 5, "cols": 7}}
class Model(nn.Module):
    def forward(self, x, y, z):
        return torch.sin(x), torch.cos(y) @ z, y.softmax(1)
def get_inputs():
    return [torch.randn(rows, cols), torch.randn(rows, cols), torch.randn(cols, rows)]
def get_init_inputs():
    return []
"""
    task = load_task(source)
    graph = export_graph(task)
    plan = root_plan(graph)
    start = version(task, graph, plan)
    apart = {action.sentence.split(",")[0]: action for action in actions_on(start) if "horizontally" in action.sentence}
    assert set(apart) == {"fuse sin and cos horizontally"}  # one partner each; sin and softmax can follow
    changed = child_of(start, apart["fuse sin and cos horizontally"])
    assert changed is not None and ("sin", "cos") in [stage.ops for stage in changed.stages]
    assert "return sin, cos" in print_plan(task, graph, changed).source
    large = load_task(source.replace("64, 40", "4096, 1024"))
    assert not [
        a
        for a in actions_on(version(large, export_graph(large), root_plan(export_graph(large))))
        if "horizontally" in a.sentence
    ]


def test_a_torch_call_says_nothing_of_what_its_public_function_does_not_know() -> None:
    """aten.einsum has a `path`, which is there where opt_einsum is installed; torch.einsum has none."""
    inputs = "torch.randn(n, m), torch.randn(m, k), torch.randn(k, m)"
    made = task_from_source(
        reference("torch.relu(torch.ops.aten.einsum('ij,jk,kl->il', [x, y, z], path=[1, 2, 0, 1]))", inputs), "three"
    )
    start = stepping.version(made, root_plan(export_graph(made)), "H100")
    [lowered, *_] = [action for action in actions_on(start) if action.kind == "lower"]
    source = print_plan(made, export_graph(made), child_of(start, lowered)).source
    assert "torch.einsum(" in source and "path" not in source


def test_what_has_no_elements_stays_with_torch() -> None:
    """A cache that is empty at first, for instance; the rest is still covered."""
    inputs = "torch.randn(n, m), torch.randn(0, 4)"
    task = task_from_source(reference("torch.softmax(torch.relu(x), -1), torch.relu(y) * 2", inputs), "empty")
    plan = root_plan(export_graph(task))
    version = Version.of(task, plan, hardware("H100"))
    lowered = [move.action.region for move in legal_moves(version) if move.action.kind == "lower"]
    assert len(plan.stages) == 4 and len(lowered) == 2
    assert [stage.name for stage in plan.stages if version.as_kernel(stage.ops, {}) is not None] == ["relu", "softmax"]


def test_a_plan_of_another_version_is_named(graph: Graph) -> None:
    """Of a run that began when what is passed on as it is was an op."""
    old = Plan((*root_plan(graph).stages, Stage(("clone_7",))))
    with pytest.raises(RunError, match=r"an op 'clone_7'.*begin anew in another folder"):
        graph_of(graph, old)
