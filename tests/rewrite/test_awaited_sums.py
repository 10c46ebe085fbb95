"""A product whose left tile is made in registers waits for the tensor cores before work on the next slice begins."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from mtmc.evaluate.compiling.build import Built, build, warm
from mtmc.evaluate.pool.worker import PoolSettings
from mtmc.hardware import hardware
from mtmc.optimizations import Version
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import Plan, root_plan
from mtmc.rewrite.source import print_plan
from mtmc.rewrite.templates.conv_rounding import ROUNDED
from mtmc.task import Task, task_from_source
from tests.conftest import WarmPools
from tests.rewrite.interpreting import interpret
from tests.rewrite.references import reference

HALF = "self.f = nn.Linear(k, m).bfloat16()"
BEFORE = {
    "gelu": reference("self.f(F.gelu(x))", "torch.randn(n, k).bfloat16()", HALF),
    "norm": reference(
        "self.f(F.rms_norm(x, (k,)))".replace("k,", "x.shape[-1],"), "torch.randn(n, k).bfloat16()", HALF
    ),
    "fp32_in_tf32": reference("self.f(F.relu(x) - 1)", "torch.randn(n, k)", "self.f = nn.Linear(k, m)"),
    "two_products": reference(
        "y = F.silu(x), self.f(y)", "torch.randn(n, k).bfloat16()", HALF + "\nself.g = nn.Linear(k, m).bfloat16()"
    ).replace("return y = F.silu(x), self.f(y)", "y = F.silu(x)\n        return self.f(y) * self.g(y)"),
}
PLAIN = {
    "convolution": reference("self.f(x)", "torch.randn(2, n, m, k)", "self.f = nn.Conv2d(n, 64, 3, padding=1)"),
    "nothing_before": reference("F.gelu(self.f(x))", "torch.randn(n, k).bfloat16()", HALF),
    "batches": reference("x @ y", "torch.randn(3, n, k).bfloat16(), torch.randn(3, k, m).bfloat16()"),
}
WAITED = re.compile(r"(\w+) = tl\.where\((?:start|step) < [^,]+, \1, 0\)")
"""Sums that are read in the loop for no other reason."""


@cache
def task_of(name: str) -> Task:
    return task_from_source({**BEFORE, **PLAIN}[name], name)


def source_of(name: str, **settings: int | str) -> str:
    """All of the task as one kernel."""
    task = task_of(name)
    graph = export_graph(task)
    whole = Version.of(task, root_plan(graph), hardware("H100")).as_kernel(tuple(op.name for op in graph.ops), {})
    assert whole is not None and whole.template in ("matmul", "convolution"), whole
    return print_plan(task, graph, Plan((whole.scheduled(settings),))).source


@pytest.mark.parametrize("name", BEFORE)
def test_work_before_a_product_is_awaited(name: str) -> None:
    count = 2 if name == "two_products" else 1
    precision = {"precision": "tf32"} if name == "fp32_in_tf32" else {}
    assert len(WAITED.findall(source_of(name, **precision))) == count


@pytest.mark.parametrize("name", PLAIN)
def test_a_product_of_what_is_loaded_is_not(name: str) -> None:
    assert not WAITED.findall(source_of(name))


def test_what_triton_awaits_by_itself_is_not() -> None:
    for precision in ("tf32x3", "ieee"):
        assert not WAITED.findall(source_of("fp32_in_tf32", precision=precision))


def test_of_convolutions_what_is_rounded_in_registers_is_awaited() -> None:
    """Channels last the neighbourhoods are on the left; filters are rounded in memory."""
    for precision, count in ((ROUNDED, 1), ("tf32", 0), ("tf32x3", 0)):
        text = source_of("convolution", precision=precision, swapped=1, rounding="registers")
        assert len(WAITED.findall(text)) == count, precision


def test_they_give_the_same() -> None:
    tile = {"block_m": 16, "block_n": 16, "block_k": 16}
    cases = [
        {"name": name, "source": {**BEFORE, **PLAIN}[name], "candidate": source_of(name, **tile)} for name in BEFORE
    ]
    assert interpret(cases) == dict.fromkeys(BEFORE)


@pytest.mark.parametrize("name", ["gelu", "nothing_before"])
def test_no_instruction_of_a_slice_is_left_when_the_next_begins(warm_pools: WarmPools, name: str) -> None:
    """As it is compiled for Hopper: all waiting is for the last instruction where the left tile is in registers. The
    selection itself is gone."""
    arguments = {"target_name": "sm_90", "multiprocessors": 132}
    pool = warm_pools.lend(PoolSettings(warm, arguments, {"TRITON_DEFAULT_FP_FUSION": "1"}, workers=1))
    tile: dict[str, int | str] = {"block_m": 128, "block_n": 64, "block_k": 64, "num_stages": 3, "num_warps": 4}
    texts = [source_of(name, **tile)]
    texts.append(WAITED.sub("pass", texts[0]))
    try:
        selections = []
        for text in texts:
            built = pool.run(build, {"task": task_of(name), "source": text, "target_name": "sm_90"}).value
            assert isinstance(built, Built), built
            ptx = Path(built.kernels[0].files["ptx"]).read_text(encoding="utf-8")
            assert "wgmma.mma_async" in ptx
            selections.append(ptx.count("selp.f32"))
            if text is texts[0]:
                waits = set(re.findall(r"wgmma\.wait_group\.sync\.aligned\s+(\d+)", ptx))
                assert (waits == {"0"}) == (name == "gelu"), waits
        assert selections[0] == selections[1]
    finally:
        pool.close()
