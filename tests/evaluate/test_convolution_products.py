"""Convolutions in float64 as products: torch's own sums, and nothing that the modes above it do not see."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from test_reference import task
from torch.nn import functional as F

from mtmc.evaluate.reference import calibrating, oracle
from mtmc.evaluate.reference import convolution_products as module
from mtmc.evaluate.reference.compare import Expected
from mtmc.evaluate.reference.convolution_products import ConvolutionProducts, convolution_products
from mtmc.evaluate.reference.reference import Reference
from mtmc.evaluate.reference.running_sums import RunningSums
from mtmc.evaluate.reference.tf32 import Tf32Convolutions

CONVOLVE = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
SIZES = (9, 7, 6)


def operands(dims: int, groups: int, taps: int, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(dims * 10 + groups)
    channels = 2 * groups
    shapes = (3, channels, *SIZES[:dims]), (3 * groups, 2, *[taps] * dims), (3 * groups,)
    return tuple(torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes)


def products(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Groups of each convolution that was a product."""
    seen, product = list[int](), module._product

    def noted(*given: Any) -> torch.Tensor:
        seen.append(given[6])
        return product(*given)

    monkeypatch.setattr(module, "_product", noted)
    return seen


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2, 5])
@pytest.mark.parametrize("taps", [1, 3])
def test_products_are_the_library_s_convolutions(
    monkeypatch: pytest.MonkeyPatch, dims: int, groups: int, taps: int
) -> None:
    seen = products(monkeypatch)
    x, weight, bias = operands(dims, groups, taps)
    ways = list(itertools.product((1, 2), (0, 1, 2), (1, 2), (True, False)))
    for stride, padding, dilation, biased in ways:
        named: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        given = (x, weight, bias if biased else None)
        want = CONVOLVE[dims](*given, **named)
        with ConvolutionProducts() as mode:
            found = CONVOLVE[dims](*given, **named)
        assert mode.met and found.shape == want.shape and found.is_contiguous()
        torch.testing.assert_close(found, want, rtol=1e-13, atol=1e-13)
    assert seen == [groups] * len(ways)


def test_one_channel_a_group_and_several_results_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = products(monkeypatch)
    for results in (1, 3):
        layer = torch.nn.Conv2d(6, 6 * results, (3, 2), (2, 1), padding=(1, 0), groups=6).double()
        x = torch.randn(2, 6, 8, 5, dtype=torch.float64)
        want = layer(x)
        with ConvolutionProducts(), torch.no_grad():
            torch.testing.assert_close(layer(x), want, rtol=1e-13, atol=1e-13)
    assert seen == [6, 6]


@pytest.mark.parametrize("lies", ["channels last", "expanded", "a slice", "turned", "no batch", "padding by name"])
def test_operands_may_lie_as_they_like(monkeypatch: pytest.MonkeyPatch, lies: str) -> None:
    seen = products(monkeypatch)
    x, weight, bias = operands(2, 2, 3)
    named: dict[str, Any] = {"groups": 2, "padding": "same" if lies == "padding by name" else 1}
    if lies == "channels last":
        x, weight = (each.contiguous(memory_format=torch.channels_last) for each in (x, weight))
    elif lies == "expanded":
        x = x[:1].expand(4, -1, -1, -1)
    elif lies == "a slice":
        x, weight = x[:, :, 1:, ::2], weight[..., 1:]
    elif lies == "turned":
        x, weight = x.transpose(2, 3), weight.flip(0).transpose(2, 3)
    elif lies == "no batch":
        x = x[0]
    want = F.conv2d(x, weight, bias, **named)
    with ConvolutionProducts():
        torch.testing.assert_close(F.conv2d(x, weight, bias, **named), want, rtol=1e-13, atol=1e-13)
    assert seen == [2]


def test_the_rest_is_the_library_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """Narrower numbers, transposed convolutions, what is too large, what there is no memory for, and errors."""
    seen = products(monkeypatch)
    x, weight, bias = operands(2, 1, 3)
    with ConvolutionProducts() as mode:
        assert torch.equal(F.conv2d(x.float(), weight.float()), torch.ops.aten.conv2d(x.float(), weight.float()))
        F.conv_transpose2d(x, weight.transpose(0, 1).contiguous())
        F.conv2d(x[:0], weight)
        assert not mode.met and seen == []
        with pytest.raises(RuntimeError):
            F.conv2d(x[:, :, :2, :2], weight)
    want, size = F.conv2d(x, weight, bias), 3 * 7 * 5 * 18
    for most, asked in ((size - 1, []), (size, [1])):
        with ConvolutionProducts(most) as mode:
            torch.testing.assert_close(F.conv2d(x, weight, bias), want, rtol=1e-13, atol=1e-13)
        assert mode.met and seen == asked

    def short(*_: Any) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(module, "_product", short)
    with ConvolutionProducts():
        assert torch.equal(F.conv2d(x, weight, bias), want)


@pytest.mark.parametrize("groups", [1, 5])
def test_what_a_convolution_loses_it_loses_as_before(monkeypatch: pytest.MonkeyPatch, groups: int) -> None:
    """TF32 and running sums are met above the product, and the product's own ops are not."""
    x, weight, bias = operands(2, groups, 3)

    def lost() -> tuple[torch.Tensor, bool]:
        with Tf32Convolutions(0.5) as tf32, RunningSums():
            return F.conv2d(x, weight, bias, groups=groups), tf32.met

    want, exact, seen = lost(), F.conv2d(x, weight, bias, groups=groups), products(monkeypatch)
    with ConvolutionProducts():
        found = lost()
    assert want[1] and found[1] and seen == [groups]
    torch.testing.assert_close(found[0], want[0], rtol=1e-12, atol=1e-12)
    assert float((found[0] - exact).norm() / exact.norm()) > 1e-5


def test_only_a_gpu_has_products() -> None:
    assert isinstance(convolution_products("cuda:0"), ConvolutionProducts)
    assert not isinstance(convolution_products("cpu"), ConvolutionProducts)


@pytest.mark.parametrize(
    "init",
    [
        "self.net = nn.Sequential(nn.Conv2d(4, 8, 3, groups=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8))",
        "self.net = nn.Sequential(nn.Conv2d(4, 6, 1, bias=False), nn.ReLU(), nn.Conv2d(6, 4, 3, 2, 1))",
        "self.net = nn.Sequential(nn.Flatten(2), nn.Conv1d(4, 4, 5, dilation=2), nn.BatchNorm1d(4))",
        "self.net = nn.Linear(10, 4)",
    ],
)
def test_an_oracle_says_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, init: str) -> None:
    """At small shapes and where a reference is calibrated; one without convolutions is not watched again."""
    asked = task("x, = inputs; return self.net(x)", "[torch.randn(rows, 4, 10, 10)]", init)

    def told() -> tuple[list[torch.Tensor], list[float], Reference]:
        made = Reference(asked, asked.small, tmp_path, 3)
        calls = made.expected("drawn", 5, 2)
        assert calls is not None and all(call.exact for call in calls)
        outputs = [each for call in calls for each in call.everything if isinstance(each, Expected)]
        known = made.calibrate(7)
        floating = [each for each in outputs if each.value.is_floating_point()]
        own = [each.own for each in known.precisions if each is not None]
        return [t for each in floating for t in (each.oracle, each.rounded)], own, made

    want, seen = told(), products(monkeypatch)
    for place in (oracle, calibrating):
        monkeypatch.setattr(place, "convolution_products", lambda _: ConvolutionProducts())
    found = told()
    assert bool(seen) == ("Conv" in init)
    assert isinstance(found[2]._oracle._products, ConvolutionProducts) == bool(seen)
    for a, b in zip(found[0], want[0], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)
    assert found[1] == pytest.approx(want[1], rel=1e-3)
