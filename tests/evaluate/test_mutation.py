"""Beside a reference that changes its inputs or buffers both are compared after each of several calls in a row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mtmc.errors import TaskError
from mtmc.evaluate.audit.diagnosis import Failure
from mtmc.evaluate.check import check as gate
from mtmc.evaluate.check.cases import Checked
from mtmc.evaluate.pool.worker import Pool
from mtmc.evaluate.reference.admission import admit
from mtmc.evaluate.reference.reference import Reference
from mtmc.task import Task, Variant

TEXT = """
import torch
from torch import nn
from torch.nn import functional as F

rows, cols = 32, 64


class Model(nn.Module):
    def __init__(self, cols):
        super().__init__()
        INIT

    def forward(self, ARGUMENTS):
        FORWARD


def get_inputs():
    return [INPUTS]


def get_init_inputs():
    return [cols]
"""
X, XY = ("x", "torch.randn(rows, cols)"), ("x, y", "torch.randn(rows, cols), torch.randn(cols)")
KV = ("x, at", "torch.randn(2, 2, cols), torch.randint(0, rows // 2, (1,)) + torch.arange(2)")
EMA = 'self.register_buffer("ema", torch.zeros(cols))'
COUNT = 'self.register_buffer("count", torch.zeros((), dtype=torch.int64))'
CACHE = 'self.register_buffer("cache", torch.zeros(2, rows, cols))'


def text(forward: str, init: str, signature: tuple[str, str] = X) -> str:
    """A task's file; lines are separated by ";"."""
    parts = {"INIT": init, "FORWARD": forward, "ARGUMENTS": signature[0], "INPUTS": signature[1]}
    found = TEXT
    for word, part in parts.items():
        found = found.replace(word, part.replace("; ", "\n        "))
    return found


def task_of(source: str) -> Task:
    return Task("mutating", source, Variant("full"), Variant("small", (("rows", 6), ("cols", 12))))


def check(pool: Pool, forward: str, task: Task, init: str, arguments: str = "x", depth: str = "screen") -> Any:
    """What becomes of a version with this forward and constructor."""
    source = text(forward, init, (arguments, "")).split("def get_inputs")[0].replace("class Model(", "class ModelNew(")
    asked = {"task": task, "source": source, "seed": 3, "depth": depth, "check_variants": 2, "autotuned": {}}
    result = pool.run(gate.check, asked)
    assert result.status == "ok", result
    return result.value


CASES: dict[str, tuple[str, str, tuple[str, str], dict[str, tuple[str, str]]]] = {
    # reference's forward and constructor, signature, {wrong forward: (diagnosis, part of its message)}
    "ema": (
        "self.ema.mul_(0.9).add_(x.mean(0), alpha=0.1); return x - self.ema",
        EMA,
        X,
        {
            "return x - x.mean(0) * 0.1": ("WrongValues", "buffer 'ema' after the call"),
            "self.ema.lerp_(x.mean(0), 0.1); return x - self.ema * 1.01": ("", "the output"),
            "if not hasattr(self, 'done'):; self.done = True; FIRST; return x - (self.ema * 0.9 + x.mean(0) * 0.1)": (
                "WrongValues",
                "call 2 of 2 in a row",
            ),
        },
    ),
    "old_value": (
        "y = x - self.ema; self.ema.mul_(0.9).add_(x.mean(0), alpha=0.1); return y",
        EMA,
        X,
        {"self.ema.mul_(0.9).add_(x.mean(0), alpha=0.1); return x - self.ema": ("", "the output")},
    ),
    "counter": (
        "self.count += 1; return x * self.count",
        COUNT,
        X,
        {"return x * (self.count + 1)": ("WrongValues", "buffer 'count' after the call")},
    ),
    "input": (
        "y.add_(1); return x * y",
        "pass",
        XY,
        {
            "return x * (y + 1)": ("WrongValues", "input 1 after the call"),
            "x += 0.5; y.add_(1); return (x - 0.5) * y": ("InputMutated", "its input 0 in place"),
        },
    ),
    "column": (
        "y = torch.exp(x); x[:, 0] = 0; return y * x",
        "pass",
        X,
        {"z = x.clone(); z[:, 0] = 0; return torch.exp(x) * z": ("WrongValues", "input 0 after the call")},
    ),
    "cache": (
        "self.cache.index_copy_(1, at, x); return self.cache.sum(1), self.cache",
        CACHE,
        KV,
        {
            "c = self.cache.index_copy(1, at, x); return c.sum(1), c": ("WrongValues", "buffer 'cache' after the call"),
            "self.cache.zero_(); self.cache.index_copy_(1, at, x); return self.cache.sum(1), self.cache": (
                "WrongValues",
                "in a row",
            ),
        },
    ),
    "batch_norm": (
        "return torch.relu(self.norm(x))",
        "self.norm = nn.BatchNorm1d(cols)",
        X,
        {
            "return torch.relu(F.batch_norm(x, None, None, self.norm.weight, self.norm.bias, True))": (
                "WrongValues",
                "buffer 'norm.",
            ),
            "return torch.relu(F.batch_norm(x, self.norm.running_mean, self.norm.running_var, self.norm.weight, "
            "self.norm.bias, True))": ("WrongValues", "buffer 'norm.num_batches_tracked'"),
        },
    ),
}  # fmt: skip
FIRST = "self.ema.mul_(0.9).add_(x.mean(0), alpha=0.1)"


@pytest.mark.parametrize("name", CASES)
def test_what_a_reference_changes_is_compared_after_each_call(check_pool: Pool, name: str) -> None:
    forward, init, signature, wrong = CASES[name]
    task = task_of(text(forward, init, signature))
    for depth in ("screen", "verify"):
        right = check(check_pool, forward, task, init, signature[0], depth)
        assert isinstance(right, Checked) and right.exact, right
    for body, (kind, message) in wrong.items():
        body = body.replace(
            "self.done = True; FIRST", f"    self.done = True; {' ' * 4}{FIRST}; {' ' * 4}return x - self.ema"
        )
        found = check(check_pool, body, task, init, signature[0])
        assert isinstance(found, Failure) and found.status == "wrong_result", (body, found)
        assert kind in found.diagnosis.kind and message in found.diagnosis.message, (body, found.diagnosis)


def test_a_version_has_the_buffers_that_the_reference_changes(check_pool: Pool) -> None:
    task = task_of(text(CASES["ema"][0], EMA))
    found = check(check_pool, "self.own = self.own * 0.9 + x.mean(0) * 0.1; return x - self.own", task, "self.own = 0")
    assert found.diagnosis.kind == "Buffer" and "buffer 'ema' after the call" in found.diagnosis.message
    assert "is missing" in found.diagnosis.message


def test_a_pure_reference_has_one_call_and_its_buffers_stay(check_pool: Pool, tmp_path: Path) -> None:
    task = task_of(text("y = x * 2; y.add_(self.ema); return y", EMA))
    [expected] = Reference(task, task.small, tmp_path, 1).expected("drawn", 2) or []
    assert not expected.left_inputs and not expected.left_state and expected.untouched == ("ema",)
    found = check(check_pool, "self.ema += 0; self.ema[0] = 1; return x * 2", task, EMA)
    assert found.diagnosis.kind == "BufferMutated" and "buffer 'ema', which the reference" in found.diagnosis.message
    scratch = 'self.register_buffer("scratch", torch.zeros(rows, cols))'
    own = "torch.mul(x, 2, out=self.scratch); return self.scratch + self.ema"
    sized = f"global rows; rows, cols = 6, 12; {EMA}; {scratch}"
    assert isinstance(check(check_pool, own, task, sized), Checked)


def test_admission_runs_a_reference_from_the_state_that_it_had_at_first(tmp_path: Path) -> None:
    for name in ("counter", "batch_norm"):  # what is assigned, and what torch itself writes
        forward, init, signature, _ = CASES[name]
        admission = admit(task_of(text(forward, init, signature)), "cpu", tmp_path)
        assert admission.calibration.effects.state and admission.calibration.error is not None
    random = task_of(text("self.ema.copy_(torch.rand_like(self.ema)); return x + 1", EMA))
    with pytest.raises(TaskError, match="output 1 of the reference differs"):
        admit(random, "cpu", tmp_path)


def test_timed_calls_start_from_the_state_that_the_model_had_at_first(tmp_path: Path) -> None:
    forward, init, signature, _ = CASES["ema"]
    task = task_of(text(forward, init, signature))
    made = Reference(task, task.full, tmp_path, 1)
    for seed in (4, 5):
        expected = made.timed(seed)
        kept = expected.left_state["ema"]
        assert (kept.value - expected.inputs[0].mean(0) * 0.1).abs().max() < 1e-7
        assert kept.exact and expected.first
