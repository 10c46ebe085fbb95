"""Attention whose softmax has one more logit a row, which takes weight and has no value; sums of three operands."""

from __future__ import annotations

import pytest

from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import root_plan
from mtmc.task import Task, task_from_source
from tests.rewrite.interpreted import apply
from tests.rewrite.interpreting import interpret
from tests.rewrite.stepping import actions_on, after, version

REFERENCE = """
import torch
from torch import nn

B, H, G, S, D = 2, 4, 2, 512, 32
VARIANTS = {{
    "small": {{"B": 1, "H": 2, "G": 2, "S": 20, "D": 16}},
    "odd1": {{"B": 2, "H": 3, "G": 1, "S": 13, "D": 9}},
    "odd2": {{"B": 1, "H": 1, "G": 3, "S": 7, "D": 15}},
}}


class Model(nn.Module):
    def __init__(self, heads, groups):
        super().__init__()
        self.sinks = nn.Parameter(torch.randn(heads, groups, 1, 1))
        self.one = nn.Parameter(torch.randn(heads, 1, 1))

    def forward(self, q, k, v, wide):
        {body}


def get_inputs():
    return [torch.randn(H, G, S, D), torch.randn(H, S, D), torch.randn(H, S, D), torch.randn(B, H, S, D)]


def get_init_inputs():
    return [H, G]
"""
SCORES = 'scores = torch.einsum("hgqd,hkd->hgqk", q, k) * 0.25; '
CAUSAL = 'scores = scores + torch.triu(scores.new_full((S, S), float("-inf")), diagonal=1); '
JOINED = "whole = torch.cat((scores, self.sinks.expand(-1, -1, S, -1)), -1); "
SINKS = {
    "grouped": f'{SCORES}{CAUSAL}{JOINED}return torch.einsum("hgqk,hkd->qhgd", whole.softmax(-1)[..., :-1], v)',
    "of_all": f'{SCORES}{JOINED}return torch.einsum("hgqk,hkd->hgqd", whole.softmax(-1)[..., :-1], v)',
    "as_matrices": "x = wide @ wide.mT * 0.3; y = torch.cat((x, self.one.expand(B, -1, S, -1)), -1); "
    "return y.softmax(-1)[..., :-1] @ wide",
    "of_each_row": "x = wide @ wide.mT; y = torch.cat((x, wide[..., :1]), -1); return y.softmax(-1)[..., :S] @ wide",
}
FEW = {
    "few_queries": "x = q.flatten(0, 1)[:, :1] @ k.repeat_interleave(G, 0).mT * 0.2; "
    "y = torch.cat((x, self.sinks.flatten(0, 1)), -1); return y.softmax(-1)[..., :-1] @ v.repeat_interleave(G, 0)",
    "all_masked": "x = (q.flatten(0, 1)[:, :1] @ k.repeat_interleave(G, 0).mT).masked_fill(k[0, :, 0] < 9.0, -torch.inf); "
    "y = torch.cat((x, self.sinks.flatten(0, 1)), -1); return y.softmax(-1)[..., :-1] @ v.repeat_interleave(G, 0)",
}
APART = {
    "two": "x = wide @ wide.mT; y = torch.cat((x, wide[..., :2]), -1); return y.softmax(-1)[..., :-2] @ wide",
    "in_front": "x = wide @ wide.mT; y = torch.cat((wide[..., :1], x), -1); return y.softmax(-1)[..., 1:] @ wide",
    "of_scores": "x = wide @ wide.mT; y = torch.cat((x, x[..., :1]), -1); return y.softmax(-1)[..., :-1] @ wide",
    "others_cut": "x = wide @ wide.mT; y = torch.cat((x, wide[..., :1]), -1); "
    "return y.softmax(-1)[..., :-2] @ wide[..., 1:, :]",
}
THREE = {
    "factor_last": ('return torch.einsum("bhsd,hsm,bhs->bhsdm", wide, k, wide.sum(-1))', True),
    "shares": (
        'm = torch.einsum("bhsd,bhsm->bhmd", wide, wide); return torch.einsum("bhsd,bhmd,bhs->bhsm", wide, m, wide.sum(3))',
        True,
    ),
    "factor_first": ('return torch.einsum("bhs,bhsd,bhtd->bhst", wide.sum(3), wide, wide)', True),
    "no_factor": ('return torch.einsum("bhsd,bhtd,bhte->bhse", wide, wide, wide)', True),
    "of_two": ('return torch.einsum("bhsd,bhtd->bhsdt", wide, wide)', False),
}
RULE = "rewrite by algebra: einsum"


def task_of(body: str) -> Task:
    return task_from_source(REFERENCE.format(body=body.replace("; ", "\n        ")), "sinks")


def case(name: str, body: str, *ways: list[str]) -> dict[str, object]:
    return {"name": name, "source": REFERENCE.format(body=body.replace("; ", "\n        ")), "ways": list(ways)}


def test_they_are_right_at_all_shapes() -> None:
    first = {"grouped": RULE, "of_all": RULE}
    cases = [case(name, body, [first.get(name, "lower"), "lower", "fuse"]) for name, body in {**SINKS, **APART}.items()]
    cases += [case(name, body, [RULE, "lower", "fuse"]) for name, (body, ruled) in THREE.items() if ruled]
    assert interpret(cases) == {each["name"]: None for each in cases}


def test_programs_that_share_the_keys_count_the_sink_once() -> None:
    shared, alone = (
        ["lower", "fuse"],
        ["lower", "fuse", "split the keys of the"],
    )  # among one, of those that are offered
    assert interpret([case(name, body, shared, alone) for name, body in FEW.items()]) == dict.fromkeys(FEW)
    for body in FEW.values():
        kernels = [apply(task_of(body), way).stages[-1] for way in (shared, alone)]
        assert [int(dict(kernel.schedule)["split_keys"]) for kernel in kernels] == [2, 1]


@pytest.mark.parametrize("name", SINKS)
def test_the_scores_are_never_written(name: str) -> None:
    task = task_of(SINKS[name])
    plan = apply(task, [RULE, "lower", "fuse"] if "einsum" in SINKS[name] else ["lower", "fuse"])
    assert "attention" in [stage.template for stage in plan.stages]


@pytest.mark.parametrize("name", APART)
def test_other_logits_are_no_sinks(name: str) -> None:
    plan = apply(task_of(APART[name]), ["lower", "fuse"])
    assert "attention" not in [stage.template for stage in plan.stages]


@pytest.mark.parametrize("name", THREE)
def test_sums_of_three_become_sums_of_two(name: str) -> None:
    body, ruled = THREE[name]
    task = task_of(body)
    start = version(task, root_plan(export_graph(task)))
    sentences = [each.sentence for each in actions_on(start) if each.kind == "algebra"]
    assert any("einsum" in sentence for sentence in sentences) == ruled
    if ruled:
        _, child = after(start, next(sentence for sentence in sentences if "einsum" in sentence))
        assert not [op for op in child.graph.ops if op.target == "aten.einsum.default" and len(op.args[1]) > 2]
