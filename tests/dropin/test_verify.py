"""A version runs beside the live module before it is used: one that is not right is not used, and a warning says why."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import nn

from mtmc.dropin import drop_in
from mtmc.task import Capture, capture_module
from tests.dropin.modules import BLOCK, COUNTER, Block, Counter

X = torch.linspace(-2, 2, 48).reshape(6, 8)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("y > 3.0, 3.0", "y > 0.1, 0.1", "on the example: output 0 is off"),
        ("return y", "return y.double()", "instead of"),
        ("return y", "return y if len(y) in (6, 3) else y + 1", "sizes"),
        ("return y", "return [y, y]", "2 tensors"),
        ("y = torch.empty_like(x)\n", "y = torch.empty_like(x)\n        x.no\n", "raises AttributeError"),
        ("return y", "self.shift.add_(1)\n        return y", "call 2 of 2"),
        ("import torch\n", "import torch\nimport no_such_module\n", "No module named"),
        ('register_buffer("shift"', 'register_buffer("drift"', "drift"),
    ],
)
def test_a_version_that_is_wrong_is_not_used(captured: Capture, old: str, new: str, reason: str) -> None:
    assert old in BLOCK
    with pytest.warns(RuntimeWarning, match="a version is not used"):
        optimized = drop_in(Block().eval(), captured, [BLOCK.replace(old, new)])
    assert reason in optimized.mtmc.reason and not optimized.mtmc.versions
    with torch.no_grad():
        assert torch.equal(optimized(X), Block.forward(optimized, X))
    assert torch.equal(optimized.shift, Block().shift)


def test_a_change_that_a_version_loses_is_found(counted: Capture) -> None:
    for line in ("cache.mul_(2)", "self.total.add_(x.sum(0))"):
        with pytest.warns(RuntimeWarning, match="not used"):
            optimized = drop_in(Counter(), counted, [COUNTER.replace(f"        {line}\n", "")])
        assert not optimized.mtmc.versions
        assert torch.equal(optimized.total, torch.zeros(8))


@pytest.mark.parametrize("kind", [nn.BatchNorm1d, nn.InstanceNorm1d])
def test_running_statistics_are_known_to_change(kind: Any) -> None:
    norm = kind(8, track_running_stats=True, affine=False).requires_grad_(False)
    x = torch.randn(5, 8, 3)
    capture = capture_module(norm, x)
    optimized = drop_in(norm, capture, [capture.task.source.replace("class Model(", "class ModelNew(")])
    paths = ("", *capture.places.values())
    assert {"running_mean", "running_var"} <= {paths[index] for index in optimized.mtmc._winners[0].mutated}
    other = kind(8, track_running_stats=True, affine=False)
    with torch.no_grad():
        assert torch.allclose(optimized(x), other(x)) and torch.allclose(optimized.running_var, other.running_var)
    assert optimized.mtmc.kernel_calls == 1


def test_a_weight_that_lies_otherwise_than_the_version_thinks_is_found(captured: Capture) -> None:
    module = Block().eval()
    module.fc.weight = nn.Parameter(module.fc.weight.detach().t())
    launching = "torch.nn.functional.linear(x, self.fc_weight, self.fc_bias)"
    assert launching in BLOCK
    source = BLOCK.replace(launching, launching.replace("self.fc_weight", "self.fc_weight.as_strided((8, 8), (8, 1))"))
    optimized = drop_in(module, captured, [source])
    with torch.no_grad():
        assert torch.equal(optimized(X), Block.forward(optimized, X))


def test_a_forward_that_changes_the_module_in_python_is_not_replaced(captured: Capture) -> None:
    class Remembers(Block):
        calls = 0

        def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
            self.calls += 1
            return super().forward(*args, **kwargs)

        forward.__signature__ = inspect.signature(Block.forward)

    with pytest.warns(RuntimeWarning, match="attribute calls"):
        optimized = drop_in(Remembers().eval(), captured, [BLOCK])
    before = optimized.calls
    optimized(X)
    assert optimized.calls == before + 1


def test_without_a_gpu_the_original_is_used_and_the_reason_says_so(
    captured: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRITON_INTERPRET")
    nine = torch.randn(9, 8)
    optimized = drop_in(Block().eval(), captured, [BLOCK])
    assert "need a GPU" in optimized.mtmc.reason
    with torch.no_grad(), pytest.warns(RuntimeWarning, match="need a GPU"):
        assert torch.equal(optimized(nine), Block.forward(optimized, nine))
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with torch.no_grad():
        optimized(X)  # as if it was on another device now
    assert optimized.mtmc.reason is None and optimized.mtmc.kernel_calls == 1
