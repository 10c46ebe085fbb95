"""Outputs that few programs of a launch write, and what they lean on: none may be right by luck alone.

Each lie acts in one program of hundreds, at the full grid: where results are compared whole, the grid has few programs.
"""

from __future__ import annotations

import evaluate_jobs
import pytest

from mtmc.evaluate.audit.diagnosis import Failure
from mtmc.evaluate.check.cases import Checked
from mtmc.evaluate.lab import LabEvaluator
from mtmc.evaluate.pool.worker import Pool
from mtmc.protocols import EvaluationRequest
from mtmc.task import Task, task_from_source
from tests.exploits.catalogue import exploits, task

PARTS = 1024
TASK = task_from_source(
    """
import torch
from torch import nn

rows = 512
cols = 1024
VARIANTS = {"small": {"rows": 8, "cols": 320}, "odd1": {"rows": 31, "cols": 133}, "odd2": {"rows": 13, "cols": 129}}


class Model(nn.Module):
    def forward(self, x):
        return (x * x).mean()


def get_inputs():
    return [torch.randn(rows, cols)]


def get_init_inputs():
    return []
""",
    "mean_of_squares",
)
KERNEL = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def mean_square(x_ptr, part_ptr, ticket_ptr, out_ptr, n, parts, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    part = tl.program_id(0)
    at = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(part_ptr + part, tl.sum(x * x, axis=0))
    {arrives}
    if last:
        each = tl.arange(0, PARTS)
        sums = tl.load(part_ptr + each, mask={seen}, other=0.0)
        tl.store(out_ptr, tl.sum(sums, axis=0) / n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty((), device=x.device, dtype=x.dtype)
        parts = triton.cdiv(x.numel(), 1024)
        sums = torch.empty(parts, device=x.device, dtype=torch.float32)
        ticket = torch.zeros(1, device=x.device, dtype=torch.int32)
        blocks = triton.next_power_of_2(parts)
        mean_square[(parts,)](x, sums, ticket, out, x.numel(), parts, BLOCK=1024, PARTS=blocks)
        return out
"""
ASKS = "tl.debug_barrier()\n    last = tl.atomic_add(ticket_ptr, 1) == parts - 1"
ALL = "each < parts"
LIES = {
    "leans on the order": ("last = part == parts - 1", ALL),
    "leans on the order where there are many": (f"{ASKS}\n    if parts > 64:\n        last = part == parts - 1", ALL),
    "leaves out the second half": (ASKS, "(each < parts) & ((parts < 64) | (each < parts // 2))"),
    "leaves out its own part": (ASKS, "(each < parts) & ((parts < 64) | (each % 8 != 0))"),
    "the first one adds up": (f"{ASKS}\n    if parts > 64:\n        last = part == 0", ALL),
}


def version(arrives: str, seen: str) -> str:
    return KERNEL.format(arrives=arrives, seen=seen)


def judged(lab: LabEvaluator, source: str, depth: str) -> tuple[str, float]:
    [outcome] = lab.evaluate([EvaluationRequest(TASK, source, depth=depth)])  # type: ignore[arg-type]
    return outcome.verdict, outcome.metrics.get("compared_at_full", 0.0)


@pytest.mark.parametrize("depth", ["screen", "verify"])
def test_one_that_asks_who_is_the_last_is_accepted(depth: str, usual_lab: LabEvaluator) -> None:
    verdict, compared = judged(usual_lab, version(ASKS, ALL), depth)
    assert verdict == "ok" and (compared >= 1 or depth == "screen")


@pytest.mark.parametrize("lie", LIES)
def test_what_one_program_of_hundreds_writes_is_compared_at_verification(lie: str, usual_lab: LabEvaluator) -> None:
    verdicts = {judged(usual_lab, version(*LIES[lie]), "verify")[0].partition(":")[0] for _ in range(3)}
    assert verdicts == {"wrong_result"}


DAWDLES = """tl.debug_barrier()
    last = part == {who}
    if last:
        again = 0.0
        {round}
        tl.store(ticket_ptr, again.to(tl.int32))"""
ROUNDS = {
    "looks at an input": "for _ in range(1500):\n            again += tl.load(x_ptr)",
    "spins for a while": "while (again < 1500) & (tl.load(ticket_ptr) == 0):\n            again += 1",
    "asks by atomics": "for _ in range(1500):\n            again += tl.atomic_add(ticket_ptr, 0)",
    "only where there are many": "for _ in range(tl.where(parts > 64, 1500, 0)):\n            again += tl.load(x_ptr)",
}


@pytest.mark.parametrize("who", ["0", "1", "parts - 1"])
@pytest.mark.parametrize("how", ROUNDS)
def test_one_that_dawdles_until_the_others_may_be_there(how: str, who: str, usual_lab: LabEvaluator) -> None:
    source = version(DAWDLES.format(who=who, round=ROUNDS[how]), ALL)
    verdicts = {judged(usual_lab, source, "verify")[0].partition(":")[0] for _ in range(2)}
    assert verdicts == {"wrong_result"}


BY_ORDER = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def copy(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


@triton.jit
def mean_square(x_ptr, part_ptr, out_ptr, n, BLOCK: tl.constexpr):
    part = tl.program_id({axis})
    at = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    before = tl.load(part_ptr + part)
    total = tl.sum(x * x, axis=0) + before
    tl.store(part_ptr + part + 1, total)
    tl.store(out_ptr, total / n)


class ModelNew(nn.Module):
    def forward(self, x):
        n, parts = x.numel(), triton.cdiv(x.numel(), 1024)
        out, sums, copied = x.new_empty(()), x.new_zeros(parts + 1), torch.empty_like(x)
        {before}
        mean_square[{grid}](x, sums, out, n, BLOCK=1024)
        {behind}
        return out
"""
COPY = "copy[(parts,)](x, copied, n, BLOCK=1024)"


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("before", "behind"), [("", ""), (COPY, ""), ("", COPY), (f"{COPY}; {COPY}", "")])
@pytest.mark.parametrize(("axis", "grid"), [(0, "(parts,)"), (1, "(1, parts)")])
def test_each_launch_runs_both_ways_in_a_verification(
    before: str, behind: str, axis: int, grid: str, seed: int, check_pool: Pool
) -> None:
    """However unluckily programs are interleaved, and wherever among the forward's launches it stands."""
    source = BY_ORDER.format(before=before, behind=behind, axis=axis, grid=grid)
    assert isinstance(check_in_order(check_pool, TASK, source, seed), Failure)


@pytest.mark.parametrize("seed", range(6))
def test_the_last_program_adds_up_and_luck_does_not_help_it(seed: int, check_pool: Pool) -> None:
    [attack] = [each for each in exploits() if each.number == 101]
    found = check_in_order(check_pool, task(attack.task), attack.source, seed)
    assert isinstance(found, Failure) and found.status == "wrong_result"


def check_in_order(pool: Pool, of: Task, source: str, seed: int) -> Checked | Failure:
    result = pool.run(evaluate_jobs.check_in_order, {"task": of, "source": source, "seed": seed})
    assert result.value is not None, result
    return result.value
