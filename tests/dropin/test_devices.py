"""Tensors of cuda:1 while cuda:0 is the current device, on which Triton would launch: with stand-ins for the devices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from benchmarks import guard_cost
from mtmc.dropin.operator import operator
from mtmc.dropin.winner import Verdict
from tests.dropin.modules import Block

OTHER = torch.device("cuda", 1)


class Devices:
    """Two of them. current: as torch.cuda.current_device() says."""

    def __init__(self) -> None:
        self.current = 0

    @contextmanager
    def device(self, device: torch.device) -> Iterator[None]:
        before, self.current = self.current, device.index
        try:
            yield
        finally:
            self.current = before


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> Devices:
    made = Devices()
    monkeypatch.setattr(torch.cuda, "device", made.device)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: made.current)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    return made


@pytest.mark.parametrize("gradients", [True, False])
def test_a_drop_in_launches_on_the_device_of_the_tensors(block: Block, devices: Devices, gradients: bool) -> None:
    launched = []
    x = torch.zeros(1)
    instance: Any = SimpleNamespace(run=lambda inputs, tensors: launched.append(devices.current) or x)
    verdict = Verdict(instance, "", OTHER)
    with torch.set_grad_enabled(gradients):
        block.mtmc._winners[0]._launch(verdict, [x], [])
    assert launched == [1] and devices.current == 0


def test_its_guards_are_asked_on_the_device_of_the_tensors(block: Block, devices: Devices) -> None:
    asked = []
    instance: Any = SimpleNamespace(is_guarded=True, why_not=lambda inputs, tensors: asked.append(devices.current))
    block.mtmc._winners[0]._refusal(instance, [SimpleNamespace(device=OTHER)], [])
    assert asked == [1] and devices.current == 0


def test_so_does_the_operator(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    open_on: list[torch.device] = []

    @contextmanager
    def launched_on(device: torch.device) -> Iterator[None]:
        open_on.append(device)
        yield

    winner = block.mtmc._winners[0]
    monkeypatch.setattr("mtmc.dropin.operator.launched_on", launched_on)
    monkeypatch.setattr("mtmc.dropin.operator._registered", {})
    monkeypatch.setattr("mtmc.dropin.operator.NAMESPACE", "mtmc_devices")
    x = torch.randn(6, 8)
    with torch.no_grad():
        found = operator(winner.recipe, winner.mutated)(x, *winner.tensors())
        assert torch.allclose(found, Block.forward(block, x), atol=1e-5) and open_on == [x.device]


def test_a_file_refuses_them_by_its_guards_however_often_it_has_run(devices: Devices) -> None:
    names: dict[str, Any] = {}
    exec(guard_cost.text(1), names)
    model, admits = names["ModelNew"](), names["admits"]
    names["why_not"] = lambda *tensors: None  # the stand-in is no plain tensor
    with torch.no_grad(), FakeTensorMode():
        x = torch.empty(4, 8, device=OTHER)
        for _ in range(2):
            assert "on cuda:1, and cuda:0 is the current device" in admits(model, x)
        with devices.device(OTHER):
            assert admits(model, x) is None and admits(model, x) is None and len(model._known_forms) == 1
        assert "on cuda:1, and cuda:0 is the current device" in admits(model, x)
