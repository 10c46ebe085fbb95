"""Attention, as torch's function and written out, in one kernel: right at every shape, and refused where it is not that."""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np
import pytest

from mtmc.errors import CoderError
from mtmc.rewrite.body import NotCovered
from mtmc.rewrite.expansion import build
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.operators.table import table
from mtmc.rewrite.plan import Plan, merged_ops, root_plan
from mtmc.rewrite.source import print_plan
from mtmc.rewrite.templates.softmax_product import analyse
from mtmc.task import Task, load_task, task_from_source
from tests.rewrite.gluon_cases import FULL, GLUON, printed
from tests.rewrite.gluon_cases import task_of as task_of_gluon
from tests.rewrite.interpreted import apply
from tests.rewrite.interpreting import interpret
from tests.rewrite.stepping import actions_on, child_of
from tests.rewrite.test_plan import version

REFERENCE = """
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

B, H, S, T, D, E = 2, 4, 128, 96, 64, 64
VARIANTS = {{
    "small": {{"B": 2, "H": 2, "S": 12, "T": 20, "D": 8, "E": 8}},
    "odd1": {{"B": 1, "H": 2, "S": 66, "T": 69, "D": 7, "E": 5}},
    "odd2": {{"B": 1, "H": 4, "S": 17, "T": 37, "D": 33, "E": 17}},
}}


class Model(nn.Module):
    def forward(self, q, k, v{more}):
        {body}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
QKV = "torch.randn(B, H, S, D), torch.randn(B, H, T, D), torch.randn(B, H, T, E)"
SHARED = "torch.randn(B, H, S, D), torch.randn(B, H // 2, T, D), torch.randn(B, H // 2, T, E)"
BEHIND = "torch.randn(B, S, H, D), torch.randn(B, T, H, D), torch.randn(B, T, H, E)"
WRITTEN = "return torch.softmax((q @ k.transpose(-2, -1)) * D**-0.5, dim=-1) @ v"
MASKED = "return torch.softmax((q @ k.transpose(-2, -1) / 3.0).masked_fill(m == 0, float('-inf')), dim=-1) @ v"
WIDE = "torch.randn(B, H, S, 9 * D), torch.randn(B, H, T, 9 * D), torch.randn(B, H, T, 17 * E)"
KEYS, VALUES = "torch.cat([p.expand(B, -1, -1, -1), k], dim=2)", "torch.cat([r.expand(B, -1, -1, -1), v], dim=-2)"
BOTH = f"return scaled_dot_product_attention(q, {KEYS}, {VALUES}"
PROMPT = ", torch.randn(1, H, 2 * D + 1, D), torch.randn(1, H, 2 * D + 1, E)"
CASES = {
    "plain": ("return scaled_dot_product_attention(q, k, v)", QKV, ""),
    "causal": ("return scaled_dot_product_attention(q, k, v, is_causal=True)", QKV, ""),
    "scaled": ("return scaled_dot_product_attention(q, k, v, scale=0.3)", QKV, ""),
    "mask": ("return scaled_dot_product_attention(q, k, v, attn_mask=m)", f"{QKV}, torch.rand(S, T) < 0.8", ", m"),
    "bias_of_batch": (
        "return scaled_dot_product_attention(q, k, v, attn_mask=scale)", f"{QKV}, torch.randn(B, H, S, T)", ", scale"
    ),
    "grouped": ("return scaled_dot_product_attention(q, k, v, enable_gqa=True)", SHARED, ""),
    "one_batch_dimension": ("return scaled_dot_product_attention(q, k, v)", QKV.replace("B, H, ", "B, "), ""),
    "views": (
        "return scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2)",
        BEHIND, "",
    ),
    "written_out": (WRITTEN, QKV, ""),
    "written_out_masked": (MASKED, f"{QKV}, (torch.rand(1, 1, S, T) < 0.8).float()", ", m"),
    "work_after": ("return torch.relu(scaled_dot_product_attention(q, k, v)) * 2", QKV, ""),
    "wide": ("return scaled_dot_product_attention(q, k, v, is_causal=True)", WIDE, ""),
    "two_regions_grouped": (
        f"{BOTH}, is_causal=True, enable_gqa=True)", f"{SHARED}{PROMPT.replace('H', 'H // 2')}", ", p, r"
    ),
    "two_regions_masked": (
        f"{BOTH}, attn_mask=m)", f"{QKV}{PROMPT}, torch.rand(S, 2 * D + 1 + T) < 0.8", ", p, r, m"
    ),
    "keys_in_two_regions": (
        "return torch.softmax(q @ torch.cat([k, p], dim=-1), dim=-1) @ v",
        "torch.randn(B, S, D), torch.randn(B, D, T), torch.randn(B, T + D, E), torch.randn(B, D, D)", ", p"
    ),
    "half": ("return scaled_dot_product_attention(q, k, v)", QKV.replace(")", ", dtype=torch.float16)"), ""),
}  # fmt: skip


def source(name: str) -> str:
    body, inputs, more = CASES[name]
    return REFERENCE.format(body=body, inputs=inputs, more=more)


def task_of(body: str, inputs: str = QKV) -> Task:
    return task_from_source(REFERENCE.format(body=body, inputs=inputs, more=""), "attention")


TILE: dict[str, int | str] = {"block_m": 16, "block_n": 16}
SPECIAL: dict[str, int | str] = {"operands": "own_descriptors", "masks": "all", "specialized": 1}
WAYS: dict[str, tuple[str, dict[str, int | str]]] = {
    "described_full": ("plain", {"operands": "descriptors"}),
    "described_causal": ("causal", {"operands": "descriptors", "block_n": 32}),
    "described_bias": ("bias_of_batch", {"operands": "descriptors"}),
    "described_grouped": ("grouped", {"operands": "descriptors", "masks": "all"}),
    "described_views": ("views", {"operands": "descriptors"}),
    "described_written_out": ("written_out_masked", {"operands": "descriptors"}),
    "own_one_batch_dimension": ("one_batch_dimension", {"operands": "own_descriptors", "maxnreg": 168}),
    "special_full": ("scaled", SPECIAL),
    "special_causal": ("causal", {**SPECIAL, "order": "forward"}),
    "special_written_out": ("written_out", SPECIAL),
    "split": ("plain", {"split_keys": 4}),
    "split_with_work": ("work_after", {"split_keys": 2}),
    "split_bias": ("bias_of_batch", {"split_keys": 2}),
    "packed": ("grouped", {"packed": 1}),
    "packed_split": ("grouped", {"packed": 1, "split_keys": 2, "block_m": 32}),
    "plain_order_and_masks": ("two_regions_grouped", {"masks": "all", "order": "forward"}),
}


def smaller(name: str) -> str:
    """The case at two small shapes, of which the second has no rows at multiples of 16 bytes."""
    kept = [line for line in source(name).splitlines() if "odd2" not in line]
    odd = '    "odd1": {"B": 1, "H": 2, "S": 18, "T": 21, "D": 7, "E": 5},'
    return "\n".join(odd if "odd1" in line else line for line in kept)


def scheduled(name: str, settings: dict[str, int | str]) -> str:
    """The case as one kernel with some settings."""
    task = task_from_source(smaller(name), "attention")
    graph = export_graph(task)
    root = version(task, graph, root_plan(graph))
    parts = [stage for stage in root.plan.stages if not root.is_free(stage)]
    kernel = root.as_kernel(merged_ops(graph, parts), {})
    assert kernel is not None
    plan = root.plan.with_merged(graph, parts, kernel.scheduled({**TILE, **settings}))
    return print_plan(task, graph, plan).source


def test_other_schedules_match_torch() -> None:
    cases = [
        {"name": way, "source": smaller(name), "candidate": scheduled(name, settings)}
        for way, (name, settings) in WAYS.items()
    ]
    assert interpret(cases) == dict.fromkeys(WAYS)


def test_masks_are_left_out_where_no_column_is_behind() -> None:
    """Of causal attention in blocks of 16 the loop over whole blocks has no mask, the other has both."""
    before, after = scheduled("causal", {"masks": "edges"}).split("for start in range(whole, last, BLOCK_N):")
    assert "tl.where(" not in before and after.count("tl.where(") == 2
    with pytest.raises(CoderError, match="warps of their own"):
        scheduled("causal", {"specialized": 1, "operands": "descriptors"})


def test_few_queries_share_programs_and_programs_share_keys() -> None:
    """Of 2 x 4 heads in two groups: 4 programs of 2 rows; 16384 keys in 64 shares, which leave 256 each."""
    few = source("grouped").replace("B, H, S, T, D, E = 2, 4, 128, 96", "B, H, S, T, D, E = 2, 4, 1, 16384")
    task = task_from_source(few, "attention")
    plan = apply(task, ["lower"])
    [kernel] = plan.stages
    settings = dict(kernel.schedule)
    assert [settings[name] for name in ("block_m", "packed", "split_keys")] == [16, 1, 64]
    found = [action for action in actions_on(version(task, export_graph(task), plan)) if action.kind == "split"]
    offered = [dict(action.params) for action in found]
    assert {"split_keys": 1, "masks": "edges"} in offered and {"packed": 0} in offered
    text = print_plan(task, export_graph(task), plan).source
    assert text.count("parts = torch.empty(") == 1
    for refused in ({"split_keys": 2, "masks": "all"}, {"packed": 1, "operands": "descriptors"}):
        with pytest.raises(CoderError, match=r"shared among programs|heads packed"):
            scheduled("grouped", refused)


@pytest.mark.parametrize(
    ("scale", "factor"),
    [("0.5", "0.7213475204444817"), ("-0.5", "1.4426950408889634"), ("None", "1.4426950408889634 / tl.sqrt(")],
)
def test_a_positive_scale_is_part_of_the_exponent(scale: str, factor: str) -> None:
    """0.5 * log2(e) = 0.72134752...; a negative one would turn the largest score into the least."""
    task = task_of(f"return scaled_dot_product_attention(q, k, v, scale={scale})")
    text = print_plan(task, export_graph(task), apply(task, ["lower"])).source
    assert f"factor = {factor}" in text
    assert ("_scaled = " in text) == (scale == "-0.5")


@pytest.mark.parametrize("settings", [{}, {"split_keys": 4}, GLUON], ids=["triton", "split", "gluon"])
def test_no_product_is_joined_with_the_subtraction_of_the_largest_score(settings: dict[str, int | str]) -> None:
    """A score of 3e10 times 0.127: rounded it is 95 off here, and 2^95 is no weight. A compiler that joins
    product and subtraction (the usual way) rounds once: not the largest itself, only what is taken from it."""
    score, factor = np.float32(1.0e11 / 3), np.float32(1.4426950408889634 / 128**0.5)
    left = Fraction(float(score)) * Fraction(float(factor)) - Fraction(float(score * factor))
    assert round(float(left)) == -95
    text = printed(task_of_gluon(FULL, (1, 2, 2, 256, 1024, 128)), settings)
    powers = re.findall(r"exp2\((.*)\)$", text, re.MULTILINE)
    assert len(powers) >= 2 and all(each.endswith(") * factor") for each in powers), powers


@pytest.fixture(scope="module")
def results() -> dict[str, str | None]:
    first, *others = CASES
    ways = {name: [["fuse", "lower"]] for name in others}
    ways |= {first: [["lower", "tile", "precision"]], "wide": [["lower", "tile"]]}
    return interpret([{"name": name, "source": source(name), "ways": ways[name]} for name in CASES])


@pytest.mark.parametrize("name", CASES)
def test_kernels_match_torch(results: dict[str, str | None], name: str) -> None:
    assert results[name] is None, results[name]


def fused(task: Task, plan: Plan, beginning: str) -> Plan:
    now = version(task, export_graph(task), plan)
    [action] = [action for action in actions_on(now) if action.sentence.startswith(beginning)]
    found = child_of(now, action)
    assert found is not None
    return found


def test_attention_that_is_written_out_is_fused_at_once() -> None:
    task = load_task("transformer_block")
    plan = fused(task, root_plan(export_graph(task)), "fuse matmul and mul,")
    plan = fused(task, plan, "fuse matmul_mul, softmax and matmul_1,")
    [kernel] = [stage for stage in plan.stages if not stage.is_torch]
    assert kernel.template == "attention" and kernel.ops == ("matmul", "mul", "softmax", "matmul_1")


@pytest.mark.parametrize("name", ["two_regions_masked", "keys_in_two_regions"])
def test_tensors_one_behind_the_other_are_read_where_they_lie(name: str) -> None:
    task = task_from_source(source(name), "attention")
    plan = apply(task, ["fuse", "lower"])
    [kernel] = [stage for stage in plan.stages if not stage.is_torch]
    assert "cat" in kernel.ops and kernel.template == "attention"
    assert "torch.cat" not in print_plan(task, export_graph(task), plan).source


def test_wide_heads_are_retiled_in_slices_that_fit() -> None:
    task = task_from_source(source("wide"), "attention")
    found = actions_on(version(task, export_graph(task), apply(task, ["lower"])))
    tiles = [dict(action.params) for action in found if action.kind == "tile"]
    assert {tile["block_v"] for tile in tiles} >= {128, 256}


@pytest.mark.parametrize(
    ("body", "inputs", "why"),
    [
        ("p = torch.softmax(q @ k.transpose(-2, -1), dim=-1)\n        return p, p @ v", QKV, "weights are needed too"),
        ("return torch.softmax(q @ k.transpose(-2, -1), dim=-2) @ v", QKV, "over the columns"),
        (
            "return scaled_dot_product_attention(q, torch.cat([k, v], 2), torch.cat([v[:, :, :3], k, v[:, :, 3:]], 2))",
            QKV.replace("E", "D"), "regions of different sizes"
        ),
        ("return scaled_dot_product_attention(q, k.relu(), v)", QKV, "in the same"),
        ("return scaled_dot_product_attention(q, nn.functional.pad(k, (0, 1)), v)", QKV.replace("S, D", "S, D + 1"), "same"),
        ("return torch.softmax(torch.cat([q, k], dim=2), dim=2)", QKV, "no keys or values"),
    ],
)  # fmt: skip
def test_what_is_another_thing_is_refused(body: str, inputs: str, why: str) -> None:
    graph = export_graph(task_of(body, inputs))
    names = [op.name for op in graph.ops if not op.name.startswith(("transpose", "slice"))]
    with pytest.raises(NotCovered, match=why):
        analyse(graph, build(graph, names, table))
