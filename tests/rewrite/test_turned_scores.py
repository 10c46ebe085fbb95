"""Attention whose scores take what lies turned, or is gathered by the distance of row and column."""

from __future__ import annotations

import pytest

from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import graph_of
from mtmc.rewrite.source import print_plan
from mtmc.task import task_from_source
from tests.breadth import share
from tests.rewrite.interpreted import apply
from tests.rewrite.interpreting import interpret

REFERENCE = """
import torch
from torch import nn

B, H, Q, S, D, F = 2, 4, 256, 256, 64, 32
VARIANTS = {{
    "small": {{"B": 2, "H": 2, "Q": 20, "S": {small}, "D": 16, "F": 8}},
    "odd1": {{"B": 1, "H": 3, "Q": 13, "S": {odd1}, "D": 9, "F": 5}},
    "odd2": {{"B": 3, "H": 2, "Q": 7, "S": {odd2}, "D": 11, "F": 9}},
}}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.far = F
        {parameters}

    def forward(self, q, k, v):
        rows = torch.arange(q.shape[2], device=q.device)[:, None]
        cols = torch.arange(k.shape[2], device=q.device)
        {bias}
        return torch.softmax((q @ k.transpose(2, 3) + bias) * D**-0.5, dim=-1) @ v


def get_inputs():
    return [torch.randn(B, H, Q, D), torch.randn(B, H, S, D), torch.randn(B, H, S, D)]


def get_init_inputs():
    return []
"""
CROSS = ("29", "17", "11")
SELF = ("20", "13", "7")
OF_COLUMNS = "bias = torch.gather(k @ self.table.transpose(1, 2), 3, near.expand(B, H, -1, -1)).transpose(2, 3)"
OF_ROWS = "bias = torch.gather(q @ self.table.transpose(1, 2), 3, near.expand(B, H, -1, -1))"
CASES = {
    # name: sizes, parameters, lines that make the bias, whether it is read turned, whether its index is a place
    "distances_of_columns": (
        SELF, "self.table = nn.Parameter(torch.randn(H, 2 * F, D))",
        ("near = (rows - cols + F).clamp(0, 2 * F - 1)", OF_COLUMNS), True, True,
    ),
    "distances_of_rows": (
        CROSS, "self.table = nn.Parameter(torch.randn(H, 2 * F, D))",
        ("near = (rows - cols + F).clamp(0, 2 * F - 1)", OF_ROWS), False, True,
    ),
    "held_before_they_are_moved": (
        CROSS, "self.table = nn.Parameter(torch.randn(H, 2 * F + 1, D))",
        ("near = torch.clamp(cols - rows, -self.far, self.far) + self.far", OF_ROWS), False, True,
    ),
    "maximum_of_a_minimum": (
        SELF, "self.table = nn.Parameter(torch.randn(H, 2 * F, D))",
        ("near = (cols - rows + F).clamp_max(2 * F - 1).clamp_min(0)", OF_COLUMNS), True, True,
    ),
    "all_distances": (
        SELF, "self.table = nn.Parameter(torch.randn(H, 2 * S - 1, D))",
        ("near = rows - cols + S - 1", OF_COLUMNS), True, True,
    ),
    "a_table_with_more_than_that": (
        SELF, "self.table = nn.Parameter(torch.randn(H, 600, D))", ("near = rows - cols + 300", OF_COLUMNS), True, False,
    ),
    "distances_that_jump": (
        SELF, "self.table = nn.Parameter(torch.randn(H, S, D))",
        ("near = (rows - cols).abs()", OF_COLUMNS), True, False,
    ),
    "columns_and_rows": (
        CROSS, "self.bias = nn.Parameter(torch.randn(H, S, Q))", ("bias = self.bias.transpose(1, 2)",), True, None
    ),
    "columns_of_each_head": (
        CROSS, "self.bias = nn.Parameter(torch.randn(S, H, Q))", ("bias = self.bias.permute(1, 2, 0)",), True, None
    ),
    "the_same_of_all_heads": (
        CROSS, "self.bias = nn.Parameter(torch.randn(S, Q))", ("bias = self.bias.t() * 2",), True, None
    ),
    "heads_last": (
        CROSS, "self.bias = nn.Parameter(torch.randn(Q, S, H))", ("bias = self.bias.permute(2, 0, 1)",), False, None
    ),
    "of_rows_alone": (
        CROSS, "self.bias = nn.Parameter(torch.randn(H, 1, Q))", ("bias = self.bias.transpose(1, 2)",), False, None
    ),
}  # fmt: skip


def source(case: str) -> str:
    (small, odd1, odd2), parameters, lines, *_ = CASES[case]
    sizes = {"small": small, "odd1": odd1, "odd2": odd2}
    return REFERENCE.format(parameters=parameters, bias="\n        ".join(lines), **sizes)


def attention_of(case: str) -> str:
    """The text of the attention's kernel."""
    task = task_from_source(source(case), case)
    plan = apply(task, ["fuse", "lower"])
    text = print_plan(task, graph_of(export_graph(task), plan), plan).source
    kernels = [part.split("\ndef launch")[0] for part in text.split("@triton.jit")[1:]]
    (kernel,) = [kernel for kernel in kernels if "tl.exp2" in kernel]
    return kernel


def test_kernels_match_torch() -> None:
    some = share(sorted(CASES), 6)
    cases = [{"name": name, "source": source(name), "ways": [["fuse", "lower"]]} for name in some]
    assert interpret(cases) == dict.fromkeys(some)


@pytest.mark.parametrize("case", CASES)
def test_what_lies_turned_is_read_so(case: str) -> None:
    assert ("tl.trans(tl.broadcast_to" in attention_of(case)) == CASES[case][3]


@pytest.mark.parametrize("case", [case for case in CASES if CASES[case][4] is not None])
def test_an_index_of_places_is_none_that_is_loaded(case: str) -> None:
    assert ("tl.int64)" not in attention_of(case).split("queries =")[1]) == CASES[case][4]
