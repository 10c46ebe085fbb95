"""Functions that cast nothing are computed in float64 without being watched; others are watched each time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from mtmc.evaluate.check.cases import plan
from mtmc.evaluate.reference.fp64 import Recasting, computing_in
from mtmc.evaluate.reference.reference import Reference
from mtmc.task import task_from_source

PLAIN = "self.norm(self.layer(x)).relu()"
CASTS = {
    "to": "self.layer(x).to(torch.float32).sin().to(x.dtype)",
    "softmax": "torch.softmax(self.layer(x), 1, dtype=torch.float32)",
    "made": "self.layer(x) + torch.arange(8, dtype=torch.float32)",
}


def reference(forward: str, folder: Path) -> Reference:
    source = f"""
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)

    def forward(self, x):
        return {forward}


def get_inputs():
    return [torch.rand(16, 8)]


def get_init_inputs():
    return []
"""
    task = task_from_source(source, "it")
    return Reference(task, task.small, folder, 1, "cpu")


@pytest.mark.parametrize("forward", [PLAIN, *CASTS.values()], ids=["plain", *CASTS])
def test_what_casts_is_watched_each_time_and_gives_the_same(forward: str, tmp_path: Path) -> None:
    made = reference(forward, tmp_path)
    first, again = made.expected("drawn", 5), made.expected("drawn", 5)
    assert made._recasting.watched is (forward != PLAIN)
    assert first is not None and again is not None
    for a, b in zip(first, again, strict=True):
        left: Any
        for left, right in zip(a.outputs, b.outputs, strict=True):
            assert left.oracle.dtype == torch.float64 and torch.equal(left.oracle, right.oracle)


def test_a_function_that_casts_in_a_later_call_was_seen_through_before() -> None:
    seen = Recasting()
    with computing_in(torch.float64, seen):
        torch.ones(2).to(torch.float32)
    with computing_in(torch.float64, seen):
        assert torch.ones(2).to(torch.float32).dtype == torch.float64
    assert seen.watched


def test_one_that_fails_tells_nothing() -> None:
    seen = Recasting()
    with pytest.raises(ValueError), computing_in(torch.float64, seen):
        raise ValueError
    assert seen.watched is None and torch.get_default_dtype() == torch.float32


def test_a_screening_asks_two_calls_in_a_row_and_a_verification_three(tmp_path: Path) -> None:
    made = reference(PLAIN, tmp_path)
    task = made._task
    counts = {depth: plan(task, depth, 1).calls for depth in ("screen", "verify")}
    assert counts == {"screen": 2, "verify": 3}
    for depth, count in counts.items():
        calls = made.expected("drawn", 7, counts[depth])
        assert calls is not None and len(calls) == count
        inputs = [each.inputs[0] for each in calls]
        assert torch.equal(inputs[0], inputs[-1]) is False
        assert all(torch.equal(inputs[0], each) for each in inputs[:-1])
