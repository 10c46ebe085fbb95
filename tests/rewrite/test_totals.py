"""Sums over all elements of what each row's softmax or norm makes: one kernel goes over the rows."""

from __future__ import annotations

import pytest

from mtmc.task import Task, task_from_source
from tests.rewrite.interpreted import apply
from tests.rewrite.interpreting import interpret

REFERENCE = """
import torch
from torch import nn
from torch.nn.functional import kl_div, layer_norm, log_softmax, softmax

N, W = 64, 1000
VARIANTS = {{
    "small": {{"N": 20, "W": 24}},
    "odd1": {{"N": 7, "W": 33}},
    "odd2": {{"N": 1, "W": 9}},
}}


class Model(nn.Module):
    def forward(self, x, y):
        {body}


def get_inputs():
    return [torch.randn(N, W), torch.randn(N, W)]


def get_init_inputs():
    return []
"""
IN_ONE = {
    "divergence": 'return kl_div(log_softmax(x / 2.0, 1), softmax(y / 2.0, 1), reduction="batchmean") * 4.0',
    "of_logs": 'return kl_div(log_softmax(x, 1), log_softmax(y, 1), reduction="sum", log_target=True)',
    "entropy": "p = softmax(x, 1); return -(p * p.log()).sum() / N",
    "mean": "return (layer_norm(x, (W,)) - layer_norm(y, (W,))).square().mean()",
    "of_columns": "return (softmax(x, 0) * y).sum()",
    "beside_rows": "p = softmax(x, 1); return (p * y).sum(), p.amax(1)",
}
APART = {
    "largest": "return softmax(x, 1).amax()",  # no sum
    "of_two_kinds": "return (softmax(x, 1) * softmax(y, 0)).sum()",
}


def task_of(body: str) -> Task:
    return task_from_source(REFERENCE.format(body=body), "totals")


def test_they_are_right_at_all_shapes() -> None:
    cases = [
        {"name": name, "source": REFERENCE.format(body=body), "ways": [["lower", "fuse"]]}
        for name, body in {**IN_ONE, **APART}.items()
    ]
    assert interpret(cases) == {case["name"]: None for case in cases}


@pytest.mark.parametrize("name", IN_ONE)
def test_they_are_one_stage(name: str) -> None:
    [stage] = apply(task_of(IN_ONE[name]), ["lower", "fuse"]).stages
    assert stage.template == "rowwise"


@pytest.mark.parametrize("name", APART)
def test_others_are_not(name: str) -> None:
    assert len(apply(task_of(APART[name]), ["lower", "fuse"]).stages) > 1
