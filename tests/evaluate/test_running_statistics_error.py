"""What the statistics of a batch norm may lose in fp32: as much as honest sums do, and less than TF32 does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from mtmc.evaluate.reference.bounds import FACTOR
from mtmc.evaluate.reference.running_sums import RunningSums

SHARE = 0.1
"""Of what is new in running statistics, torch's usual one."""


def plain(generator: torch.Generator) -> torch.Tensor:
    return torch.randn(4, 5, 4096, generator=generator)


def ordered(generator: torch.Generator) -> torch.Tensor:
    return plain(generator).sort(dim=-1).values


def by_lanes(x: torch.Tensor) -> torch.Tensor:
    """Sums of numbers [channels, terms] as a kernel makes them: of each of 256 lanes one after another, then of pairs."""
    lanes = x.unflatten(1, (-1, 256)).transpose(0, 1)
    total = torch.zeros_like(lanes[0])
    for each in lanes:
        total = total + each
    while total.shape[1] > 1:
        total = total[:, ::2] + total[:, 1::2]
    return total[:, 0]


def statistics(x: torch.Tensor) -> list[torch.Tensor]:
    """Running mean and variance after a call, both 0 before it. x: fp32 [channels, terms]."""
    mean = by_lanes(x) / x.shape[1]
    return [mean * SHARE, by_lanes((x - mean[:, None]) ** 2) / (x.shape[1] - 1) * SHARE]


def norm(x: torch.Tensor) -> list[torch.Tensor]:
    layer = nn.BatchNorm1d(5).double()
    assert layer.running_mean is not None and layer.running_var is not None
    layer.running_var.zero_()
    layer(x.double())
    return [layer.running_mean, layer.running_var]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("draw", [plain, ordered])
def test_honest_sums_are_precise_enough_and_tf32_is_not(
    draw: Callable[[torch.Generator], torch.Tensor], seed: int
) -> None:
    x = draw(torch.Generator().manual_seed(seed))
    exact = norm(x)
    with RunningSums():
        moved = norm(x)
    channels = x.transpose(0, 1).flatten(1)
    cut = (channels.view(torch.int32) & -(1 << 13)).view(torch.float32)
    for found, worse, right, p in zip(statistics(channels), statistics(cut), exact, moved, strict=True):
        own = float((p - right).norm() / right.norm())
        allowed = max(FACTOR * own, 4 * torch.finfo(torch.float32).eps)
        assert float((found.double() - right).norm() / right.norm()) <= allowed
        assert float((worse.double() - right).norm() / right.norm()) > allowed
        assert allowed < 3e-5


def test_statistics_that_are_not_written_lose_nothing() -> None:
    layer = nn.BatchNorm1d(5).double().eval()
    with RunningSums():
        layer(torch.randn(4, 5, 64).double())
    assert layer.running_mean is not None and not layer.running_mean.any()
    nn.functional.batch_norm(torch.randn(4, 5, 64).double(), None, None, training=True)
