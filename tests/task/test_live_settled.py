"""Modules that set themselves up in their first call: looked at, they are as after any call, and nothing is done twice."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from mtmc.errors import TaskError
from mtmc.task import capture_module
from mtmc.task.live_settled import settle
from mtmc.task.tensors import flat_tensors
from mtmc.whole.live import LiveModel
from tests.task.printed import printed


class Once(nn.Module):
    """Does something when it is first called. kept: what all of them have besides."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))
        self.register_buffer("shift", torch.ones(8))
        self.register_buffer("table", torch.arange(4.0))
        self.calls = torch.zeros(())
        self.ready = False
        self.seen: dict[str, int] = {}

    def set_up(self, x: torch.Tensor) -> None:
        """What the first call does."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.ready:
            self.set_up(x)
            self.ready = True
        self.calls += 1
        return x * self.weight + self.shift + self.table[:8].sum() + self.calls


class Scales(Once):
    def set_up(self, x: torch.Tensor) -> None:
        with torch.no_grad():
            self.weight.mul_(0.5)


class ScalesUnseen(Once):
    def set_up(self, x: torch.Tensor) -> None:
        self.weight.data.mul_(0.5)


class ShiftsBuffer(Once):
    def set_up(self, x: torch.Tensor) -> None:
        self.shift.mul_(0.5)


class NewParameter(Once):
    def set_up(self, x: torch.Tensor) -> None:
        self.weight = nn.Parameter(self.weight.detach() * 0.5)


class LongerTable(Once):
    def set_up(self, x: torch.Tensor) -> None:
        self.table = torch.arange(8.0)


class Notes(Once):
    def set_up(self, x: torch.Tensor) -> None:
        self.seen["features"] = x.shape[-1]


class Inside(nn.Module):
    """Has one inside that scales its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Scales()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x).relu()


@pytest.mark.parametrize("kind", [Scales, ScalesUnseen, ShiftsBuffer, NewParameter, LongerTable, Notes, Inside])
@pytest.mark.parametrize("called", [0, 2])
def test_a_captured_module_goes_on_as_one_that_was_only_called(kind: type[nn.Module], called: int) -> None:
    module = kind().eval()
    x = torch.randn(6, 8)
    with torch.no_grad():
        for _ in range(called):
            module(x)
    twin: Any = copy.deepcopy(module)
    capture = capture_module(module, x)
    model, inputs = printed(capture.task)
    with torch.no_grad():
        found, wanted = flat_tensors(model(*inputs))[0], copy.deepcopy(module)(*inputs)
        torch.testing.assert_close(found, wanted)
        for _ in range(2):
            torch.testing.assert_close(module(x), twin(x))
    assert dict(module.named_parameters()).keys() == dict(twin.named_parameters()).keys()
    for name, tensor in twin.state_dict().items():
        assert torch.equal(module.state_dict()[name], tensor), name


@pytest.mark.parametrize("kind", [Scales, ScalesUnseen, NewParameter, Inside])
def test_a_model_in_pieces_is_set_up_once(kind: type[nn.Module]) -> None:
    module = kind().eval()
    twin, x = copy.deepcopy(module), torch.randn(6, 8)
    live = LiveModel(module, (x,), {})
    live.settle()
    for _ in range(2):
        live.anew(module)
    with torch.no_grad():
        torch.testing.assert_close(module(x), twin(x))


class Decays(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))
        self.other = nn.Parameter(torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.weight.mul_(0.5)
        return x * self.weight + self.other


def test_a_parameter_that_every_call_changes_is_refused_and_is_changed_by_one_call() -> None:
    module = Decays()
    with pytest.raises(TaskError, match="module Decays: forward changes its parameter weight at every call"):
        capture_module(module, torch.randn(6, 8))
    assert torch.equal(module.weight, torch.full((8,), 0.5)) and torch.equal(module.other, torch.ones(8))


def test_a_call_that_fails_leaves_all_that_is_no_parameter() -> None:
    class Fails(Once):
        def set_up(self, x: torch.Tensor) -> None:
            self.shift.mul_(2)
            self.seen["x"] = 1
            raise ValueError("no")

    module = Fails()
    with pytest.raises(ValueError, match="no"):
        settle(module, lambda: module(torch.ones(6, 8)), "Fails")
    assert torch.equal(module.shift, torch.ones(8)) and module.seen == {} and not module.ready


def test_what_each_call_changes_is_put_back_beside_what_stays() -> None:
    module = Scales()
    settle(module, lambda: module(torch.ones(6, 8)), "Scales")
    assert module.ready and float(module.calls) == 0.0 and bool((module.weight == 0.5).all())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn])
def test_a_write_is_seen_in_every_dtype_and_through_any_strides(dtype: torch.dtype) -> None:
    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4, 6).to(dtype).t(), requires_grad=False)

        def forward(self) -> None:
            self.weight.data.copy_((self.weight.float() * 2).to(dtype))

    module = Writes()
    with pytest.raises(TaskError, match="its parameter weight at every call"):
        settle(module, module, "Writes")
