"""Degenerate weights, moved: a norm's weight of ones or a bias of zeros lets a kernel leave a step out unseen.

Noise is added to what a constructor sets to one value throughout. A candidate need not make such a tensor in the
reference's way or order (a Parameter of torch.ones for a LayerNorm's weight), so the noise follows from value, shape
and seed alone, and not from the device.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from mtmc.task.quantized import readable

SPREAD = 0.25
"""Noise is uniform between minus and plus this, relative to the value, or absolute where the value is next to zero."""
SMALL = 0.05
"""A value next to zero: a scale of 1e-6, which a constructor gives to a branch, hides it as zero does."""
_INITIALIZERS = ("zeros_", "ones_", "constant_")


@contextlib.contextmanager
def moving_initializers(seed: int) -> Iterator[None]:
    """While open, `torch.nn.init.zeros_`, `ones_` and `constant_` add noise: what a constructor then makes of such a
    weight (a transposed copy, say) is made of the moved one. Not for several threads at once."""
    originals = {name: getattr(torch.nn.init, name) for name in _INITIALIZERS}
    try:
        for name, original in originals.items():
            setattr(torch.nn.init, name, _moving(original, seed))
        yield
    finally:
        for name, original in originals.items():
            setattr(torch.nn.init, name, original)


def move_degenerate(model: torch.nn.Module, seed: int) -> None:
    """Add noise to the floating parameters and buffers of a model that are one value throughout.

    A single number is moved if it is 0 or 1: another one is more likely drawn than degenerate.
    """
    floating = [each for each in (*model.parameters(), *model.buffers()) if each.is_floating_point() and each.numel()]
    moved: set[int] = set()
    for tensor, (low, high) in zip(floating, _ends(floating), strict=True):
        if tensor.untyped_storage()._cdata in moved:  # another one's memory: it may be degenerate no more
            [[low, high]] = _ends([tensor])
        if low == high and (tensor.numel() > 1 or low in (0.0, 1.0)):
            _move(tensor, seed, low)
            moved.add(tensor.untyped_storage()._cdata)


def perturb(model: torch.nn.Module, seed: int) -> None:
    """Change each element of a model's floating parameters by up to half of it, or by up to a half if it is zero."""
    generators: dict[torch.device, torch.Generator] = {}
    with torch.no_grad():
        for tensor in model.parameters():
            if tensor.is_floating_point():
                generator = generators.setdefault(tensor.device, torch.Generator(tensor.device).manual_seed(seed))
                values = readable(tensor)
                noise = torch.rand(tensor.shape, generator=generator, device=tensor.device).to(values.dtype) - 0.5
                tensor.copy_(torch.where(values == 0, noise, values * (1 + noise)))


def _ends(tensors: list[torch.Tensor]) -> list[list[float]]:
    """Least and largest element of each. One wait for the device: a deep network has hundreds of them."""
    if not tensors:
        return []
    ends = [torch.stack(torch.aminmax(readable(each.detach()))).double().to(tensors[0].device) for each in tensors]
    found: list[list[float]] = torch.stack(ends).tolist()
    return found


def _moving(original: Callable[..., torch.Tensor], seed: int) -> Callable[..., torch.Tensor]:
    @functools.wraps(original)
    def initialize(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        result = original(tensor, *args, **kwargs)
        if tensor.is_floating_point() and tensor.numel():
            _move(tensor, seed, float(tensor.detach().reshape(-1)[0]))
        return result

    return initialize


def _move(tensor: torch.Tensor, seed: int, value: float) -> None:
    """Add noise to a tensor of one value; an infinite one, or memory that stands for several elements, stays."""
    overlapping = any(step == 0 and size > 1 for step, size in zip(tensor.stride(), tensor.shape, strict=True))
    if overlapping or not abs(value) < float("inf"):
        return
    value += 0.0  # no -0.0
    digest = hashlib.sha256(f"{seed} {value} {tuple(tensor.shape)}".encode()).digest()
    generator = torch.Generator("cpu").manual_seed(int.from_bytes(digest[:7], "little"))
    noise = torch.rand(tensor.shape, generator=generator, device="cpu", dtype=torch.float32)
    noise = (2.0 * noise - 1.0) * SPREAD
    with torch.no_grad():
        if value != 0.0 and abs(value) < SMALL:
            tensor.copy_(value + noise.abs() * (1.0 if value > 0.0 else -1.0))
        else:
            tensor.copy_(noise if value == 0.0 else value * (1.0 + noise))
