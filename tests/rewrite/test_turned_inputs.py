"""CUDA graphs whose own copies of inputs have their channels last: one copy of an input on its way, not two."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch

from mtmc.evaluate.audit.audit import audit
from mtmc.rewrite import cuda_graph
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import Plan
from mtmc.rewrite.source import print_plan
from mtmc.rewrite.templates.channels_copy import helpers
from mtmc.task import Task, task_from_source
from tests.rewrite.interpreting import interpret
from tests.rewrite.stepping import version
from tests.rewrite.test_cuda_graph import Played

SOURCE = """
import torch
from torch import nn

size, batch = 12, 8
VARIANTS = {{"small": {{"size": 5, "batch": 2}}, "odd1": {{"size": 7, "batch": 3}}}}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Conv2d(16, 32, 3, padding=1).half()
        self.two = nn.Conv2d(16, 32, 1).half()

    def forward(self, x, y):
        {work}


def get_inputs():
    return [torch.randn(batch, 16, size, size).half(), torch.randn(batch, 32, size, size).half()]


def get_init_inputs():
    return []
"""
TURNED = "return torch.relu(self.one(x)) + torch.tanh(self.two(x)) * y"
WORKS = {
    "two_convolutions": (TURNED, True),
    "read_elsewhere": ("return torch.relu(self.one(x)) + torch.tanh(self.two(x)) * y + x.mean()", False),
    "changed": ("a = torch.relu(self.one(x)) + torch.tanh(self.two(x)) * y; x.add_(1); return a", False),
    "returned": ("return torch.relu(self.one(x)) + torch.tanh(self.two(x)) * y, x", False),
}


def task_of(name: str) -> Task:
    return task_from_source(SOURCE.format(work=WORKS[name][0]), name)


def printed(name: str) -> str:
    """The task with its convolutions channels last, in a CUDA graph."""
    task = task_of(name)
    stages = []
    for stage in version(task).plan.stages:
        last = stage.ops[0].startswith("conv")
        stages.append(stage.scheduled({"layout": "channels_last"}) if last else stage)
    return print_plan(task, export_graph(task), Plan(tuple(stages), cuda_graph=True)).source


@pytest.fixture
def small_inputs_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_graph, "LARGE", 1)
    print_plan.cache_clear()


@pytest.mark.usefixtures("small_inputs_are_large")
@pytest.mark.parametrize("name", WORKS)
def test_what_is_read_channels_last_alone_is_copied_so(name: str) -> None:
    source = printed(name)
    assert ("launch_channels_last(given, permuted=mine)" in source) is WORKS[name][1]
    assert audit(source, task_of(name).source) is None


def test_small_inputs_are_copied_by_torch() -> None:
    print_plan.cache_clear()
    assert "permuted=mine" not in printed("two_convolutions")


def turned(x: torch.Tensor, permuted: torch.Tensor | None = None) -> torch.Tensor:
    """In the place of the kernel, of which the interpreter's test has the arithmetic."""
    if permuted is None:
        return x.contiguous(memory_format=torch.channels_last)
    assert permuted.is_contiguous(memory_format=torch.channels_last)
    return permuted.copy_(x)


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    return Played(monkeypatch)


@torch.no_grad()
@pytest.mark.usefixtures("small_inputs_are_large")
def test_each_call_gives_what_its_own_inputs_say(played: Played, tmp_path: Path) -> None:
    path = tmp_path / "candidate.py"
    path.write_text(printed("two_convolutions"))
    module = runpy.run_path(str(path))
    module["ModelNew"].launches.__globals__["launch_channels_last"] = turned
    model = module["ModelNew"]()
    forms = (torch.contiguous_format, torch.channels_last)
    for memory in (*forms, *forms):
        x, y = torch.randn(2, 16, 5, 5).half().contiguous(memory_format=memory), torch.randn(2, 32, 5, 5).half()
        before = x.clone()
        torch.testing.assert_close(model(x, y), torch.relu(model.one(x)) + torch.tanh(model.two(x)) * y)
        assert torch.equal(x, before)
    assert (played.captures, played.replays) == (2, 4)


PUTTING = """
import torch
import triton
import triton.language as tl
from torch import nn


{helper}


class ModelNew(nn.Module):
    def forward(self, x):
        own = torch.zeros_like(x, memory_format=torch.channels_last{of_three})
        made = launch_channels_last({given}, permuted=own)
        assert made is own
        return own * 1
"""
ASKED = """
import torch
from torch import nn

size = 12
VARIANTS = {{"small": {{"size": 5}}, "odd1": {{"size": 7}}}}


class Model(nn.Module):
    def forward(self, x):
        return x * 1


def get_inputs():
    return [torch.randn({shape})]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("rounding", [False, True])
def test_copies_are_put_where_they_are_wanted(rounding: bool) -> None:
    helper = "\n\n\n".join(helpers(True, rounding, given=True))
    cases = []
    for name, given in (
        ("in_order", "x"),
        ("last", "x.contiguous(memory_format=torch.channels_last)"),
        ("across", "x.mT.contiguous().mT"),
    ):
        source = ASKED.format(shape="3, 20, size, size + 2")
        cases.append(
            {"name": name, "source": source, "candidate": PUTTING.format(helper=helper, given=given, of_three="")}
        )
    deep = ASKED.format(shape="2, 3, 4, size, 6")
    cases.append(
        {"name": "deep", "source": deep, "candidate": PUTTING.format(helper=helper, given="x", of_three="_3d")}
    )
    assert interpret(cases) == dict.fromkeys(case["name"] for case in cases)
