"""Attention whose queries, keys or values lie elsewhere in memory, in pages or windows: read there, and no copy written."""

from __future__ import annotations

import pytest

from mtmc.task import task_from_source
from tests.breadth import share
from tests.rewrite.interpreted import apply
from tests.rewrite.interpreting import interpret

REFERENCE = """
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

B, H, G, D, P, S, Q = 4, 8, 2, 64, 16, 8, {queries}
VARIANTS = {{
    "small": {{"B": 2, "H": 4, "G": 2, "D": 8, "P": 8, "S": 3, "Q": {queries}}},
    "odd1": {{"B": 3, "H": 6, "G": 3, "D": 9, "P": 7, "S": 5, "Q": {queries}}},
    "odd2": {{"B": 1, "H": 3, "G": 1, "D": 11, "P": 5, "S": 13, "Q": {queries}}},
}}


class Model(nn.Module):
    def forward(self, q, keys, values, table, lengths):
        {body}


def get_inputs():
    lengths = torch.randint(1, P * S + 1, (B,))
    lengths[0] = {first}
    pages = [torch.randn(B * S, P, G, D) for _ in range(2)]
    return [torch.randn(B, H, Q, D), *pages, torch.randperm(B * S).view(B, S), lengths]


def get_init_inputs():
    return []
"""
PAGES = "k, v = (x[table].flatten(1, 2).transpose(1, 2) for x in (keys, values))"
SEEN = "seen = (torch.arange(k.shape[2], device=q.device) < lengths[:, None])[:, None, None]"
WRITTEN = (
    "scores = (q.unflatten(1, (G, -1)).flatten(2, 3) @ k.transpose(-2, -1) * D**-0.5).float()",
    "scores = scores.masked_fill(~seen, float('-inf'))",
    "return torch.softmax(scores, dim=-1).to(q.dtype) @ v",
)
CASES = {
    "all_pages": (1, "P", PAGES, "return scaled_dot_product_attention(q, k, v, enable_gqa=True)"),
    "lengths": (1, "P", PAGES, SEEN, "return scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=True)"),
    "written_out": (1, "1", PAGES, SEEN, *WRITTEN),
    "repeated_heads": (
        17, "1", PAGES, SEEN, "k, v = (x.repeat_interleave(H // G, dim=1) for x in (k, v))",
        "return scaled_dot_product_attention(q, k, v, attn_mask=seen)",
    ),
    "pages_by_head": (
        3, "2", "k, v = (x.transpose(1, 2)[table].transpose(1, 2).flatten(2, 3) for x in (keys, values))",
        "return scaled_dot_product_attention(q, k, v, enable_gqa=True)",
    ),
    "rolled": (
        21, "1", PAGES, "q, k, v = q.roll(2, 2), k.roll(3, 2), v.roll(3, 2)",
        "return scaled_dot_product_attention(q, k, v, enable_gqa=True).roll(-2, 2)",
    ),
    "selected_values": (5, "1", PAGES, "return scaled_dot_product_attention(q, k[:, :, lengths - 1], v[:, :, lengths - 1],"
                        " enable_gqa=True)"),
}  # fmt: skip


def source(case: str) -> str:
    queries, first, *lines = CASES[case]
    return REFERENCE.format(queries=queries, first=first, body="\n        ".join(map(str, lines)))


def test_keys_are_read_where_they_lie() -> None:
    some = share(sorted(CASES), 3)
    cases = [{"name": name, "source": source(name), "ways": [["fuse", "lower"]]} for name in some]
    assert interpret(cases) == dict.fromkeys(some)


@pytest.mark.parametrize("case", share(["repeated_heads", "written_out"], 2))
def test_it_is_one_kernel(case: str) -> None:
    plan = apply(task_from_source(source(case), case), ["fuse", "lower"])
    kernels = [stage.template for stage in plan.stages if not stage.is_torch]
    assert [*kernels[:1], len(kernels)] == ["attention", 1]
