"""Reductions over a few elements that lie apart are steps on elements; others go over rows, of which many are at hand."""

from __future__ import annotations

import pytest

from mtmc.task import Task, task_from_source
from tests.rewrite.interpreted import apply
from tests.rewrite.interpreting import interpret

REFERENCE = """
import torch
from torch import nn

N, W, K = 64, 48, 6
VARIANTS = {{
    "small": {{"N": 5, "W": 8, "K": 3}},
    "odd1": {{"N": 7, "W": 33, "K": 2}},
    "odd2": {{"N": 1, "W": 9, "K": 4}},
}}


class Model(nn.Module):
    def forward(self, x, y, places):
        {body}


def get_inputs():
    return [torch.randn(N, 4, W), torch.randn(N, K, W), torch.randint(0, N, (N, 4))]


def get_init_inputs():
    return []
"""
POINTWISE = {
    "sum": "return x.sum(1) * 2.0",
    "mean": "return torch.relu(x).mean(1, keepdim=True) + x[:, :1]",
    "product": "return x.prod(1)",
    "largest": "return x.amax(1) - x.amin(1)",
    "with_nan": "return torch.where(x > 1.0, float('nan'), x).amax(1)",
    "picked": "return (x[:, 0][places] * torch.softmax(places.float(), 1)[..., None].detach()).sum(1)",
    "halves": "return x.unflatten(1, (2, 2)).sum(2).permute(0, 2, 1)",
    "of_one_a_batch": "return (x * y.mean(1, keepdim=True)[:, :, :1]).sum(1)",
}
ROWS = {
    "varying": "return y.sum(1)",
    "last": "return x[..., :4].sum(-1)",
    "used_again": "return torch.softmax(x, 1)",
    "which": "return x.argmax(1)",
}


def task_of(body: str) -> Task:
    return task_from_source(REFERENCE.format(body=body), "few")


def test_they_are_right_at_all_shapes() -> None:
    cases = [
        {"name": name, "source": REFERENCE.format(body=body), "ways": [["lower", "fuse"]], "same": name == "with_nan"}
        for name, body in {**POINTWISE, **ROWS}.items()
    ]
    assert interpret(cases) == {case["name"]: None for case in cases}


@pytest.mark.parametrize("name", ["sum", "mean", "product", "largest", "with_nan"])
def test_they_are_elementwise_work(name: str) -> None:
    [stage] = apply(task_of(POINTWISE[name]), ["lower", "fuse"]).stages
    assert stage.template == "pointwise"


@pytest.mark.parametrize("name", ROWS)
def test_others_go_over_rows(name: str) -> None:
    plan = apply(task_of(ROWS[name]), ["lower", "fuse"])
    assert "rowwise" in [stage.template for stage in plan.stages]


def test_few_columns_are_gone_through_one_by_one() -> None:
    [stage] = apply(task_of(ROWS["varying"]), ["lower"]).stages
    schedule = dict(stage.schedule)
    assert (schedule["passes"], schedule["block_cols"], schedule["block_rows"]) == ("loop", 1, 128)
