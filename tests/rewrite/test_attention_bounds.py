"""Attention over sequences of lengths of their own, and over documents in one row: no block is read that no row can see."""

from __future__ import annotations

from functools import cache

import pytest

from mtmc.rewrite.expansion import build
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.operators.table import table
from mtmc.rewrite.templates.attention_window import window_of
from mtmc.rewrite.templates.softmax_product import analyse
from mtmc.task import Task, task_from_source
from tests.breadth import share
from tests.rewrite.interpreting import interpret
from tests.rewrite.printing import attention_text

REFERENCE = """
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

B, H, G, Q, K = 4, 4, 2, {queries}, 160
VARIANTS = {{
    "small": {{"B": 3, "H": 4, "G": 2, "Q": {queries}, "K": 64}},
    "odd1": {{"B": 2, "H": 3, "G": 1, "Q": {queries}, "K": 71}},
}}


class Model(nn.Module):
    def forward(self, q, k, v, lengths, starts, rows, cols, bias):
        at, row = torch.arange(k.shape[2]), torch.arange(q.shape[2])
        {body}


def get_inputs():
    torch.manual_seed(torch.randint(99, ()).item())
    heads = [torch.randn(B, H, Q, 8), torch.randn(B, G, K, 8), torch.randn(B, G, K, 8)]
    lengths = torch.randint(1, K + 1, (B,))
    starts = torch.tensor([0, 9, 9, 17, K], dtype=torch.int32)
    lengths[-1] = {last}
    rows, cols = torch.randint(0, 5, (B, Q)) * 3 - 4, torch.randint(0, 9, (B, K)).sort(1).values - 4
    return [*heads, lengths, starts, rows, cols{order}, torch.randn(H, K)]


def get_init_inputs():
    return []
"""
MASK = "return scaled_dot_product_attention(q, k, v, attn_mask={}, enable_gqa=True)"
SHORT = MASK.format("(at < lengths[:, None])[:, None, None]")
SCORES = "q.unflatten(1, (G, -1)).flatten(2, 3) @ k.transpose(-2, -1)"
CASES: dict[str, tuple[int, str, str, tuple[int, int]]] = {
    "lengths": (1, "0", SHORT, (1, 0)),
    "many_queries": (35, "0", SHORT, (1, 0)),
    "inclusive": (20, "48", MASK.format("(lengths[:, None] >= at)[:, None, None]"), (1, 0)),
    "from_on": (20, "49", MASK.format("((at + 3 > lengths[:, None]) & (at <= 60))[:, None, None]"), (1, 0)),
    "left_out": (
        2, "1", f"scores = ({SCORES}).masked_fill(at >= lengths[:, None, None, None], float('-inf'))\n"
        "        return torch.softmax(scores, -1) @ v", (1, 0),
    ),
    "positions": (20, "7", MASK.format("(at <= lengths[:, None, None] + row[:, None] - 9)[:, None]"), (1, 0)),
    "bias_of_heads": (3, "0", MASK.format("bias[:, None] + torch.zeros(B, 1, 1, K).masked_fill(at >= lengths[:, None, "
                      "None, None], float('-inf'))"), (1, 0)),
    "documents": (35, "0", MASK.format("(rows[:, :, None] == cols[:, None])[:, None]"), (0, 1)),
    "documents_in_any_order": (
        35, "0", MASK.format("((cols[:, None] == rows[:, :, None]) & (row[:, None] + 50 >= at))[:, None]"), (0, 1)
    ),
    "of_one_tensor": (50, "0", MASK.format("(cols[:, :50, None] == cols[:, None])[:, None]"), (0, 1)),
    "borders": (
        40, "0", "document = (starts[1:] <= row[:, None]).sum(-1)\n        low, high = starts[document], "
        "starts[document + 1]\n        " + MASK.format("(at >= low[:, None]) & (at < high[:, None])"), (2, 0),
    ),
    "other_number": (20, "0", MASK.format("(at != lengths[:, None])[:, None, None]"), (0, 0)),
    "one_of_two": (20, "0", MASK.format("((at < lengths[:, None]) | (at == 3))[:, None, None]"), (0, 0)),
    "made_finite_again": (
        2, "0", f"scores = ({SCORES}).masked_fill(at >= lengths[:, None, None, None], float('-inf'))\n"
        "        return torch.softmax(scores.clamp(min=-2.0), -1) @ v", (0, 0),
    ),
    "replaced": (
        2, "0", f"scores = ({SCORES}).masked_fill(at >= lengths[:, None, None, None], float('-inf'))\n"
        "        return torch.softmax(torch.where(at > 40, 0.5, scores), -1) @ v", (0, 0),
    ),
    "bias_is_no_mask": (
        2, "0", f"bias = torch.zeros(B, 1, 1, K).masked_fill(at >= lengths[:, None, None, None], float('-inf'))\n"
        f"        return torch.softmax({SCORES} + bias.clamp(min=-2.0), -1) @ v", (0, 0),
    ),
    "finite": (
        2, "0", f"scores = ({SCORES}).masked_fill(at >= lengths[:, None, None, None], -1e4)\n"
        "        return torch.softmax(scores, -1) @ v", (0, 0),
    ),
}  # fmt: skip


@cache
def task_of(name: str) -> Task:
    queries, last, body, _ = CASES[name]
    order = "[:, torch.randperm(K)]" if "any_order" in name else ""
    return task_from_source(REFERENCE.format(queries=queries, last=last, body=body, order=order), name)


def covered(task: Task) -> list[str]:
    """The ops of the kernel: all but what makes the borders of documents, and views of queries."""
    ops = export_graph(task).ops
    before = next((at + 1 for at, op in enumerate(ops) if op.target.startswith("aten.sum")), 0)
    return [op.name for op in ops[before:] if not op.name.startswith(("unflatten", "flatten"))]


def source_of(name: str, settings: dict[str, int | str]) -> str:
    return attention_text(task_of(name), covered(task_of(name)), settings)


@pytest.mark.parametrize("name", CASES)
def test_what_masks_say_of_columns(name: str) -> None:
    """How many bounds of columns there are, and how many pairs of something that a row and a column have in common."""
    graph = export_graph(task_of(name))
    body = build(graph, covered(task_of(name)), table)
    found = window_of(graph, body, analyse(graph, body))
    assert (len(found.bounds), len(found.pairs)) == CASES[name][3]


def test_attention_of_bounded_columns_is_right() -> None:
    tile: dict[str, int | str] = {"block_m": 16, "block_n": 16}
    ways: dict[str, tuple[str, dict[str, int | str]]] = {name: (name, tile) for name in share(list(CASES), 2)}
    ways["inclusive"], ways["from_on"] = ("inclusive", tile), ("from_on", tile)
    ways["shared"] = ("lengths", {**tile, "split_keys": 4})
    ways["shared_unpacked"] = ("left_out", {**tile, "split_keys": 2, "packed": 0})
    ways["packed"] = ("bias_of_heads", {**tile, "packed": 1})
    ways["all"] = ("positions", {"block_m": 32, "block_n": 16, "masks": "all"})
    cases = [
        {"name": way, "source": task_of(name).source, "candidate": source_of(name, settings)}
        for way, (name, settings) in ways.items()
    ]
    assert interpret(cases) == dict.fromkeys(ways)


def test_only_what_is_minus_infinity_is_left_out() -> None:
    assert "last = " not in source_of("finite", {"split_keys": 1})
    text = source_of("lengths", {"split_keys": 1, "packed": 1})
    assert "tl.cdiv(end, BLOCK_N)" in text and "tl.where(total == 0.0, 0.0" in text
