"""What a running sum in fp32 may lose: as much as adding one number after the other does.

torch adds in blocks and trees, and float64 asked for numbers that are moved by their own rounding shows as little loss. A
kernel that carries a sum along a row of half a million numbers rounds it half a million times, which is a hundred times the
rounding of one number and yet all that the algorithm can do. So where a reference has running sums (or products), the
rounded float64 result gets what such roundings add up to. It stays far below what a narrower type loses anywhere.
One sum of a million numbers and more is a running one, too, where programs add their parts to it one after another.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

SHARE = 0.5
"""Of the roundings of one number after another that are simulated. What is found is multiplied by `compare.FACTOR`, so that
twice what they come to is allowed: the next draw of them may be unlucky."""
_SEED = 11
LONG, PIECE = 1 << 18, 1 << 12
"""Numbers from which a whole sum counts as a running one, and numbers that a program adds up before it adds what it has to
the sum of all."""
_WHOLE = tuple(
    f"aten::{name}"
    for name in (
        "sum", "mean", "linalg_vector_norm", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div",
        "binary_cross_entropy", "binary_cross_entropy_with_logits", "var", "std",
    )
)  # fmt: skip
_SUMS, _PRODUCTS = ("aten::cumsum", "aten::cumsum_"), ("aten::cumprod", "aten::cumprod_")


class RunningSums(TorchDispatchMode):
    """While active, running sums and products are off by what rounding them to fp32 at each element comes to."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        result = func(*args, **named)
        name = func._schema.name
        if name in _WHOLE and _is_long(result, args[0]):
            return self._whole(result, args[0])
        if name not in (*_SUMS, *_PRODUCTS) or not result.is_floating_point() or result.dim() == 0:
            return result
        dim = int(named["dim"] if "dim" in named else args[1])
        generator = torch.Generator(result.device).manual_seed(_SEED)
        noise = torch.rand(result.shape, generator=generator, dtype=result.dtype, device=result.device)
        noise.sub_(0.5).mul_(SHARE * torch.finfo(torch.float32).eps)
        if name in _PRODUCTS:  # each rounding stays in all that follows
            return result.mul_(noise.cumsum_(dim).add_(1.0))
        return result.add_(noise.mul_(result).cumsum_(dim))

    @staticmethod
    def _whole(result: Any, given: Any) -> Any:
        """A long sum with what rounding it after each piece comes to. K roundings of at most half a unit of a sum that grows
        evenly come to eps / 2 sqrt(K / 3) of it, if each is drawn by itself."""
        pieces = given.numel() / result.numel() / PIECE
        loss = torch.finfo(torch.float32).eps / 2 * (pieces / 3) ** 0.5 * SHARE
        return result.add_(result.abs().mul_(loss))


def _is_long(result: Any, given: Any) -> bool:
    return (
        isinstance(result, torch.Tensor) and result.is_floating_point() and given.numel() >= LONG * result.numel() > 0
    )
