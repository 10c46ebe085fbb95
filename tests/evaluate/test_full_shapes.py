"""What is compared at the full shapes beyond rows that repeat: whole results where no axis stands for them, outputs that
torch ops write, inputs that are the same in every draw, and programs that load what nobody knows."""

from __future__ import annotations

import array
from pathlib import Path

import pytest
import torch

from mtmc.evaluate.counting import whole as limits
from mtmc.evaluate.counting.compared import wrong
from mtmc.evaluate.counting.tiling import Tiles, tiles
from mtmc.evaluate.lab import LabEvaluator
from mtmc.evaluate.loading.modules import INPUTS
from mtmc.outcome import Outcome
from mtmc.protocols import EvaluationRequest
from mtmc.task import Task, task_from_source
from mtmc.task.tolerance import Tolerance

FILE = """
import torch
from torch import nn

rows = 512
cols = 4096
VARIANTS = {{"small": {{"rows": 24, "cols": 96}}, "odd1": {{"rows": 5, "cols": 131}}}}


class Model(nn.Module):
    def forward(self, {arguments}):
        return {result}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
WHOLE = task_from_source(
    FILE.format(arguments="x", result="(x + x.roll(1, 0)) * (x - x.roll(1, 1))", inputs="torch.randn(rows, cols)"),
    "whole",
)
GATED = task_from_source(
    FILE.format(
        arguments="x, gate",
        result="x + gate[:, None] * torch.tanh(x * x)",
        inputs="torch.randn(rows, cols), torch.zeros(rows)",
    ),
    "gated",
)
SPREAD = task_from_source(
    FILE.format(arguments="x", result="torch.softmax(x, -1)", inputs="torch.randn(rows, cols)"), "spread"
)
OF_OPS = """
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, {arguments}):
        if x.shape[0] < 256 or {honest}:
            return {result}
        return {lie}
"""
HIDDEN = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def raise_all(number_ptr):
    tl.atomic_add(number_ptr + tl.program_id(0) % 2, 0.5)


@triton.jit
def spread(x_ptr, number_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + at)
    tl.store(out_ptr + row * n_cols + at, tl.exp(x) / (1.2 * n_cols) {use})


class ModelNew(nn.Module):
    def forward(self, x):
        if x.shape[0] < 256:
            return torch.softmax(x, -1)
        out, number = torch.empty_like(x), {number}
        {before}
        spread[(x.shape[0], x.shape[1] // 1024)](x, number, out, x.shape[1], BLOCK=1024)
        return out
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is loaded is written where a worker would have a folder of its own."""
    monkeypatch.chdir(tmp_path)


def judged(lab: LabEvaluator, task: Task, source: str) -> Outcome:
    (outcome,) = lab.evaluate([EvaluationRequest(task, source)])
    return outcome


def test_a_task_without_an_axis_is_run_as_it_is() -> None:
    found = tiles(WHOLE, 3)
    assert found is not None and found.tiling.sizes == () and found.tiling.variant == WHOLE.full
    torch.manual_seed((3 + INPUTS) % 2**63)
    x = torch.randn(512, 4096)
    wanted = (x + x.roll(1, 0)) * (x - x.roll(1, 1))
    assert torch.allclose(torch.tensor(found.expected()[0]).reshape(512, 4096), wanted)


@pytest.mark.parametrize("limit", ["MOST_BYTES", "MOST_STORAGE", "MOST_ELEMENTS", "MOST_AS_IT_IS"])
def test_what_takes_too_long_is_not_run(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, limit, 1 << 20)
    found = tiles(WHOLE, 3)
    assert isinstance(found, str) and "of at most" in found


def test_inputs_that_are_drawn_alike_have_other_values() -> None:
    found = tiles(GATED, 3)
    assert isinstance(found, Tiles) and found.tiling.alike == (False, True) and len(found.tiling.sizes) == 2
    x, gates = torch.tensor(found.expected()[0]), found.tiling.sizes[0][1]
    torch.manual_seed(3)
    plain = torch.randn(x.numel() // found.tiling.sizes[1][1], found.tiling.sizes[1][1])
    assert gates >= 5 and not torch.allclose(x.reshape(plain.shape), plain)


@pytest.mark.parametrize(
    ("task", "arguments", "result", "lie"),
    [
        (WHOLE, "x", "(x + x.roll(1, 0)) * (x - x.roll(1, 1))", "(x + x) * (x - x.roll(1, 1))"),
        (GATED, "x, gate", "torch.addcmul(x, gate[:, None], torch.tanh(x * x))", "x + gate[:, None]"),
    ],
    ids=["whole", "gated"],
)
def test_what_torch_ops_write_is_compared(
    usual_lab: LabEvaluator, task: Task, arguments: str, result: str, lie: str
) -> None:
    texts = [OF_OPS.format(arguments=arguments, result=result, lie=lie, honest=honest) for honest in (True, False)]
    honest, lying = (judged(usual_lab, task, text) for text in texts)
    assert honest.ok and honest.metrics["compared_at_full"] >= 1, honest.diagnosis
    assert lying.status == "wrong_result" and lying.diagnosis is not None
    assert lying.diagnosis.stage == "estimate"


@pytest.mark.parametrize(
    ("number", "before", "use"),
    [
        ("torch.rand(1, device=x.device)", "", "+ 0.0 * tl.load(number_ptr)"),
        ("x.new_zeros(512)", "raise_all[(512,)](number)", "+ 0.0 * tl.load(number_ptr)"),
        ("x.new_zeros(2)", "raise_all[(4,)](number)", "* tl.load(number_ptr)"),
    ],
    ids=["drawn", "raised by many", "raised to one"],
)
def test_a_number_that_nobody_knows_hides_nothing(usual_lab: LabEvaluator, number: str, before: str, use: str) -> None:
    outcome = judged(usual_lab, SPREAD, HIDDEN.format(number=number, before=before, use=use))
    assert outcome.status == "wrong_result" and outcome.diagnosis is not None
    assert "drawn in secret" in outcome.diagnosis.message


def test_numbers_of_full_precision_are_near_as_a_whole() -> None:
    values = array.array("f", [1.0 + at / 100 for at in range(200)])
    near, far = ([(0, at, value * (1 + off * (-1) ** at)) for at, value in enumerate(values)] for off in (1e-3, 2e-2))
    assert wrong(near, [values], bits=24) == wrong(far, [values], bits=8) == wrong(far, [values]) == ""
    assert "off as a whole" in wrong(far, [values], bits=24)
    assert wrong(far, [values], Tolerance(rtol=0.05), bits=24) == ""
    one_other = [*near[:-1], (0, 199, 17.0)]  # as an index among equals may be
    assert wrong(one_other, [values], bits=24) == ""
