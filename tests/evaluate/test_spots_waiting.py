"""A program finds at the full shapes what others of its launch have left only where it waits for them.

One that looks as if it waited finds what was there before, as the first one to run on a GPU does."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from mtmc.evaluate.counting.contents import Contents
from mtmc.evaluate.counting.meter import Meter
from mtmc.evaluate.counting.storages import Storages
from mtmc.evaluate.lab import LabEvaluator
from mtmc.outcome import Outcome
from mtmc.protocols import EvaluationRequest
from mtmc.task import task_from_source
from tests.breadth import share

TASK = task_from_source(
    """
import torch
from torch import nn

rows = 64
length = 16384
VARIANTS = {"small": {"rows": 2, "length": 700}, "odd1": {"rows": 3, "length": 333}}


class Model(nn.Module):
    def forward(self, x):
        return torch.cumsum(x, dim=1)


def get_inputs():
    return [torch.rand(rows, length)]


def get_init_inputs():
    return []
""",
    "waiting",
)
KERNEL = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def running_sum(x_ptr, carry_ptr, flag_ptr, out_ptr, length, blocks, BLOCK: tl.constexpr):
    row, block = tl.program_id(1).to(tl.int64), tl.program_id(0)
    at = block * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * length + at, mask=at < length, other=0.0)
    before = row * blocks + block - 1
    carried = 0.0
    if block > 0:
        {wait}
    tl.store(carry_ptr + before + 1, carried + tl.sum(x, axis=0))
    tl.debug_barrier()
    tl.atomic_xchg(flag_ptr + before + 1, 1)
    tl.store(out_ptr + row * length + at, carried + tl.cumsum(x, axis=0), mask=at < length)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, length = x.shape
        blocks = triton.cdiv(length, 1024)
        carry = torch.zeros((rows, blocks), device=x.device, dtype=torch.float32)
        flag = torch.zeros((rows, blocks), device=x.device, dtype=torch.int32)
        out = torch.empty_like(x)
        running_sum[(blocks, rows)](x, carry, flag, out, length, blocks, BLOCK=1024)
        return out
"""
LOOK = "carried = tl.load(carry_ptr + before)"
WAITING = {
    "an atomic that adds nothing": "while tl.atomic_add(flag_ptr + before, 0) == 0:\n            pass\n        " + LOOK,
    "a volatile load": "while tl.load(flag_ptr + before, volatile=True) == 0:\n            pass\n        " + LOOK,
    "an exchange": "while tl.atomic_cas(flag_ptr + before, 1, 1) == 0:\n            pass\n        " + LOOK,
}
DECOYS = {
    "one volatile load": "carried = tl.load(carry_ptr + before, volatile=True)",
    "a flag that is not looked at": "tl.load(flag_ptr + before, volatile=True)\n        " + LOOK,
    "two looks": "tl.atomic_add(flag_ptr + before, 0)\n        tl.atomic_add(flag_ptr + before, 0)\n        " + LOOK,
    "a flag of its own": "tl.atomic_xchg(flag_ptr + before + 1, 0)\n        " + LOOK,
    "a counter of its own": "tl.atomic_add(flag_ptr + before + 1, 1)\n        " + LOOK,
    "an exchange that fails": "tl.atomic_cas(flag_ptr + before, 1, 1)\n        " + LOOK,
}
AGAIN = "again = 0.0\n        for _ in range(100):\n            again += "
DAWDLING = {
    "looks at an input": AGAIN + "tl.load(x_ptr)\n        " + LOOK + " + 0 * again",
    "looks at the flag": AGAIN + "tl.load(flag_ptr + before, volatile=True)\n        " + LOOK + " + 0 * again",
    "looks twice in turn": AGAIN + "tl.load(x_ptr) + tl.load(carry_ptr + before)\n        " + LOOK + " + 0 * again",
    "asks by atomics": AGAIN + "tl.atomic_add(flag_ptr + before, 0)\n        " + LOOK + " + 0 * again",
    "exchanges": AGAIN + "tl.atomic_cas(flag_ptr + before, 1, 1)\n        " + LOOK + " + 0 * again",
    "hides its count": "for turn in range(100):\n            turn = tl.load(flag_ptr + before)\n        " + LOOK,
    "does nothing": "for _ in range(100):\n            tl.load(flag_ptr + before)\n        " + LOOK,
    "spins for a while": "spins = 0\n        while (tl.load(flag_ptr + before, volatile=True) == 0) & (spins < 100):\n"
    "            spins += 1\n        " + LOOK,
    "counts by atomics": "while tl.atomic_add(flag_ptr + before + 1, 1) < 100:\n            pass\n        " + LOOK,
}
DECOYS |= DAWDLING


def judged(lab: LabEvaluator, wait: str) -> Outcome:
    return lab.evaluate([EvaluationRequest(TASK, KERNEL.format(wait=wait))])[0]


class Everything(Storages):
    """All addresses lie in one storage."""

    def __init__(self) -> None:
        pass

    def find(self, address: int) -> int:
        return 0


class Nothing(Contents):
    """What a program finds that finds nothing."""

    def __init__(self) -> None:
        pass

    def begin(self) -> None:
        pass


def test_a_program_goes_on_with_its_own_turns_after_another_has_run_aside() -> None:
    meter = Meter(SimpleNamespace(interpreter_builder=SimpleNamespace()), Everything(), touch_memory=False)
    meter.start(math.inf)
    meter.counters.place = (3, 8)
    assert [meter.counters.ticket(64, 4, 1, None) for _ in range(2)] == [3, 11]
    with meter.aside(Nothing()):
        meter.start(math.inf)
        meter.counters.place = (5, 6)
        assert meter.counters.ticket(64, 4, 1, None) == 5
    assert meter.counters.ticket(64, 4, 1, None) == 19


@pytest.mark.parametrize("how", share(sorted(WAITING), 2))
def test_who_waits_finds_what_others_left(usual_lab: LabEvaluator, how: str) -> None:
    outcome = judged(usual_lab, WAITING[how])
    assert outcome.ok, outcome.diagnosis
    assert (
        outcome.metrics["compared_at_full"] >= 2 or "volatile" in WAITING[how]
    )  # a flag that atomics set is not known


@pytest.mark.parametrize("how", share(sorted(DECOYS), 6))
def test_who_does_not_wait_does_not(usual_lab: LabEvaluator, how: str) -> None:
    outcome = judged(usual_lab, DECOYS[how])
    assert outcome.status == "wrong_result" and outcome.diagnosis is not None
    assert "drawn in secret" in outcome.diagnosis.message
