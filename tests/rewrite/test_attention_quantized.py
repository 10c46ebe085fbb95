"""Attention over keys and values of 8 bits: converted on the way to the tensor cores, their scales on scores and weights."""

from __future__ import annotations

import pytest

from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import graph_of, root_plan
from mtmc.rewrite.source import print_plan
from mtmc.task import task_from_source
from tests.rewrite.interpreted import apply
from tests.rewrite.interpreting import interpret
from tests.rewrite.stepping import actions_on, version

REFERENCE = """
import torch
from torch import nn

B, H, G, T, D, Q = 2, 8, 2, 512, 64, {queries}
VARIANTS = {{
    "small": {{"B": 2, "H": 4, "G": 2, "T": 24, "D": 16, "Q": {queries}}},
    "odd1": {{"B": 1, "H": 6, "G": 3, "T": 19, "D": 9, "Q": {queries}}},
    "odd2": {{"B": 3, "H": 3, "G": 1, "T": 67, "D": 11, "Q": {queries}}},
}}


class Model(nn.Module):
    def forward(self, q, keys, key_scales, values, value_scales):
        {body}


def get_inputs():
    q = torch.randn(B, {heads}, Q, D)
    keys, values = (torch.randint(-127, 128, (B, {shared}, T, D), dtype=torch.int8) for _ in range(2))
    scales = [(torch.rand(B, {shared}, T) + 0.5) / 64 for _ in range(2)]
    return [q, keys, scales[0], values, scales[1]]


def get_init_inputs():
    return []
"""
SCALED = "keys, values = (x.to(q.dtype) * s[..., None] for x, s in ((keys, key_scales), (values, value_scales)))"
CASES = {
    "scores_and_weights_of_one_token": (
        ("1", "H", "H"), "scores = (q @ keys.to(q.dtype).transpose(2, 3)).squeeze(2).float()",
        "weights = torch.softmax(scores * key_scales * D**-0.5, dim=-1) * value_scales",
        "return (weights[:, :, None].to(q.dtype) @ values.to(q.dtype)).squeeze(2)",
    ),
    "of_many": (
        ("21", "H", "H"), "scores = q @ keys.to(q.dtype).transpose(2, 3) * key_scales[:, :, None] * D**-0.5",
        "return (torch.softmax(scores, dim=-1) * value_scales[:, :, None]) @ values.to(q.dtype)",
    ),
    "weights_with_a_factor_first": (
        ("5", "H", "H"), "weights = 0.5 * torch.softmax(q @ keys.to(q.dtype).mT * key_scales[:, :, None] * 0.3, -1)",
        "return (value_scales[:, :, None] * weights) @ values.to(q.dtype)",
    ),
    "scaled_keys_and_values": (
        ("3", "H", "H"), SCALED, "return torch.softmax(q @ keys.mT * D**-0.5, -1) @ values",
    ),
    "torchs_own": (
        ("1", "H", "G"), SCALED, "return nn.functional.scaled_dot_product_attention(q, keys, values, enable_gqa=True)",
    ),
}  # fmt: skip


def source(case: str) -> str:
    (queries, heads, shared), *lines = CASES[case]
    return REFERENCE.format(queries=queries, heads=heads, shared=shared, body="\n        ".join(lines))


def one_kernel(case: str) -> list[str]:
    """The sentences of the actions that make one kernel of a case."""
    if case == "torchs_own":
        return ["fuse", "lower"]
    task = task_from_source(source(case), case)
    sentences = [each.sentence for each in actions_on(version(task, root_plan(export_graph(task))))]
    return [next(each for each in sentences if each.startswith("fuse matmul and matmul_1 with"))]


def test_they_are_converted_in_the_kernel() -> None:
    cases = [{"name": name, "source": source(name), "ways": [one_kernel(name)]} for name in CASES]
    assert interpret(cases) == dict.fromkeys(CASES)


@pytest.mark.parametrize("case", CASES)
def test_nothing_of_them_is_written_out(case: str) -> None:
    task = task_from_source(source(case), case)
    plan = apply(task, one_kernel(case))
    [kernel] = [stage for stage in plan.stages if not stage.is_torch]
    assert kernel.template == "attention"
    text = "".join(print_plan(task, graph_of(export_graph(task), plan), plan).source.split())
    assert "tl.load(keys_ptr" in text and "tl.load(values_ptr" in text


def test_weights_that_are_added_to_are_no_attention() -> None:
    """What stands behind the softmax and is not linear in it cannot be done before the division."""
    body = SCALED, "return (torch.softmax(q @ keys.mT, -1) + value_scales[:, :, None]) @ values"
    text = REFERENCE.format(queries="3", heads="H", shared="H", body="\n        ".join(body))
    task = task_from_source(text, "added")
    plan = apply(task, ["fuse", "lower"])
    assert "attention" not in {stage.template for stage in plan.stages}
