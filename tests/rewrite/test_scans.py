"""Scans in one kernel: several of them, with what moves elements around them, and sums of exponentials that stay exact."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import graph_of
from mtmc.rewrite.source import print_plan
from mtmc.task import task_from_source
from tests.rewrite.interpreted import apply
from tests.rewrite.interpreting import interpret

REFERENCE = """
import torch
from torch import nn

A, B, C = 8, 300, 64
VARIANTS = {{
    "small": {{"A": 2, "B": 40, "C": 6}},
    "odd1": {{"A": 3, "B": 17, "C": 5}},
    "odd2": {{"A": 1, "B": 67, "C": 9}},
}}


class Model(nn.Module):
    def forward(self, x):
        {body}


def get_inputs():
    return [{scale} * torch.randn(A, B, 2 * C)]


def get_init_inputs():
    return []
"""
REDUCED = {
    "sums_and_what_they_come_to": ("1.0", "s = x.cumsum(1)", "return s * 2.0, s.sum(1) + 1.0, (s * s).mean(1)"),
    "the_largest_of_sums": ("1.0", "return x.cumsum(-1).amax(-1, keepdim=True).exp()"),
    "the_smallest_of_what_is_scanned": ("1.0", "y = x.neg()", "return y.cumsum(1), y.amin(1)"),
    "of_products_before_each": (
        "0.3",
        "p = (1.0 - x.abs()).cumprod(1)",
        "seen = torch.cat((torch.ones_like(p[:, :1]), p[:, :-1]), 1) * x.abs()",
        "return 1.0 - seen.sum(1), (seen * x).sum(1), seen",
    ),
}
"""With reductions of the rows in the same kernel."""
CASES = {
    "logcumsumexp": ("1.0", "return x.logcumsumexp(-1)"),
    "logcumsumexp_of_interleaved_rows": ("1.0", "return torch.logcumsumexp(x * 0.5, 1) + 1.0"),
    "logcumsumexp_of_far_apart": ("3000.0", "return x.logcumsumexp(1)"),
    "logcumsumexp_that_rises": ("1.0", "return (x + torch.arange(B, device=x.device)[:, None] * 90.0).logcumsumexp(1)"),
    "logcumsumexp_that_falls": ("1.0", "return (x - torch.arange(B, device=x.device)[:, None] * 90.0).logcumsumexp(1)"),
    "logcumsumexp_from_the_end": ("1.0", "return x.flip(2).logcumsumexp(2).flip(2)"),
    "one_after_another": ("0.1", "kept = -x.abs().cumsum(1)", "return torch.exp(kept + (x - kept).logcumsumexp(1))"),
    "side_by_side": ("0.1", "return x.cumsum(1) * (1.0 + x).cumprod(1)"),
    "of_chunks": ("1.0", "a, b = x.chunk(2, dim=-1)", "return a.cumsum(1) + (b.relu() + 0.5).log().logcumsumexp(1)"),
    "of_a_permutation": ("1.0", "return (x.transpose(1, 2) * 2.0).cumsum(-1)"),
    "of_shifted_columns": ("1.0", "return nn.functional.pad(x, (1, -1)).cumsum(-1) - x.roll(3, -1)"),
    "of_other_dimensions": ("1.0", "return (x.unflatten(2, (2, C)) * 2.0).flatten(2).cumsum(1)"),
}


def source(case: str) -> str:
    scale, *lines = {**CASES, **REDUCED}[case]
    text = REFERENCE.replace("A, B, C = 8,", "A, B, C = 256,") if case in REDUCED else REFERENCE
    return text.format(scale=scale, body="\n        ".join(lines))


def test_they_are_right_at_all_shapes() -> None:
    cases = [{"name": name, "source": source(name), "ways": [["fuse", "lower"], ["lower"]]} for name in CASES]
    assert interpret(cases) == dict.fromkeys(CASES)


def test_a_number_that_is_none_is_the_largest_of_its_row() -> None:
    text = source("the_largest_of_sums").replace(
        "return x.cumsum", "return torch.where(x > 2, x.log() * 0 / 0, 1.0).cumsum"
    )
    case = {"name": "largest", "source": text, "ways": [["fuse", "lower"]], "same": True}
    assert interpret([case]) == {"largest": None}


def ways(case: str) -> list[str]:
    return ["rewrite by algebra: cat", "fuse", "lower"] if "before_each" in case else ["fuse", "lower"]


def test_rows_are_reduced_on_the_way_and_right_at_all_shapes() -> None:
    lowered = [
        "lower",
        "fuse",
    ]  # a kernel whose rows are in registers, and has no columns at a time, is fused with a scan
    cases = [
        {"name": name, "source": source(name), "ways": [ways(name), [*ways(name)[:-2], *lowered]]} for name in REDUCED
    ]
    assert interpret(cases) == dict.fromkeys(REDUCED)


@pytest.mark.parametrize("case", REDUCED)
def test_scans_and_reductions_of_their_rows_are_one_kernel(case: str) -> None:
    plan = apply(task_from_source(source(case), case), ways(case))
    assert [stage.template for stage in plan.stages if not stage.is_torch] == ["scan"]


@pytest.mark.parametrize(
    ("body", "kernels"),
    [
        ("s = x.cumsum(1); return s / s.abs().sum(1, keepdim=True)", ["scan", "pointwise"]),
        ("return x.cumsum(1).argmax(1)", ["scan", "rowwise"]),
        ("return x.cumsum(1).sum(0)", ["scan", "rowwise"]),
        ("return x.flip(1).cumsum(1).flip(1).sum(1)", ["scan", "rowwise"]),
    ],
)
def test_what_waits_for_a_row_or_is_of_other_rows_is_another_kernel(body: str, kernels: list[str]) -> None:
    many = REFERENCE.replace("A, B, C = 8,", "A, B, C = 256,")
    plan = apply(task_from_source(many.format(scale="1.0", body=body), "apart"), ["fuse", "lower"])
    assert [stage.template for stage in plan.stages if not stage.is_torch] == kernels


def test_few_long_rows_are_shared_and_reduced_by_another_kernel() -> None:
    text = REFERENCE.replace("A, B, C = 8, 300, 64", "A, B, C = 2, 20000, 16")
    plan = apply(task_from_source(text.format(scale="0.1", body="return x.cumsum(1).sum(1)"), "few"), ["fuse", "lower"])
    assert [stage.template for stage in plan.stages if not stage.is_torch] == ["scan", "rowwise"]


@pytest.mark.parametrize("case", CASES)
def test_each_is_one_kernel(case: str) -> None:
    plan = apply(task_from_source(source(case), case), ["fuse", "lower"])
    kernels = [stage.template for stage in plan.stages if not stage.is_torch]
    assert kernels == ["scan"]


def split(case: str, programs: int) -> str:
    """A version of a case in which so many programs share each row, 16 columns at a time."""
    task = task_from_source(source(case), case)
    plan = apply(task, ["fuse", "lower"])
    [stage] = [each for each in plan.stages if each.template == "scan"]
    settings = {**dict(stage.schedule), "block_cols": 16, "split": programs}
    plan = plan.with_stage(stage, replace(stage, schedule=tuple(sorted(settings.items()))))
    return print_plan(task, graph_of(export_graph(task), plan), plan).source


def test_programs_share_columns() -> None:
    cases = [
        {"name": f"{name}_{programs}", "source": source(name), "candidate": split(name, programs)}
        for name in CASES
        for programs in (2, 8)
    ]
    assert interpret(cases) == {case["name"]: None for case in cases}


def test_a_scan_of_a_scan_takes_a_kernel_more() -> None:
    assert [split(name, 4).count("@triton.jit") for name in ("of_a_permutation", "side_by_side")] == [2, 3]
    assert split("one_after_another", 4).count("@triton.jit") == 6, "three rules, both beginnings, the result"


def test_fused_stages_take_the_blocks_of_what_they_become() -> None:
    """Not those of the first scan alone, of which a program has four times as many columns at a time."""
    plan = apply(task_from_source(source("one_after_another"), "blocks"), ["fuse", "lower"])
    [stage] = [each for each in plan.stages if each.template == "scan"]
    assert stage.number("block_cols") == 16


def test_few_rows_are_shared_from_the_start() -> None:
    text = REFERENCE.replace("A, B, C = 8, 300, 64", "A, B, C = 2, 20000, 16").format(
        scale="0.1", body="return x.cumsum(1)"
    )
    plan = apply(task_from_source(text, "few"), ["lower"])
    [stage] = [each for each in plan.stages if each.template == "scan"]
    assert stage.number("split") == 64


def test_what_reads_a_scan_at_other_places_is_another_kernel() -> None:
    text = REFERENCE.format(scale="1.0", body="return x.cumsum(-1).roll(1, -1) * 2.0")
    plan = apply(task_from_source(text, "rolled"), ["fuse", "lower"])
    assert [stage.template for stage in plan.stages if not stage.is_torch] == ["scan", "pointwise"]


def test_what_has_another_shape_than_the_scan_is_another_kernel() -> None:
    text = REFERENCE.format(scale="1.0", body="y = x[:, :, 0].cumsum(-1); return y[:, :, None] - y[:, None, :]")
    plan = apply(task_from_source(text, "apart"), ["fuse", "lower"])
    assert [stage.template for stage in plan.stages if not stage.is_torch] == ["scan", "pointwise"]


def test_infinite_numbers_are_as_torch_has_them() -> None:
    body = (
        "x = torch.where(x > 1.5, float('inf'), torch.where(x < 1.0, float('-inf'), x))",
        "return torch.where(x < 1.2, x, float('nan')).logcumsumexp(1), x.logcumsumexp(1)",
    )
    text = REFERENCE.format(scale="1.0", body="\n        ".join(body))
    case = {"name": "infinite", "source": text, "ways": [["lower"]], "same": True}
    assert interpret([case]) == {"infinite": None}
