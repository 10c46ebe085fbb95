"""Whole groups of stages that become kernels at once, and stages that are alike."""

from __future__ import annotations

import pytest

from mtmc.optimizations import legal_moves
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import root_plan
from mtmc.task import Task, load_task
from tests.rewrite.stepping import actions_on, after, version

SOURCE = """import torch
from torch import nn
rows, width = 64, 32
VARIANTS = {"small": {"rows": 8}, "odd1": {"rows": 5, "width": 24}}
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
            x = torch.sigmoid(x) * x
        return x.softmax(1)
def get_inputs():
    return [torch.randn(rows, width)]
def get_init_inputs():
    return [width]
"""


@pytest.fixture(scope="module")
def task() -> Task:
    return load_task(SOURCE)


def test_everything_that_gains_is_fused_at_once(task: Task) -> None:
    """Each product takes along what follows element by element; the softmax needs whole rows and stays apart."""
    action, done = after(version(task, root_plan(export_graph(task))), "fuse all neighbours")
    assert action.sentence == "fuse all neighbours that gain by it, 2 kernels instead of 6, lines 10-11"
    assert action.param("saved") == 4
    assert [stage.name for stage in done.plan.stages] == ["linear_sigmoid_mul", "linear_1_sigmoid_1_mul_1", "softmax"]


def test_what_is_done_to_a_stage_is_done_to_all_like_it(task: Task) -> None:
    start = version(task, root_plan(export_graph(task)))
    _, paired = after(start, "fuse sigmoid and mul, so in 1 more like it")
    assert [stage.name for stage in paired.plan.stages] == [
        *("linear", "sigmoid_mul", "linear_1", "sigmoid_1_mul_1", "softmax")
    ]
    _, lowered = after(start, "lower linear to a Triton kernel, so in 1 more like it")
    _, tiled = after(lowered, "apply a pipeline of 3 stages to the linear kernel, so in 1 more like it")
    assert [stage.number("num_stages") for stage in tiled.kernels()] == [3, 3]


def test_a_chain_of_like_calls_is_fused_in_pairs_that_share_none() -> None:
    """sin(sin(sin(x))): the first pair and not the second, which would need a stage that is gone."""
    source = SOURCE.replace("for layer in self.layers:", "for _ in range(2):")
    source = source.replace("x = layer(x)", "x = torch.sin(x)").replace("torch.sigmoid(x) * x", "torch.sin(x)")
    task = load_task(source)
    _, done = after(version(task, root_plan(export_graph(task))), "fuse sin and sin_1, so in 1 more like it")
    assert [stage.name for stage in done.plan.stages] == ["sin_sin_1", "sin_2_sin_3", "softmax"]
    action, done = after(version(task, root_plan(export_graph(task))), "fuse the 5 calls from sin to softmax")
    assert len(done.plan.stages) == 1 and action.param("saved") == 4


def test_what_is_computed_from_no_tensor_stays_a_torch_call() -> None:
    """log(2.0) of a number that forward makes a tensor of: no operand tells on which device a kernel would run."""
    source = SOURCE.replace("return x.softmax(1)", "return (x * torch.log(torch.tensor(2.0))).softmax(1)")
    task = load_task(source)
    start = version(task, root_plan(export_graph(task)))
    sentences = [action.sentence for action in actions_on(start)]
    assert not [sentence for sentence in sentences if "lower log " in sentence or "clone and log" in sentence]


LIKE = """import torch
from torch import nn
rows = 256
VARIANTS = {{"small": {{"rows": 16}}, "odd1": {{"rows": 5}}}}
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.mask = nn.Parameter(torch.randn(64, 64)), nn.Buffer(torch.rand(64) > 0.5)
    def forward(self, x):
        {work}
def get_inputs():
    return [torch.randn(rows, 64)]
def get_init_inputs():
    return []
"""
READS = {
    "an_input_and_a_result_transposed": "x = torch.tanh(x @ x.T @ x); return torch.tanh(x @ x.T)",
    "weights_and_computed_weights": "x = torch.tanh(x @ self.weight.t()); return torch.tanh(x @ self.weight.sin().t())",
    "both_matrices": "x = (x[None] @ x.mT[None])[0] @ x; return (x[None] @ x.mT[None])[0] + 1",
    "masks_of_numbers_and_of_memory": (
        "x = torch.where(torch.arange(64) < 9, torch.sin(x), x); return torch.where(self.mask, torch.sin(x), x).cos()"
    ),
}


@pytest.mark.parametrize("name", READS)
def test_what_is_offered_for_one_can_be_written_for_all_like_it(name: str) -> None:
    task = load_task(LIKE.format(work=READS[name]))
    start = version(task, root_plan(export_graph(task)))
    starts = [start, *(after(start, word)[1] for word in ("lower", "fuse"))]
    for each in starts:
        for move in legal_moves(each):
            if move.child is not None and move.child != each.plan:
                each.made(move.child)
