"""Which optional argument was given, and which way forward goes by a size: kernels hold for the example's alone."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn

import mtmc
from tests.whole.toy import KernelCounter


class Branches(nn.Module):
    """Work that hangs on a size, and on which of two tensors is given."""

    def forward(self, x: torch.Tensor, mask: Any = None, bias: Any = None) -> dict[str, Any]:
        y = torch.exp(x * 0.5) * (2.0 if x.shape[0] > 4 else 3.0)
        if mask is not None:
            y = y * mask
        return {"y": y if bias is None else y + bias, "kind": "masked"}


@pytest.fixture
def optimized(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    parts: dict[str, Any] = {"budget": 2, "cache": False, "dumps": False, "evaluator": KernelCounter()}
    return mtmc.optimize(Branches().eval(), (example(6),), {"mask": example(6)}, **parts)


def example(rows: int) -> torch.Tensor:
    return torch.linspace(-1, 2, rows * 8).reshape(rows, 8)


def by_kernels(optimized: Any, rows: int, **given: Any) -> bool:
    """Whether kernels run a call; the result is right whoever has computed it."""
    before, x = optimized.mtmc.kernel_calls, example(rows)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, wanted = optimized(x, **given), Branches()(x, **given)
    assert {**found, "y": 0} == {**wanted, "y": 0} and torch.allclose(found["y"], wanted["y"], atol=1e-6)
    return bool(optimized.mtmc.kernel_calls > before)


def test_one_optional_argument_is_not_another(optimized: Any) -> None:
    assert optimized.mtmc.reason is None
    assert by_kernels(optimized, 6, mask=example(6))
    assert by_kernels(optimized, 6, mask=example(6), bias=None)
    assert not by_kernels(optimized, 6, bias=example(6))
    assert not by_kernels(optimized, 6, mask=None, bias=example(6))
    assert not by_kernels(optimized, 6, mask=example(6), bias=example(6))
    assert not by_kernels(optimized, 6)
    assert by_kernels(optimized, 6, bias=None, mask=example(6))


def test_the_other_way_through_a_branch_on_a_size_is_the_originals(optimized: Any) -> None:
    found = {rows: by_kernels(optimized, rows, mask=example(rows)) for rows in (1, 2, 4, 5, 6, 9)}
    assert found == {1: False, 2: False, 4: False, 5: True, 6: True, 9: True}, dict(optimized.mtmc.reasons)
