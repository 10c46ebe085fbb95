"""Products of rows that end within a line, of rows that end with one."""

from __future__ import annotations

import pytest

from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import root_plan
from mtmc.task import task_from_source
from tests.rewrite.interpreting import interpret
from tests.rewrite.stepping import actions_on, after, version

REFERENCE = """
import torch
from torch import nn
import torch.nn.functional as F

rows, inner, columns = {sizes}
VARIANTS = {{
    "small": {{"rows": 5, "inner": 16, "columns": 24}},
    "odd1": {{"rows": 7, "inner": 21, "columns": 19}},
    "odd2": {{"rows": 3, "inner": 1, "columns": 40}},
}}


class Model(nn.Module):
    def __init__(self, inner, columns):
        super().__init__()
        self.layer = nn.Linear(inner, columns)
        self.w = nn.Parameter(torch.randn(inner, columns) / inner**0.5)

    def forward(self, x, y):
        return {forward}


def get_inputs():
    return [torch.randn(rows, inner), torch.randn(inner, columns) / inner**0.5]


def get_init_inputs():
    return [inner, columns]
"""
ODD, EVEN, FEW = "601, 1027, 515", "601, 1024, 512", "601, 129, 515"
WHOLE = "rewrite by algebra: the rows that"
PADDED = {
    "matrices": "x @ y",
    "with work around": "F.gelu((x + 1) @ y) * 2",
    "weights": "torch.mm(x, self.w) + self.w.sum(0)",
    "a layer": "self.layer(x)",
    "a batch": "torch.bmm(torch.stack([x, -x]), torch.stack([y, y * 2]))",
    "of all dimensions but one": "torch.matmul(torch.stack([x, x * 3]), y)",
    "narrow numbers": "(x.half() @ y.half()).float()",
}
KEPT = {
    "rows that are whole": ("x @ y", EVEN),
    "few terms": ("x @ y", FEW),
    "what lies across": ("(y.T @ x.T).T", ODD),
    "a vector": ("x @ y[:, 0]", ODD),
    "several numbers of bytes": ("self.layer(x.double().float())[:, :0]", EVEN),
}


def reference(forward: str, sizes: str) -> str:
    return REFERENCE.format(forward=forward, sizes=sizes)


@pytest.mark.parametrize("name", PADDED)
def test_padded_products_are_right_at_all_shapes(name: str) -> None:
    ways = [[WHOLE, "lower"], [WHOLE, "fuse", "lower"]]
    assert interpret([{"name": name.replace(" ", "_"), "source": reference(PADDED[name], ODD), "ways": ways}]) == {
        name.replace(" ", "_"): None
    }


@pytest.mark.parametrize("name", KEPT)
def test_rows_that_are_whole_or_cheap_are_left_alone(name: str) -> None:
    forward, sizes = KEPT[name]
    task = task_from_source(reference(forward, sizes), "kept")
    at = version(task, root_plan(export_graph(task)))
    assert not [action for action in actions_on(at) if action.sentence.startswith(WHOLE)]


def test_weights_are_padded_once_and_columns_only_where_rows_hold_them() -> None:
    task = task_from_source(reference("self.layer(x)", ODD), "layer")
    at = after(version(task, root_plan(export_graph(task))), WHOLE)[1]
    shapes = {name: tensor.shape for name, tensor in at.graph.values.items() if name.startswith("linear_")}
    assert {name: tuple(size[0] for size in shape) for name, shape in shapes.items()} == {
        "linear_left": (601, 1040),
        "linear_right": (515, 1040),
        "linear_padded": (601, 515),
    }
    assert at.plan.packed
