"""Kernels that do the same are printed once, and those that differ in anything are not."""

from __future__ import annotations

import re

from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import Plan, Stage, graph_of
from mtmc.rewrite.source import print_plan
from mtmc.task import Task, task_from_source
from tests.rewrite.interpreted import apply
from tests.rewrite.interpreting import interpret
from tests.rewrite.printing import text_after
from tests.rewrite.references import reference

BLOCK = "nn.Sequential(nn.Linear(m, m), nn.GELU(), nn.LayerNorm(m))"
TWO = reference("self.b(self.a(x))", "torch.randn(n, m)", f"self.a = {BLOCK}\nself.b = {BLOCK}")
TWO = TWO.replace("n = 64\nm = 96", "n = 640\nm = 768")  # with less the norm would go into the next layer
WAY = ["fuse", "lower"]


def printed(source: str) -> tuple[Task, Plan, list[str], list[str]]:
    """The task, a version of kernels alone, its launchers, and those that forward calls, in order."""
    task = task_from_source(source, "once")
    plan = apply(task, WAY)
    text = print_plan(task, graph_of(export_graph(task), plan), plan).source
    return task, plan, re.findall(r"^def (launch_\w+)", text, re.M), re.findall(r"= (launch_\w+)\(", text)


def test_two_equal_blocks_have_one_text() -> None:
    _, _, launchers, calls = printed(TWO)
    assert launchers == ["launch_linear_gelu", "launch_layer_norm"]
    assert calls == launchers * 2
    assert interpret([{"name": "two", "source": TWO, "ways": [WAY]}]) == {"two": None}


def test_a_stage_stands_where_its_text_does() -> None:
    task, plan, _, _ = printed(TWO)
    regions = print_plan(task, graph_of(export_graph(task), plan), plan).regions
    first, second = (regions[stage] for stage in plan.stages[::2])
    assert (first.first_line, first.last_line) == (second.first_line, second.last_line)
    assert [first.name, second.name] == [stage.name for stage in plan.stages[::2]]


def test_another_number_is_another_text() -> None:
    source = reference(
        "F.leaky_relu(torch.sum(F.leaky_relu(x * y, 0.1), 0), 0.2)", "torch.randn(n, m), torch.randn(n, m)"
    )
    _, _, launchers, calls = printed(source)
    assert len(launchers) == len(set(calls)) == len(calls)


def test_ops_that_are_called_as_functions_of_triton_are_told_apart() -> None:
    source = reference("(torch.sin(x), torch.cos(x), torch.floor(x), torch.ceil(x))")
    text = text_after(source, ["lower"])
    assert [f"tl.{name}(x)" in text for name in ("sin", "cos", "floor", "ceil")] == [True] * 4
    assert len(re.findall(r"^def launch_", text, re.M)) == 4


def test_another_schedule_is_another_text() -> None:
    task, plan, launchers, _ = printed(TWO)
    last = plan.stages[-1]
    changed = plan.with_stage(last, last.scheduled({"num_warps": 8}))
    text = print_plan(task, graph_of(export_graph(task), changed), changed).source
    assert len(re.findall(r"^def launch_", text, re.M)) == len(launchers) + 1
    assert isinstance(last, Stage)
