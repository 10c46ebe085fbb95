"""A version that is less precise than its reference is written again by the rewriter, with more exact products."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mtmc.action import STOP
from mtmc.agents.coders.rewriter import Rewriter
from mtmc.errors import CoderError
from mtmc.evaluate.check.judge import blamed_buffer
from mtmc.optimizations.more_exact import more_exact
from mtmc.optimizations.seen import moves_on
from mtmc.outcome import LIBRARY_TF32, LOW_PRECISION, Diagnosis, Outcome
from mtmc.protocols import EditRequest
from mtmc.rewrite.plan import Plan, plan_from_json
from mtmc.rewrite.templates.conv_rounding import ROUNDED
from mtmc.task import Task, task_from_source
from tests.rewrite.interpreting import interpret
from tests.rewrite.stepping import version

SOURCE = """
import torch
from torch import nn
batch = 2
VARIANTS = {"small": {"batch": 1}, "odd1": {"batch": 3}}


class Block(nn.Module):
    def __init__(self, given, made):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(given, made, 3, padding=1), nn.BatchNorm2d(made)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(16, 32), Block(32, 32), Block(32, 32)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def get_inputs():
    return [torch.rand(batch, 16, 12, 12)]


def get_init_inputs():
    return []
"""
ALL = "lower all 3 convolutions of many channels to Triton kernels"
TF32 = Outcome("ok", runtime_ms=1.0, trials=3, runtime_kind="measured", metrics={LIBRARY_TF32: 1.0})


OUTPUT = "the output is within KernelBench's tolerance but less precise than float32 can be: norm-wise error 1.78e-03"


def message(path: str) -> str:
    return (
        f"buffer {path!r} after the call (the reference changes it) is within KernelBench's tolerance but less precise than "
        "float32 can be: norm-wise error 2.08e-04, the reference's own 4.24e-08, allowed 6.33e-06"
    )


@pytest.fixture(scope="module")
def task() -> Task:
    return task_from_source(SOURCE, "blocks")


def asked(task: Task) -> EditRequest:
    root = Rewriter().root(task)
    request = EditRequest(task, root.source, root.plan, TF32, STOP, "H100")
    action = next(move.action for move in moves_on(request).values() if move.action.sentence.startswith(ALL))
    return replace(request, action=action)


@pytest.fixture(scope="module")
def request_(task: Task) -> EditRequest:
    return asked(task)


def ways(plan: Plan) -> list[str]:
    """How the convolutions multiply, in the order in which they run."""
    return [str(dict(stage.schedule)["precision"]) for stage in plan.stages if stage.template == "convolution"]


def repaired(request: EditRequest, failed: str, text: str, kind: str = LOW_PRECISION) -> tuple[str, Plan]:
    found = Rewriter().edit(replace(request, failed_source=failed, feedback=Diagnosis("check", kind, text)))
    assert found.plan is not None and found.source is not None
    return found.source, plan_from_json(found.plan)


@pytest.mark.parametrize("block", [0, 1, 2])
def test_the_product_that_a_buffer_is_made_of_comes_first(request_: EditRequest, block: int) -> None:
    child = Rewriter().edit(request_)
    assert child.source is not None and child.plan is not None
    assert ways(plan_from_json(child.plan)) == [ROUNDED] * 3, "behind them are variances"
    source, plan = repaired(request_, child.source, message(f"blocks.{block}.norm.running_mean"))
    wanted = [ROUNDED] * 3
    wanted[block] = "tf32x3"
    assert ways(plan) == wanted
    for path in (f"blocks.{block}.norm.running_mean", "blocks.2.norm.running_var"):  # another one may fail then
        last, exact = repaired(request_, source, message(path))
        assert ways(exact) == ["tf32x3"] * 3
    with pytest.raises(CoderError, match="no other way to write"):
        repaired(request_, last, message("blocks.0.norm.running_mean"))


def test_operands_of_all_are_rounded_where_a_result_is_not_precise_enough() -> None:
    plain = asked(task_from_source(SOURCE.replace("self.norm(self.conv(x))", "self.conv(x)"), "plain"))
    child = Rewriter().edit(plain)
    assert child.source is not None and child.plan is not None
    assert ways(plan_from_json(child.plan)) == [ROUNDED, "tf32", "tf32"], "the first reads what is copied anyway"
    source, plan = repaired(plain, child.source, OUTPUT)
    assert ways(plan) == [ROUNDED] * 3
    last, exact = repaired(plain, source, OUTPUT)
    assert ways(exact) == ["tf32x3"] * 3
    with pytest.raises(CoderError, match="no other way to write"):
        repaired(plain, last, OUTPUT)


@pytest.mark.parametrize("kind", ["WrongValues", "NaN", "Timeout"])
def test_other_failures_are_left_as_they_are(request_: EditRequest, kind: str) -> None:
    child = Rewriter().edit(request_)
    assert child.source is not None
    with pytest.raises(CoderError, match="no other way to write"):
        repaired(request_, child.source, message("blocks.0.norm.running_mean"), kind)


def test_what_is_exact_already_has_no_other_form(task: Task, request_: EditRequest) -> None:
    """Neither has what multiplies nothing, nor a choice of how to multiply, which would be another choice."""
    plain = version(task)
    assert not list(more_exact(plain, None)) and not list(more_exact(plain, "blocks.0.norm.running_mean"))
    child = Rewriter().edit(request_)
    assert child.plan is not None
    after = replace(request_, plan=child.plan, source=child.source)
    chosen = next(move.action for move in moves_on(after).values() if move.action.kind == "precision")
    made = Rewriter().edit(replace(after, action=chosen))
    assert made.source is not None
    with pytest.raises(CoderError, match="no other way to write"):
        repaired(replace(after, action=chosen), made.source, message("blocks.0.norm.running_mean"))


def test_a_repaired_version_is_right(request_: EditRequest) -> None:
    child = Rewriter().edit(request_)
    assert child.source is not None
    source, plan = repaired(request_, child.source, OUTPUT)  # rounded ones are as far off as TF32 is
    assert ways(plan) == ["tf32x3"] * 3
    assert interpret([{"name": "blocks", "source": SOURCE, "candidate": source}]) == {"blocks": None}


def test_a_message_names_the_buffer_that_it_is_about() -> None:
    for path in ("norm.running_mean", "blocks.0.it's", 'a"b'):
        assert blamed_buffer(message(path)) == path
    assert blamed_buffer("the output is within KernelBench's tolerance") is None
    assert blamed_buffer("buffer 'norm.running_mean' is missing") is None
