"""Rows of matrices that indices pick: programs of one place in all of them come one behind the other."""

from __future__ import annotations

import pytest

from mtmc.optimizations import Version
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import Stage, root_plan
from mtmc.task import task_from_source
from tests.rewrite.interpreting import interpret
from tests.rewrite.stepping import actions_on, version

REFERENCE = """
import torch
from torch import nn

tokens, chosen, width, experts, hidden = {sizes}
VARIANTS = {{
    "small": {{"tokens": 3, "chosen": 2, "width": 32, "experts": 8, "hidden": 24}},
    "odd1": {{"tokens": 2, "chosen": 3, "width": 21, "experts": 5, "hidden": 19}},
    "odd2": {{"tokens": 5, "chosen": 1, "width": 13, "experts": 9, "hidden": 12}},
}}


class Model(nn.Module):
    def __init__(self, experts, width, hidden):
        super().__init__()
        self.weights = nn.Parameter(torch.randn(experts, hidden, width))

    def forward(self, x, routes):
        return {forward}


def get_inputs():
    return [torch.randn(tokens, width), torch.randint(0, experts, (tokens, chosen))]


def get_init_inputs():
    return [experts, width, hidden]
"""
LARGE, MANY, SMALL = "4, 4, 1024, 32, 2048", "1024, 4, 1024, 32, 2048", "4, 4, 64, 32, 96"
PRODUCT = 'torch.einsum("beck,bk->bec", self.weights[routes], x)'
ROWS = "reorder the"


def kernel(forward: str, sizes: str) -> tuple[Version, Stage]:
    """A version with one kernel for all of forward."""
    task = task_from_source(REFERENCE.format(forward=forward, sizes=sizes), "looked_up")
    at = version(task, root_plan(export_graph(task)))
    stage = at.as_kernel(tuple(op.name for op in at.graph.ops), {})
    assert stage is not None
    return at, stage


@pytest.mark.parametrize("forward", [PRODUCT, "self.weights[routes].abs().amax(-1)"])
def test_all_rows_are_made_in_whatever_order(forward: str) -> None:
    source = REFERENCE.format(forward=forward, sizes=LARGE)
    ways = [["fuse", "lower"], ["fuse", "lower", f"{ROWS} index"], ["fuse", "lower", "vectorize"]]
    assert interpret([{"name": "looked_up", "source": source, "ways": ways}]) == {"looked_up": None}


def test_rows_of_large_matrices_start_place_by_place() -> None:
    at, stage = kernel(PRODUCT, LARGE)
    assert dict(stage.schedule)["order"] == "looked_up"
    child = version(at.task, at.plan.with_merged(at.graph, at.plan.stages, stage))
    [action] = [each for each in actions_on(child) if "looked up" in each.sentence]
    assert dict(action.params)["order"] == "rows"


@pytest.mark.parametrize(
    ("forward", "sizes"),
    [(PRODUCT, MANY), (PRODUCT, SMALL), ("self.weights.sum(-1)", LARGE), ("self.weights[routes].sum(2)", LARGE)],
)
def test_other_rows_come_as_they_lie(forward: str, sizes: str) -> None:
    _, stage = kernel(forward, sizes)
    assert "order" not in dict(stage.schedule)
