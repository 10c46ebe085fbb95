"""Results that a kernel writes where the tensor lies that it reads: an optimizer's step, a running mean."""

from __future__ import annotations

import pytest

from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.source import print_plan
from mtmc.task import task_from_source
from tests.rewrite.interpreted import apply
from tests.rewrite.interpreting import interpret

REFERENCE = """
import torch
from torch import nn

N, M = 64, 48
VARIANTS = {{"small": {{"N": 6, "M": 10}}, "odd1": {{"N": 3, "M": 33}}}}


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("mean", torch.randn(N, M))

    def forward(self, weight, gradient):
        {body}


def get_inputs():
    return [torch.randn(N, M), torch.randn(N, M)]


def get_init_inputs():
    return [M]
"""
KEPT = {
    "step": ("weight.sub_(0.1 * gradient); return weight", 1),
    "momentum": (
        "self.mean.mul_(0.9).add_(gradient); weight.sub_(0.1 * (gradient + 0.9 * self.mean)); return weight",
        2,
    ),
    "running": ("self.mean.lerp_(gradient, 0.1); return self.mean * 2.0", 1),
    "with_columns": ("weight.sub_(0.1 * gradient * gradient[0]); return gradient + 1.0", 1),
}
COPIED = {
    "elsewhere_too": "weight.add_(torch.flip(weight, (0,))); return weight * 2.0",
    "of_columns": "weight.add_(weight[0].clone()); return weight",
    "returned_before": "old = weight * 1.0; weight.add_(gradient); return old + weight.flip(1)",
}


def text(body: str) -> str:
    return REFERENCE.format(body=body.replace("; ", "\n        "))


def source_of(body: str) -> str:
    task = task_from_source(text(body), "places")
    return print_plan(task, export_graph(task), apply(task, ["lower", "fuse"])).source


def test_they_are_right_at_all_shapes() -> None:
    bodies = {**{name: body for name, (body, _) in KEPT.items()}, **COPIED}
    ways = [["lower", "fuse"], ["lower", "fuse", "launch the compiled kernels directly"]]
    cases = [{"name": name, "source": text(body), "ways": ways[: 1 + (name in KEPT)]} for name, body in bodies.items()]
    assert interpret(cases) == {case["name"]: None for case in cases}


@pytest.mark.parametrize("name", KEPT)
def test_they_lie_where_the_old_ones_lay(name: str) -> None:
    body, count = KEPT[name]
    source = source_of(body)
    assert source.count("# which is changed where it lies") == count
    assert source.count(".copy_(") == source.count(":  # which had gaps in memory") == count
    [bumped] = [
        line for line in source.splitlines() if "increment_version(" in line
    ]  # else `pack` would keep stale ones
    assert bumped.count(",") == count - 1


@pytest.mark.parametrize("name", COPIED)
def test_what_is_read_at_other_places_is_copied(name: str) -> None:
    source = source_of(COPIED[name])
    assert "which is changed where it lies" not in source and "increment_version" not in source
