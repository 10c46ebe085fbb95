"""Sizes of one tensor that come out the same at the first sets of shapes, and differ at another one."""

from __future__ import annotations

import pytest

from mtmc.evaluate.lab import LabSettings
from mtmc.optimizations import legal_moves as moves_of
from mtmc.protocols import EvaluationRequest
from mtmc.rewrite.exported import MAX_VARIANTS, export_graph
from mtmc.rewrite.plan import root_plan
from mtmc.rewrite.source import print_plan
from mtmc.task import Task, task_from_source
from tests.rewrite.stepping import version

SOURCE = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(4, 6, 3, stride=STRIDE)

    def forward(self, x):
        return FORWARD


def get_inputs():
    return [torch.randn(N, 4, H, W)]


def get_init_inputs():
    return []


N, H, W = 8, 64, 64
VARIANTS = {
    "small": {"N": 2, "H": 8, "W": 8},
    "odd1": {"N": 3, "H": 8, "W": 9},
    "odd2": {"N": 1, "H": 13, "W": 12},
    "odd3": {"N": 2, "H": 11, "W": LAST},
}
"""
CASES = {
    "pooled": ("torch.tanh(F.max_pool2d(torch.sigmoid(x), 4))", 1),
    "strided": ("torch.relu(self.layer(x)).amax(3) + self.layer(x).exp().sum(3)", 4),
    "averaged": ("F.avg_pool2d(x * 2, 4).softmax(1)", 1),
}


def task(name: str, last: int = 16) -> Task:
    forward, stride = CASES[name]
    text = SOURCE.replace("FORWARD", forward).replace("STRIDE", str(stride)).replace("LAST", str(last))
    return task_from_source(text, name)


@pytest.mark.parametrize("name", CASES)
def test_a_set_of_shapes_that_tells_sizes_apart_is_exported_too(name: str) -> None:
    assert len(export_graph(task(name)).variants) == MAX_VARIANTS + 1
    assert len(export_graph(task(name, 11)).variants) == MAX_VARIANTS


def test_versions_are_right_there() -> None:
    with LabSettings(workers=1).open() as lab:
        for name in CASES:
            start = version(task(name), root_plan(export_graph(task(name))))
            move = next(each for each in moves_of(start) if each.action.kind in ("fuse", "lower"))
            assert move.child is not None
            request = EvaluationRequest(start.task, print_plan(start.task, start.graph, move.child).source, 0, "verify")
            [outcome] = lab.evaluate([request])
            assert outcome.ok, (name, outcome)
