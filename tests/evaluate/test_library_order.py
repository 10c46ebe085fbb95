"""A reference is as rough as what the library makes of its convolutions channels first or last, the rougher of both; and
inputs that stand out on either side are asked for where sums run along rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from mtmc.evaluate.reference import calibrating
from mtmc.evaluate.reference.calibrating import Library
from mtmc.evaluate.reference.compare import check_output
from mtmc.evaluate.reference.expected_value import Calibrated
from mtmc.evaluate.reference.first_items import Size
from mtmc.evaluate.reference.hard import EARLY, LATE, hard_of
from mtmc.evaluate.reference.reference import Reference
from mtmc.evaluate.reference.tf32 import ConvolutionsChannelsLast, Tf32Convolutions, Tf32Seen, round_to_tf32
from mtmc.task import Task, Variant

SOURCE = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        INIT

    def forward(self, x):
        return FORWARD


def get_inputs():
    return [INPUT]


def get_init_inputs():
    return []
"""
CONV = ("self.conv = nn.Conv2d(8, 16, 3)", "self.conv(x)", "torch.randn(4, 8, 12, 12)")


def made(folder: Path, init: str, forward: str, given: str) -> Reference:
    source = SOURCE.replace("INIT", init).replace("FORWARD", forward).replace("INPUT", given)
    return Reference(Task("it", source, Variant("full"), Variant("full")), Variant("full"), folder, 5)


class RoughChannelsLast(TorchDispatchMode):
    """A library that convolves fp32 numbers in TF32 where they lie channels last, and as they are elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.orders: list[bool] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.convolution.default and args[0].dtype == torch.float32:
            memory = {4: torch.channels_last, 5: torch.channels_last_3d}.get(args[0].dim())
            self.orders.append(memory is not None and args[0].is_contiguous(memory_format=memory))
            if self.orders[-1]:
                args = (round_to_tf32(args[0]), round_to_tf32(args[1]), *args[2:])
        return func(*args, **(kwargs or {}))


@pytest.fixture
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The flags of the task let the library convolve in TF32, as on a GPU."""
    monkeypatch.setattr(calibrating, "cut_convolutions", lambda device, narrowest: Tf32Convolutions())


def test_operands_lie_channels_last_and_the_result_as_it_would() -> None:
    with RoughChannelsLast() as library, ConvolutionsChannelsLast(), Tf32Seen() as seen:
        found = nn.functional.conv2d(torch.randn(2, 4, 9, 9), torch.randn(3, 4, 3, 3))
        assert library.orders[0] and seen.used and seen.first and found.is_contiguous()
        nn.functional.conv_transpose3d(torch.randn(1, 4, 3, 3, 3), torch.randn(4, 2, 3, 3, 3), stride=2)
    assert library.orders[1]
    with RoughChannelsLast() as library, ConvolutionsChannelsLast(), Tf32Seen() as seen:
        nn.functional.conv1d(torch.randn(2, 4, 9), torch.randn(3, 4, 3))  # has no such order
        nn.functional.conv2d(torch.randn(2, 4, 9, 9).half(), torch.randn(3, 4, 3, 3).half())
        nn.functional.conv2d(torch.randn(2, 4, 9, 9).to(memory_format=torch.channels_last), torch.randn(3, 4, 3, 3))
        assert not seen.first


@pytest.mark.usefixtures("allowed")
@pytest.mark.parametrize("shapes", ["full", "first items"])
def test_what_the_library_does_channels_last_is_allowed(
    shapes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shapes == "first items":
        monkeypatch.setattr(Size, "needed", lambda size, wide, share=1.0: 2**62 if share > 0.6 else 0)
    exact, rough = made(tmp_path, *CONV), made(tmp_path, *CONV)
    found = exact.calibrate(1)
    with RoughChannelsLast():
        rougher = rough.calibrate(1)
        hard = rough.timed(3, hard=True)
    assert found.library == Library(tf32=False, last=True) and rougher.library == Library(
        tf32=True, last=True, only_last=True
    )
    assert found.error is not None and rougher.error is not None and found.error < 1e-6 and rougher.error > 1e-4
    named = {"library_tf32", "library_tf32_channels_last"}
    assert named <= {*rougher.metrics} and not named & {*found.metrics}
    for each, passes in ((exact.timed(2), False), (rough.timed(2), True), (hard, True)):
        weight, bias = (value.detach() for value in rough.model.conv.parameters())
        [want] = each.outputs
        assert isinstance(want, Calibrated)
        rounded = nn.functional.conv2d(round_to_tf32(each.inputs[0]), round_to_tf32(weight), bias)
        assert (check_output("it", rounded, want)[1] is None) == passes
        low = nn.functional.conv2d(each.inputs[0].bfloat16(), weight.bfloat16(), bias.bfloat16()).float()
        assert check_output("it", low, want)[1] is not None


@pytest.mark.usefixtures("allowed")
def test_channels_last_is_asked_of_nothing_that_lies_so_or_cannot(tmp_path: Path) -> None:
    last = ("self.conv = nn.Conv2d(8, 16, 3).to(memory_format=torch.channels_last)", "self.conv(x)")
    given = "torch.randn(4, 8, 12, 12).to(memory_format=torch.channels_last)"
    for each in (
        (*last, given),
        ("self.conv = nn.Conv1d(8, 16, 3)", "self.conv(x)", "torch.randn(4, 8, 12)"),
        ("pass", "x @ x.t()", "torch.randn(8, 8)"),
    ):
        with RoughChannelsLast() as library:
            found = made(tmp_path, *each).calibrate(1)
        assert not found.library.last
        assert found.library.tf32 == any(library.orders)


@pytest.mark.usefixtures("allowed")
def test_a_reference_that_fails_channels_last_is_held_to_what_it_does(tmp_path: Path) -> None:
    class Refusing(RoughChannelsLast):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.aten.convolution.default and args[0].is_contiguous(memory_format=torch.channels_last):
                raise RuntimeError("not in this order")
            return func(*args, **(kwargs or {}))

    with Refusing():
        found = made(tmp_path, *CONV).calibrate(1)
    assert found.library == Library(tf32=False, last=True) and found.error is not None and found.error < 1e-6


class OneAfterAnother(TorchDispatchMode):
    """A GPU's running sums: in fp32, where a CPU's are in float64."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not torch.ops.aten.cumsum.default or args[0].dtype != torch.float32:
            return func(*args, **(kwargs or {}))
        total, sums = torch.zeros_like(args[0][:, 0]), []
        for each in args[0].unbind(1):
            total = total + each
            sums.append(total)
        return torch.stack(sums, 1)


def test_running_sums_are_asked_on_both_sides(tmp_path: Path) -> None:
    """Behind large numbers a reference in fp32 loses each small one. On an H200 22 right kernels were refused for that."""
    with OneAfterAnother():
        reference = made(tmp_path, "pass", "x.cumsum(1)", "torch.rand(16, 4096)")
        known = reference.calibrate_hard(1)
        assert known is not None and reference.calibrate(1).carried
        cases = [(hard_of(seed, known), reference.timed(seed, hard=True)) for seed in range(12)]
    assert {LATE, EARLY} < {kind for kind, _ in cases}
    worst = dict.fromkeys((LATE, EARLY), 0.0)
    for kind, case in cases:
        [want] = case.outputs
        assert isinstance(want, Calibrated)
        exact = case.inputs[0].double().cumsum(1)
        error, mismatch = check_output("it", exact.float(), want)
        assert mismatch is None
        worst[kind] = max(worst.get(kind, 0.0), error)
        low = check_output("it", case.inputs[0].bfloat16().float().cumsum(1), want)[1]
        assert low is not None or kind == EARLY  # as little is lost there in bfloat16
    assert worst["early"] > 3 * worst["late"]
    assert not made(tmp_path, "pass", "x.sum(1)", "torch.rand(16, 4096)").calibrate(1).carried
