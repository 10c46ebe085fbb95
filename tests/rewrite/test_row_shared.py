"""Rows that some programs hold, each a piece, and wait for each other."""

from __future__ import annotations

from mtmc.task import Task, task_from_source
from tests.rewrite.interpreting import interpret

REFERENCE = """
import torch
from torch import nn
import torch.nn.functional as F

rows, columns = 6, 20000
VARIANTS = {{
    "small": {{"rows": 3, "columns": 640}},
    "odd1": {{"rows": 2, "columns": 20001}},
    "odd2": {{"rows": 1, "columns": 270000}},
}}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(2, 4)

    def forward(self, x, y):
        {body}


def get_inputs():
    return [torch.randn({shape}), torch.randn({shape})]


def get_init_inputs():
    return []
"""
BODIES = {
    "softmax": "return torch.softmax(x * y, -1)",
    "log_softmax": "return torch.log_softmax(x, -1) + y",
    "layer_norm": "return F.layer_norm(x + y, (columns,))",
    "rms_norm": "return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * y",
    "two_sums": "return x / x.abs().sum(-1, keepdim=True) + y / y.abs().amax(-1, keepdim=True)",
    "rows_too": "s = (x * y).sum(-1, keepdim=True); return x - s, s.squeeze(-1)",
    "sums_alone": "return (x - x.mean(-1, keepdim=True)).pow(2).sum(-1), y.amax(-1)",
    "entropy": "return F.cross_entropy(x, (y[:, 0].abs() * 100).long().clamp(0, 99), reduction='none')",
}
GROUPS = "return F.silu(self.norm(x)) + y"


def source(name: str) -> str:
    if name == "group_norm":
        return REFERENCE.format(body=GROUPS, shape="rows, 4, columns")
    return REFERENCE.format(body=BODIES[name], shape="rows, columns")


def task_of(name: str) -> Task:
    return task_from_source(source(name), name)


def test_they_are_right_at_all_shapes() -> None:
    """Of one, three and, in larger pieces, seventeen programs a row; groups of channels have twice as many columns."""
    cases = [
        {"name": name, "source": source(name), "ways": [["lower", "fuse", "share each row"]], "waits": True}
        for name in (*BODIES, "group_norm")
    ]
    assert interpret(cases) == {case["name"]: None for case in cases}
