"""Products with weights of few bits: made wide in the kernel, never written, right; and refused where that is not so."""

from __future__ import annotations

from functools import cache

import pytest

from mtmc.optimizations import legal_moves
from mtmc.rewrite.body import NotCovered
from mtmc.rewrite.expansion import build
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.operators.table import table
from mtmc.rewrite.plan import Plan, merged_ops, root_plan
from mtmc.rewrite.source import print_plan
from mtmc.rewrite.templates.product import analyse
from mtmc.task import Task, task_from_source
from tests.rewrite.interpreting import interpret
from tests.rewrite.stepping import version

REFERENCE = """
import torch
from torch import nn

rows, inner, cols = 16, 512, 64
VARIANTS = {{
    "small": {{"rows": 8, "inner": 128, "cols": 32}},
    "odd1": {{"rows": 5, "inner": 192, "cols": 33}},
}}


class Model(nn.Module):
    def forward(self, x, weight, scale):
        {work}


def get_inputs():
    return [torch.randn(rows, inner), {weight}, torch.rand({scale}) / 64]


def get_init_inputs():
    return []
"""
BYTES, NIBBLES = (
    "torch.randint(-127, 128, (cols, inner)).to(torch.int8)",
    "torch.randint(0, 256, (cols, inner // 2)).byte()",
)
LOW, HIGH = "(weight & 15).to(torch.int8) - 8", "(weight >> 4).to(torch.int8) - 8"
OF_GROUPS = "nn.functional.linear(x, ({}.view(weight.shape[0], -1, 64) * scale[:, :, None]).view(weight.shape[0], -1))"
CASES = {
    "channel": ("return nn.functional.linear(x, weight.to(x.dtype) * scale[:, None]).relu()", BYTES, "cols"),
    "across": ("return x @ (weight.to(x.dtype) * scale)", BYTES.replace("cols, inner", "inner, cols"), "cols"),
    "group": (f"return {OF_GROUPS.format('weight.to(x.dtype)')}", BYTES, "cols, inner // 64"),
    "pairs": (
        f"return {OF_GROUPS.format(f'torch.stack([{LOW}, {HIGH}], -1).to(x.dtype)')}", NIBBLES, "cols, inner // 64"
    ),
    "halves": (
        f"return nn.functional.linear(x, torch.cat([{LOW}, {HIGH}], 1).to(x.dtype) * scale[:, None])", NIBBLES, "cols"
    ),
}  # fmt: skip
WAYS: dict[str, dict[str, int | str]] = {
    "swapped": {"block_n": 16, "block_k": 32, "swapped": 1},
    "wide": {"block_n": 32, "block_k": 128},
    "shared": {"block_n": 32, "block_k": 64, "split_k": 2},
}


@cache
def task_of(name: str) -> Task:
    work, weight, scale = CASES[name]
    return task_from_source(REFERENCE.format(work=work, weight=weight, scale=scale), name)


def plan_of(name: str, settings: dict[str, int | str]) -> Plan:
    """All of the case as one kernel."""
    task = task_of(name)
    graph = export_graph(task)
    root = version(task)
    stage = root.as_kernel(merged_ops(graph, root.plan.stages), {})
    assert stage is not None
    fixed: dict[str, int | str] = {"block_m": 16, "num_warps": 4, "split_k": 1, **settings}
    return root.plan.with_merged(graph, root.plan.stages, stage.scheduled(fixed))


def source_of(name: str, settings: dict[str, int | str]) -> str:
    return print_plan(task_of(name), export_graph(task_of(name)), plan_of(name, settings)).source


def test_products_with_weights_of_few_bits_are_right() -> None:
    found = [(name, "wide") for name in CASES] + [("pairs", "swapped"), ("channel", "shared")]
    cases = [
        {"name": f"{name}_{way}", "source": task_of(name).source, "candidate": source_of(name, WAYS[way])}
        for name, way in found
    ]
    assert interpret(cases) == {f"{name}_{way}": None for name, way in found}


def test_two_values_of_a_byte_are_interleaved_and_scales_loaded_once_a_group() -> None:
    text = source_of("pairs", WAYS["swapped"])
    assert text.count("tl.load(weight_ptr") == 1 and "stack = tl.interleave(sub, sub_1)" in text
    assert "place = start // 64 if 64 % BLOCK_K == 0 else ks[None, :] // 64" in text
    assert "mask=n_mask & place_mask" in text
    assert "tl.interleave" not in source_of("halves", WAYS["wide"])


def test_a_search_comes_to_it_by_fusing() -> None:
    """The weight's conversion and scale, then the product that reads them."""
    task = task_of("channel")
    plan = root_plan(export_graph(task))
    for _ in range(5):
        moves = [move for move in legal_moves(version(task, plan)) if move.action.kind in ("fuse", "lower")]
        if not moves:
            break
        assert moves[0].child is not None
        plan = moves[0].child
    text = print_plan(task, export_graph(task), plan).source
    assert "tl.dot(" in text and text.count("@triton.jit") == 1


@pytest.mark.parametrize(
    ("work", "why"),
    [
        ("w = weight.to(x.dtype)\n        return nn.functional.linear(x, w) + w.sum()", "also needed elsewhere"),
        ("return nn.functional.linear(x, weight.to(x.dtype).softmax(1))", "not elementwise"),
        ("w = weight.to(x.dtype)\n        return nn.functional.linear(x.relu(), w)", "both operands"),
    ],
)
def test_what_cannot_be_made_on_the_way_is_refused(work: str, why: str) -> None:
    task = task_from_source(REFERENCE.format(work=work, weight=BYTES, scale="cols"), "refused")
    graph = export_graph(task)
    with pytest.raises(NotCovered, match=why):
        analyse(graph, build(graph, [op.name for op in graph.ops], table))
