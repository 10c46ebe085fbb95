"""One matrix times each of many, as all experts of all tokens: one batched kernel, gated where the reference is."""

from __future__ import annotations

import pytest

from mtmc.rewrite.body import NotCovered
from mtmc.rewrite.expansion import build
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.operators.table import table
from mtmc.rewrite.templates.product import analyse
from mtmc.task import task_from_source
from tests.rewrite.interpreting import interpret

REFERENCE = """
import torch
from torch import nn

tokens, width, experts, hidden = 256, 128, 8, 96
VARIANTS = {{
    "small": {{"tokens": 12, "width": 32, "experts": 4, "hidden": 48}},
    "odd1": {{"tokens": 5, "width": 21, "experts": 3, "hidden": 19}},
}}


class Model(nn.Module):
    def forward(self, x, gate, up, weights):
        {work}


def get_inputs():
    shape = (experts, width, hidden)
    return [torch.randn(tokens, width), torch.randn(shape), torch.randn(shape), torch.rand(tokens, experts)]


def get_init_inputs():
    return []
"""
CASES = {
    "alone": "return x @ gate",
    "gated": "return nn.functional.silu(x @ gate) * (x @ up)",
    "weighted": "return (x @ gate).relu() * weights.t()[..., None]",
    "two_dimensions": "return x @ gate.unflatten(0, (1, -1))",
    "from_a_view": "return x.unflatten(0, (-1, 1)).flatten(0, 1) @ up",
}


def test_experts_of_all_tokens_are_right() -> None:
    cases = [
        {"name": name, "source": REFERENCE.format(work=work), "ways": [["fuse", "lower"]]}
        for name, work in CASES.items()
    ]
    assert interpret(cases) == dict.fromkeys(CASES)


def test_a_gated_layer_of_experts_is_one_body() -> None:
    graph = export_graph(task_from_source(REFERENCE.format(work=CASES["gated"]), "gated"))
    found = analyse(graph, build(graph, [op.name for op in graph.ops], table))
    assert [found.batch[0][0], found.m[0], found.n[0], found.k[0], len(found.factors)] == [8, 256, 96, 128, 2]


def test_work_on_what_all_experts_share_is_done_before() -> None:
    graph = export_graph(task_from_source(REFERENCE.format(work="return x.relu() @ gate"), "before"))
    with pytest.raises(NotCovered, match="that all products of a batch share"):
        analyse(graph, build(graph, [op.name for op in graph.ops], table))
