"""Convolutions in float64 as products of unfolded inputs: the same sums in another order, for the trusted side alone.

Deep networks at small shapes are expected to wait for the library's float64 convolutions on a GPU, grouped ones above all,
and products of matrices to take it less time. Neither was measured yet; a CPU keeps the library's.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_log = logging.getLogger(__name__)

MOST = 1 << 25
"""Elements of an unfolded input, 256 MiB: the library convolves what is larger."""


class ConvolutionProducts(TorchDispatchMode):
    """While active, convolutions of float64 numbers are products, but transposed and very large ones. Other modes are to be
    opened after it, so that they meet convolutions. met: whether there was one."""

    def __init__(self, most: int = MOST) -> None:
        super().__init__()
        self._most = most
        self.met = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.convolution.default:
            given, weight, bias, stride, padding, dilation, transposed, _, groups = args
            if given.dtype == weight.dtype == torch.float64 and given.numel() and not transposed:
                self.met = True
                places = _places(given, weight, stride, padding, dilation)
                if min(places) > 0 and given.shape[0] * math.prod(places) * weight[0].numel() * groups <= self._most:
                    try:
                        return _product(given, weight, bias, stride, padding, dilation, groups, places)
                    except torch.OutOfMemoryError:
                        _log.warning("no memory to unfold the input of a convolution of %s", list(given.shape))
        return func(*args, **(kwargs or {}))


def convolution_products(device: str) -> AbstractContextManager[Any]:
    """`ConvolutionProducts` on a GPU; nothing on a CPU, whose library is as fast."""
    return ConvolutionProducts() if device.startswith("cuda") else nullcontext()


def _places(
    given: torch.Tensor, weight: torch.Tensor, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> list[int]:
    """Sizes of the result's map."""
    sizes = zip(given.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
    return [(size + 2 * pad - gap * (taps - 1) - 1) // step + 1 for size, taps, step, pad, gap in sizes]


def _product(
    given: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    places: Sequence[int],
) -> torch.Tensor:
    """given: (items, channels, map). weight: (results, channels of a group, taps). places: see `_places`. Returns: (items,
    results, places), contiguous, as the library's float64 results lie."""
    items, channels = given.shape[0], given.shape[1] // groups
    padded = torch.nn.functional.pad(given, [pad for each in reversed(padding) for pad in (each, each)]).contiguous()
    by_item, by_channel, *by_place = padded.stride()
    taps = [step * gap for step, gap in zip(by_place, dilation, strict=True)]
    steps = [step * jump for step, jump in zip(by_place, stride, strict=True)]
    unfolded = padded.as_strided(
        (groups, channels, *weight.shape[2:], items, *places),
        (channels * by_channel, by_channel, *taps, by_item, *steps),
    )
    terms = weight[0].numel()
    rows = weight.reshape(groups, weight.shape[0] // groups, terms)
    found = torch.bmm(rows, unfolded.reshape(groups, terms, items * math.prod(places)))
    found = found.reshape(weight.shape[0], items, *places).transpose(0, 1).contiguous()
    return found if bias is None else found.add_(bias.reshape(-1, *[1] * len(places)))
