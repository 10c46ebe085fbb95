"""Kernels of hand-written versions, run by Triton's interpreter in this process."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch

from mtmc.dropin import drop_in
from mtmc.task import Capture, Slot, Task, Variant, capture_module
from mtmc.task.live_call import Call
from tests.dropin.modules import BLOCK, COUNTER_TASK, Block


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def captured() -> Capture:
    """Of a `Block` that no test sees."""
    torch.manual_seed(1)
    return capture_module(Block().eval(), torch.randn(6, 8))


@pytest.fixture
def block(captured: Capture) -> Block:
    """A drop-in of a `Block`, whose kernels are right."""
    return made(Block().eval(), captured)


@pytest.fixture(scope="session")
def counted() -> Capture:
    """Of a `Counter`."""
    buffer = io.BytesIO()
    torch.save({"total": torch.zeros(8)}, buffer)
    small, odd = (Variant(label, (("rows", rows),)) for label, rows in (("small", 2), ("odd1", 5)))
    task = Task("Counter", COUNTER_TASK, Variant("full"), small, (odd,), buffer.getvalue())
    call = Call((torch.randn(3, 8), torch.randn(4)), {}, ("x", "cache"))
    return Capture(task, call, {"total": "total"}, Slot(0))


def made(module: torch.nn.Module, capture: Capture, source: str = BLOCK) -> Any:
    """A drop-in whose version is used."""
    optimized = drop_in(module, capture, [source])
    assert optimized.mtmc.reason is None, optimized.mtmc.reason
    return optimized
