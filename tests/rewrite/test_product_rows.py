"""Reductions over a product's columns while it is made: logsumexp, cross entropy, and what else hangs on a row's largest."""

from __future__ import annotations

import pytest

from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import Plan, graph_of, root_plan
from mtmc.rewrite.source import print_plan
from mtmc.task import Task, task_from_source
from tests.rewrite.interpreted import apply
from tests.rewrite.interpreting import interpret
from tests.rewrite.stepping import actions_on, version

REFERENCE = """
import torch
from torch import nn
from torch.nn.functional import cross_entropy, nll_loss

N, W, C = 256, 64, 1000
VARIANTS = {{
    "small": {{"N": 20, "W": 24, "C": 150}},
    "odd1": {{"N": 7, "W": 33, "C": 77}},
    "odd2": {{"N": 13, "W": 9, "C": 131}},
}}


class Model(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.head = nn.Linear(width, classes)

    def forward(self, x, targets):
        {body}


def get_inputs():
    targets = torch.randint(0, C, (N,))
    targets[::4] = -100
    return [3.0 * torch.randn(N, W), targets]


def get_init_inputs():
    return [W, C]
"""
IN_ONE = {
    "logsumexp": ("return self.head(x).logsumexp(1)",),
    "with_work_around": ("return torch.tanh((self.head(x) * 2.0 - 30.0).logsumexp(-1, keepdim=True))",),
    "with_other_reductions": ("y = self.head(x)", "return y.logsumexp(1) - y.sum(1) * 0.01 + y.amax(1)"),
    "of_masked_columns": (
        "y = torch.where(torch.arange(C, device=x.device) < 70, self.head(x), float('-inf'))",
        "return y.logsumexp(1)",
    ),
    "losses_of_rows": ("return cross_entropy(self.head(x), targets, reduction='none')",),
    "of_a_batch": ("y = x[:, :, None] * x[:, None, :1]", "return (y.mT @ y.mT.mT * 0.1).logsumexp(-1)"),
}
APART = {
    "mean": ("return cross_entropy(self.head(x), targets)",),
    "sum": ("return cross_entropy(self.head(x) * 0.5, targets, reduction='sum')",),
    "smoothed": ("return cross_entropy(self.head(x), targets, label_smoothing=0.1)",),
    "ignored_class": ("return cross_entropy(self.head(x), targets.clamp(min=3), ignore_index=3)",),
    "contrastive": ("near = torch.arange(N, device=x.device)", "return cross_entropy(x @ x.T / 3.0, near)"),
}
ALONE = {
    "cross_entropy": ("return cross_entropy(x, targets.clamp(max=8), reduction='none')",),
    "nll": ("return nll_loss(x, targets.clamp(max=8), reduction='none') * 2.0",),
}
BY_ROWS = "rewrite by algebra: the {} of cross_entropy_loss is that of its rows, which the product can make"


def source(lines: tuple[str, ...]) -> str:
    return REFERENCE.format(body="\n        ".join(lines))


def of_rows(name: str) -> str:
    return BY_ROWS.format("sum" if name == "sum" else "mean")


def templates(task: Task, way: list[str]) -> tuple[Plan, list[str]]:
    plan = apply(task, way)
    return plan, [stage.template for stage in plan.stages if not stage.is_torch]


def test_they_are_right_at_all_shapes() -> None:
    cases = [{"name": name, "source": source(body), "ways": [["lower", "fuse"]]} for name, body in IN_ONE.items()]
    cases += [
        {"name": name, "source": source(body), "ways": [[f"{of_rows(name)}, and fuse"], [of_rows(name), "lower"]]}
        for name, body in APART.items()
    ]
    cases += [{"name": name, "source": source(body), "ways": [["lower", "fuse"]]} for name, body in ALONE.items()]
    assert interpret(cases) == dict.fromkeys((*IN_ONE, *APART, *ALONE))


@pytest.mark.parametrize("name", [name for name in IN_ONE if name != "of_a_batch"])
def test_a_product_and_its_rows_are_one_kernel(name: str) -> None:
    _, found = templates(task_from_source(source(IN_ONE[name]), name), ["lower", "fuse"])
    assert found == ["matmul"]


@pytest.mark.parametrize("name", APART)
def test_no_logit_is_written(name: str) -> None:
    task = task_from_source(source(APART[name]), name)
    plan, found = templates(task, [f"{of_rows(name)}, and fuse"])
    assert found.count("matmul") == 1 and len(found) <= 3
    graph = graph_of(export_graph(task), plan)
    product = next(stage for stage in plan.stages if stage.template == "matmul")
    shapes = [graph.values[value].shape for value in graph.leaving(product.ops)]
    assert all(len(shape) == 1 for shape in shapes), "one number a row"


def test_a_loss_of_what_is_no_product_is_left_alone() -> None:
    task = task_from_source(source(("return cross_entropy(x * 2.0, targets.clamp(max=8))",)), "alone")
    actions = actions_on(version(task, root_plan(export_graph(task))))
    assert not any("of its rows" in action.sentence for action in actions)


def test_a_softmax_of_a_product_is_no_work_for_its_kernel() -> None:
    """It needs the whole row before any of its columns is known."""
    _, found = templates(task_from_source(source(("return self.head(x).softmax(-1)",)), "softmax"), ["lower", "fuse"])
    assert sorted(found) == ["matmul", "rowwise"]


@pytest.mark.parametrize("name", ["losses_of_rows", "with_other_reductions"])
def test_programs_share_the_columns_of_few_rows(name: str) -> None:
    task, way = task_from_source(source(IN_ONE[name]), name), ["lower", "fuse"]  # so they start
    text = print_plan(task, graph_of(export_graph(task), plan := apply(task, way)), plan).source
    assert "_combine_kernel" in text and "_max_parts" in text
    assert interpret([{"name": name, "source": source(IN_ONE[name]), "ways": [way]}]) == {name: None}
