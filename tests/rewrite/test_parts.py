"""Results with other numbers of elements are parts of one elementwise kernel."""

from __future__ import annotations

from mtmc.hardware import hardware
from mtmc.optimizations import KINDS, Version
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import Plan, root_plan
from mtmc.rewrite.source import print_plan
from mtmc.task import Task, task_from_source
from tests.rewrite.interpreting import interpret
from tests.rewrite.references import reference

ROTARY = reference(
    "x, y, z", "torch.randn(2, n, 3, 2 * k), torch.randn(2, n, 1, 2 * k).bfloat16(), torch.randn(2, n, k)"
).replace(
    "return x, y, z",
    "cos, sin = z.cos()[:, :, None], z.sin()[:, :, None]\n"
    "        turn = lambda t: torch.cat((t[..., ::2] * cos - t[..., 1::2] * sin, t[..., 1::2] * cos), -1)\n"
    "        return turn(x), turn(y)",
)
BY_A_TABLE = reference(
    "tuple(torch.cat((t[:, :1], t[:, 1:] * self.c + F.pad(t, (2, -2))[:, 1:] * self.s), 1) for t in (x, y))",
    "torch.randn(9, n + 1, m, 2 * k), torch.randn(9, n + 1, m, 2 * k)",
    "self.register_buffer('c', torch.rand(n, 1, 2 * k)); self.register_buffer('s', torch.rand(n, 1, 2 * k))",
)
"""Queries and keys that nothing else is known of: what both read is the module's."""
PARTS = {
    "rotary": ROTARY,
    "by_a_table": BY_A_TABLE,
    "heads_laid_out": reference(
        "tuple(t.unflatten(-1, (-1, 4)).transpose(1, 2).contiguous() for t in F.relu(x).split((8, 4, 4), -1))",
        "torch.randn(2, n, 16)",
    ),
    "what_is_broadcast_and_a_result": reference(
        "(t := torch.exp(x) + 1, t[:, None] * y, t.sum() * 0 + x[0] * 2)", "torch.randn(n, m), torch.randn(n, 5, m)"
    ),
    "a_number_and_a_table": reference("(x[0, 0] * 2, x[1] + 1, x - y)", "torch.randn(n, m), torch.randn(m)"),
    "whole_numbers_and_masks": reference(
        "(torch.where(x > 0, y[0], 1), x[:, :2] > 0, x.to(torch.int32) + y)",
        "torch.randn(n, m), torch.randint(0, 9, (n, m))",
    ),
}


def task_of(name: str) -> Task:
    return task_from_source(PARTS[name], name)


def fused(task: Task) -> tuple[Version, Plan]:
    """Fused as often as it goes, the fewest launches first."""
    version = Version.of(task, root_plan(export_graph(task)), hardware("H100"))
    while moves := list(KINDS["fuse"].legal(version)):
        plans = [move.child for move in moves if move.child is not None]
        best = min(plans, key=lambda plan: len(plan.stages))
        version = Version.of(task, best, hardware("H100"))
    return version, version.plan


def test_kernels_of_parts_are_right() -> None:
    cases = []
    for name, source in PARTS.items():
        version, plan = fused(task_of(name))
        text = print_plan(version.task, version.graph, plan).source
        cases.append({"name": name, "source": source, "candidate": text})
    assert interpret(cases) == dict.fromkeys(PARTS)


def test_queries_and_keys_are_rotated_by_one_launch() -> None:
    version, plan = fused(task_of("rotary"))
    assert sum(not version.is_free(stage) for stage in plan.stages) == 1
    text = print_plan(version.task, version.graph, plan).source
    assert text.count("@triton.jit") == 1 and "end_1" in text


def test_two_that_do_the_same_with_a_tensor_of_the_module_are_one_launch() -> None:
    """Other work with the same tensor stays apart."""
    version, plan = fused(task_of("by_a_table"))
    assert sum(not version.is_free(stage) for stage in plan.stages) == 1
    other = BY_A_TABLE.replace("in (x, y))", "in (x,)), (y[:, 1:] - self.c).sin()")
    version, plan = fused(task_from_source(other, "other"))
    assert sum(not version.is_free(stage) for stage in plan.stages) == 2


def test_heads_are_laid_out_by_one_launch() -> None:
    version, plan = fused(task_of("heads_laid_out"))
    assert sum(not version.is_free(stage) for stage in plan.stages) == 1
