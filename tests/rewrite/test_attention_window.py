"""Attention whose masks are made of places: a program makes them itself, and looks at no block that no row can see."""

from __future__ import annotations

from functools import cache

import pytest

from mtmc.rewrite.expansion import build
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.operators.table import FREE, table
from mtmc.rewrite.templates.attention_masks import Window
from mtmc.rewrite.templates.attention_window import window_of
from mtmc.rewrite.templates.softmax_product import analyse
from mtmc.task import Task, task_from_source
from tests.rewrite.interpreting import interpret
from tests.rewrite.printing import attention_text

REFERENCE = """
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

S, T, W = 128, 160, 40
VARIANTS = {{"small": {{"S": 48, "T": 64, "W": 5}}, "odd1": {{"S": 50, "T": 71, "W": 20}}}}


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width

    def forward(self, q, k, v, slopes):
        row, col = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None, :]
        {body}


def get_inputs():
    return [torch.randn(2, 2, S, 8), torch.randn(2, 2, T, 8), torch.randn(2, 2, T, 8), torch.rand(2)]


def get_init_inputs():
    return [W]
"""
BY_MASK = "return scaled_dot_product_attention(q, k, v, attn_mask={})"
SCORES = "q @ k.transpose(-2, -1) * 0.3"
CASES: dict[str, tuple[str, tuple[int, ...] | None, tuple[int, ...] | None]] = {
    "sliding": (BY_MASK.format("(row - col >= 0) & (row - col < self.width)"), (0, 0, 0), (39, 4, 19)),
    "ahead": (BY_MASK.format("(col - row > -3) & (row + self.width > col)"), (-39, -4, -19), (2, 2, 2)),
    "below": (BY_MASK.format("col <= row + 7"), (-7, -7, -7), None),
    "left_out": (
        f"scores = ({SCORES}).masked_fill((col > row) | (row > col + self.width), float('-inf'))\n"
        "        return torch.softmax(scores, dim=-1) @ v", (0, 0, 0), (40, 5, 20),
    ),
    "bias": (BY_MASK.format("torch.zeros(q.shape[2], k.shape[2]).masked_fill(col > row, float('-inf'))"), (0, 0, 0), None),
    "slopes": (
        f"bias = (slopes[:, None, None] * (col - row)).masked_fill(col > row, float('-inf'))\n"
        f"        return torch.softmax({SCORES} + bias, dim=-1) @ v", (0, 0, 0), None,
    ),
    "documents": (
        "same = (q[:, 0, :, 0] > 0)[:, :, None] == (k[:, 0, :, 0] > 0)[:, None, :]\n"
        "        bias = torch.zeros(same.shape).masked_fill(~(same & (row > col - 2) | (col == 0)), float('-inf'))\n"
        "        return scaled_dot_product_attention(q, k, v, attn_mask=bias[:, None])", None, None,
    ),
    "finite": (
        f"scores = ({SCORES}).masked_fill(col > row, -1e4)\n        return torch.softmax(scores, dim=-1) @ v", None, None
    ),
    "upper_triangle": (
        "later = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).triu(1)\n"
        f"        return torch.softmax(({SCORES}).masked_fill(later, float('-inf')), dim=-1) @ v", (0, 0, 0), None,
    ),
    "lower_triangle": (BY_MASK.format("torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(3)"), (-3, -3, -3), None),
    "band": (
        BY_MASK.format("torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(3).triu(-8)"), (-3, -3, -3), (8, 8, 8)
    ),
    "infinite_triangle": (
        "bias = torch.full((q.shape[2], k.shape[2]), float('-inf')).triu(2)\n"
        f"        return torch.softmax({SCORES} + bias, dim=-1) @ v", (-1, -1, -1), None,
    ),
    "triangle_of_ones": (
        "bias = torch.ones(q.shape[2], k.shape[2]).triu(2)\n"
        f"        return torch.softmax({SCORES} + bias, dim=-1) @ v", None, None,
    ),
    "triangle_of_a_mask": (
        "seen = ((col > 3) | (row < 5)).tril(0)\n"
        f"        return torch.softmax(({SCORES}).masked_fill(~seen, float('-inf')), dim=-1) @ v", (0, 0, 0), None,
    ),
    "outside_of_a_mask": (
        "seen = ((col > 3) | (row < 5)).tril(-1)\n"
        f"        return torch.softmax(({SCORES}).masked_fill(seen, float('-inf')), dim=-1) @ v", None, None,
    ),
    "one_of_two": (BY_MASK.format("(row - col >= 0) | (col < 4)"), None, None),
}  # fmt: skip


@cache
def task_of(name: str) -> Task:
    return task_from_source(REFERENCE.format(body=CASES[name][0]), name)


def covered(task: Task) -> list[str]:
    """The ops of the kernel: all, or all but views, and places, which it makes itself."""
    ops = export_graph(task).ops
    whole = "same" in task.source
    return [op.name for op in ops if whole or (op.target not in FREE and "arange" not in op.target)]


def source_of(name: str, settings: dict[str, int | str]) -> str:
    return attention_text(task_of(name), covered(task_of(name)), settings)


@pytest.mark.parametrize("name", CASES)
def test_what_rows_can_see(name: str) -> None:
    """row - col: from `low` to `high` where it is seen, e.g. 0 to 39 for a window of 40."""
    graph = export_graph(task_of(name))
    body = build(graph, covered(task_of(name)), table)
    _, low, high = CASES[name]
    few = [window if window is None else window[: len(graph.variants)] for window in (low, high)]
    assert window_of(graph, body, analyse(graph, body)) == Window(*few)


def test_attention_with_masks_of_places_is_right() -> None:
    tile = {"block_m": 16, "block_n": 16}
    ways: dict[str, tuple[str, dict[str, int | str]]] = {name: (name, {**tile}) for name in CASES}
    ways["described"] = ("sliding", {**tile, "operands": "descriptors"})
    ways["all"] = ("ahead", {"block_m": 32, "block_n": 16, "masks": "all"})
    cases = [
        {"name": way, "source": task_of(name).source, "candidate": source_of(name, settings)}
        for way, (name, settings) in ways.items()
    ]
    assert interpret(cases) == dict.fromkeys(ways)
    text = source_of("sliding", {**tile})
    assert "arange(q.shape" not in text and "range(first, whole, BLOCK_N)" in text
    assert "first = " not in source_of("finite", {**tile})
