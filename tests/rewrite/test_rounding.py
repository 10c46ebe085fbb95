"""Numbers less the largest of them: the product before may not be taken in one step with the difference."""

from __future__ import annotations

from pathlib import Path

import pytest

from mtmc.evaluate.compiling.build import Built, build, warm
from mtmc.evaluate.pool.settings import PoolSettings
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import Plan
from mtmc.rewrite.source import print_plan
from mtmc.task import Task, task_from_source
from tests.conftest import WarmPools
from tests.rewrite.stepping import version

TEMPLATE = """
import torch
from torch import nn

rows, cols = 2048, 1024
VARIANTS = {{"small": {{"rows": 5, "cols": 24}}, "odd1": {{"rows": 3, "cols": 37}}}}


class Model(nn.Module):
    def forward(self, x, y):
        return {work}


def get_inputs():
    return [torch.randn(rows, cols), torch.randn(rows, cols)]


def get_init_inputs():
    return []
"""
OPTION = "enable_fp_fusion=False"


def task_of(work: str) -> Task:
    return task_from_source(TEMPLATE.format(work=work), "rounding")


def source_of(task: Task) -> str:
    """All of the task as one kernel."""
    graph = export_graph(task)
    stage = version(task).as_kernel(tuple(op.name for op in graph.ops), {})
    assert stage is not None
    return print_plan(task, graph, Plan((stage,))).source


@pytest.mark.parametrize(
    ("work", "apart"),
    [
        ("torch.softmax(x * 0.125, dim=-1)", True),
        ("torch.logsumexp(x * y, dim=-1)", True),
        ("torch.log_softmax(x / 3.0, dim=-1)", True),
        ("torch.softmax(x, dim=-1)", False),
        ("torch.softmax(x + y, dim=-1)", False),
        ("x * 0.125 - y", False),
    ],
)
def test_a_product_less_the_largest_is_rounded_first(work: str, apart: bool) -> None:
    assert (OPTION in source_of(task_of(work))) == apart


def test_what_is_built_multiplies_and_subtracts_apart(warm_pools: WarmPools) -> None:
    """And by itself it would not: so the option is what keeps softmax right for numbers of 1e12."""
    task = task_of("torch.softmax(x * 0.125, dim=-1)")
    right = source_of(task)
    lines = [line for line in right.splitlines() if OPTION not in line]
    arguments = {"target_name": "sm_90", "multiprocessors": 132}
    pool = warm_pools.lend(PoolSettings(warm, arguments, {"TRITON_DEFAULT_FP_FUSION": "1"}, workers=1))
    found = []
    try:
        for source in (right, "\n".join(lines)):
            built = pool.run(build, {"task": task, "source": source, "target_name": "sm_90"}).value
            assert isinstance(built, Built)
            found.append("fma.rn.f32" in Path(built.kernels[0].files["ptx"]).read_text())
    finally:
        pool.close()
    assert found == [False, True]
