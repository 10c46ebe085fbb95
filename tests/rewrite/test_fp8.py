"""Products of 8-bit floats: what the tensor cores multiply is what lies in memory, scales come after the sums; and casts."""

from __future__ import annotations

from functools import cache

import pytest

from mtmc.optimizations import legal_moves
from mtmc.optimizations.resources import element_bytes, shared_bytes
from mtmc.rewrite.body import NotCovered
from mtmc.rewrite.expansion import build
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.operators.table import table
from mtmc.rewrite.plan import Plan, merged_ops, root_plan
from mtmc.rewrite.source import print_plan
from mtmc.task import Task, task_from_source
from tests.rewrite.interpreting import interpret
from tests.rewrite.stepping import version

REFERENCE = """
import torch
from torch import nn

rows, inner, cols, block = 64, 512, 96, 64
VARIANTS = {{
    "small": {{"rows": 32, "inner": 128, "cols": 32}},
    "odd1": {{"rows": 5, "inner": 88, "cols": 33, "block": 22}},
}}
FP8 = torch.{dtype}


class Model(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x, weight, sx, sw):
        {work}


def get_inputs():
    return [{x}, torch.randn({weight}).to(FP8), torch.rand({sx}) + 0.5, torch.rand({sw}) + 0.5]


def get_init_inputs():
    return [block]
"""
BYTES, LINEAR = "torch.randn(rows, inner).to(FP8)", "nn.functional.linear(x.float() * sx, weight.float() * sw)"
GROUPED = "(x.view(x.shape[0], -1, self.block).float() * sx[:, :, None]).view(x.shape[0], -1)"
BLOCKS = "weight.float() * sw.repeat_interleave(self.block, 1)"
CASES: dict[str, dict[str, str]] = {
    "rows": {"work": "return (x.float() * sx) @ (weight.float() * sw).t()"},
    "tensor": {"work": f"return {LINEAR}.relu()", "sx": "()", "sw": "1"},
    "across": {"work": "return (x.float() * sx) @ (sw * weight.float())", "weight": "inner, cols", "sw": "cols"},
    "left": {"work": f"return nn.functional.linear({GROUPED}, weight.float())", "sx": "rows, inner // block"},
    "blocks": {
        "work": f"return nn.functional.linear({GROUPED}, {BLOCKS})", "sx": "rows, inner // block",
        "sw": "cols, inner // block",
    },
    "quantized": {  # by groups, then multiplied by what it was quantized from
        "work": "tiles = x.unflatten(-1, (-1, self.block))\n"
        "        scales = tiles.abs().amax(-1, keepdim=True) / 448.0\n"
        "        x = (tiles / scales).to(FP8)\n"
        f"        return nn.functional.linear((x.float() * scales).flatten(-2), {BLOCKS})",
        "x": "torch.randn(rows, inner)", "sw": "cols, inner // block",
    },
    "norm": {
        "work": "y = nn.functional.rms_norm(x, x.shape[-1:])\n"
        "        scales = y.abs().amax(-1, keepdim=True) / 448.0\n"
        "        return (y / scales).to(FP8), scales",
        "x": "torch.randn(rows, inner)",
    },
    "square": {
        "work": "w = weight.float() * sw.repeat_interleave(16, 0).repeat_interleave(self.block, 1)\n"
        f"        return {GROUPED} @ w.t() + 1.0",
        "sx": "rows, inner // block", "sw": "cols // 16, inner // block",
    },
    "made": {"work": f"x = (x / 0.02).clamp(-448, 448).to(FP8)\n        return {LINEAR}", "x": "torch.randn(rows, inner)"},
    "e5m2": {"work": f"return {LINEAR}", "dtype": "float8_e5m2"},
    "lib": {"work": "return torch._scaled_mm(x, weight.t(), sx, sw.t(), out_dtype=torch.float32)"},
    "few": {"work": "return nn.functional.linear(x, weight.float() * sw)", "x": "torch.randn(rows, inner)"},
}  # fmt: skip
WAYS: dict[str, dict[str, int | str]] = {
    "wide": {"block_n": 32, "block_k": 64},
    "swapped": {"block_n": 16, "block_k": 32, "swapped": 1},
    "shared": {"block_n": 32, "block_k": 32, "split_k": 2, "operands": "pointers"},
    "fast": {"block_n": 32, "block_k": 32, "sums": "fast"},
}


@cache
def task_of(name: str) -> Task:
    base = {"x": BYTES, "weight": "cols, inner", "sx": "rows, 1", "sw": "cols, 1", "dtype": "float8_e4m3fn"}
    text = REFERENCE.format(**{**base, **CASES[name]})
    if name == "square":
        text = text.replace('"cols": 33', '"cols": 48')
    return task_from_source(text, name)


def searched(name: str) -> tuple[str, list[str]]:
    """The version that a search comes to by fusing and lowering, and the templates of its kernels. What is quantized is
    scaled by the product's kernel if the search says so first."""
    task = task_of(name)
    plan = root_plan(export_graph(task))
    for _ in range(8):
        moves = [move for move in legal_moves(version(task, plan)) if move.action.kind in ("fuse", "lower")]
        if not moves:
            break
        words = ("fuse to_1 and mul,", "linear,") if name == "quantized" else ()
        first = [
            move for word in words for move in moves if word in move.action.sentence and move.action.kind == "fuse"
        ]
        plan = (first or moves)[0].child or plan
    kernels = [stage.template for stage in plan.stages if not stage.is_torch]
    return print_plan(task, export_graph(task), plan).source, kernels


def source_of(name: str, settings: dict[str, int | str]) -> str:
    """All of the case as one kernel."""
    task = task_of(name)
    graph, root = export_graph(task), version(task)
    stage = root.as_kernel(merged_ops(graph, root.plan.stages), {})
    assert stage is not None
    stage = stage.scheduled({"block_m": 16, "num_warps": 4, "split_k": 1, **settings})
    return print_plan(task, graph, root_plan(graph).with_merged(graph, root_plan(graph).stages, stage)).source


def test_products_of_8_bit_floats_are_right() -> None:
    found = [*((name, "wide") for name in CASES), *(("rows", way) for way in ("swapped", "shared", "fast"))]
    found = [(name, way) for name, way in found if name not in ("quantized", "norm")]
    cases = [
        {"name": f"{name}_{way}", "source": task_of(name).source, "candidate": source_of(name, WAYS[way])}
        for name, way in found
    ]
    names = ("quantized", "blocks", "norm")
    cases += [{"name": name, "source": task_of(name).source, "candidate": searched(name)[0]} for name in names]
    assert interpret(cases) == dict.fromkeys((*(f"{name}_{way}" for name, way in found), *names))


@pytest.mark.parametrize(
    ("name", "kernels"),
    [("rows", ["matmul"]), ("blocks", ["matmul"]), ("quantized", ["rowwise", "matmul"]), ("norm", ["rowwise"])],
)
def test_a_search_comes_to_products_of_what_lies_in_memory(name: str, kernels: list[str]) -> None:
    text, found = searched(name)
    assert found == kernels and text.count("@triton.jit") == len(kernels)
    assert ("+= tl.dot(a, b)" in text) == ("matmul" in kernels) and (
        name != "quantized" or ".to(tl.float8e4nv).to(tl.float32)" in text
    )


def test_a_cast_that_makes_infinities_stays_a_torch_call() -> None:
    text = REFERENCE.format(
        work="return x.to(FP8)", x="torch.randn(rows, inner)", weight="cols, inner", sx="1", sw="1", dtype="float8_e5m2"
    )
    graph = export_graph(task_from_source(text, "e5m2_cast"))
    with pytest.raises(NotCovered, match="infinities"):
        build(graph, [op.name for op in graph.ops], table)


@pytest.mark.parametrize("name", ["rows", "tensor", "across"])
def test_the_tiles_of_scaled_products_are_of_8_bits(name: str) -> None:
    """The reference makes both operands wide before it scales them; the kernel has bytes in shared memory, of which a large
    tile fits: counted as fp32 it did not, and the kernel began with the smallest."""
    text = task_of(name).source.replace(
        "rows, inner, cols, block = 64, 512, 96, 64", "rows, inner, cols, block = 8192, 8192, 8192, 64"
    )
    large = task_from_source(text, "large")
    graph = export_graph(large)
    root = version(large, Plan(root_plan(graph).stages), gpu="H200")
    stage = root.as_kernel(merged_ops(graph, list(root.plan.stages)), {})
    assert stage is not None
    schedule = dict(stage.schedule)
    m, n, k = (int(schedule[f"block_{axis}"]) for axis in "mnk")
    assert (m, n, k) == (128, 128, 128) and element_bytes(graph, stage) == 1
    assert shared_bytes(graph, stage) == int(schedule["num_stages"]) * (m * k + k * n)
