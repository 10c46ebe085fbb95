"""What a running sum in fp32 may lose: as much as adding one number after the other does.

torch adds in blocks and trees, and float64 asked for numbers that are moved by their own rounding shows as little loss. A
kernel that carries a sum along a row of half a million numbers rounds it half a million times, which is a hundred times the
rounding of one number and yet all that the algorithm can do. So where a reference has running sums (or products), the
rounded float64 result gets what such roundings add up to. It stays far below what a narrower type loses anywhere.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

SHARE = 0.5
"""Of the roundings of one number after another that are simulated. What is found is multiplied by `compare.FACTOR`, so that
twice what they come to is allowed: the next draw of them may be unlucky."""
_SEED = 11
_SUMS, _PRODUCTS = ("aten::cumsum", "aten::cumsum_"), ("aten::cumprod", "aten::cumprod_")


class RunningSums(TorchDispatchMode):
    """While active, running sums and products are off by what rounding them to fp32 at each element comes to."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        result = func(*args, **named)
        name = func._schema.name
        if name not in (*_SUMS, *_PRODUCTS) or not result.is_floating_point() or result.dim() == 0:
            return result
        dim = int(named["dim"] if "dim" in named else args[1])
        generator = torch.Generator(result.device).manual_seed(_SEED)
        noise = torch.rand(result.shape, generator=generator, dtype=result.dtype, device=result.device)
        noise.sub_(0.5).mul_(SHARE * torch.finfo(torch.float32).eps)
        if name in _PRODUCTS:  # each rounding stays in all that follows
            return result.mul_(noise.cumsum_(dim).add_(1.0))
        return result.add_(noise.mul_(result).cumsum_(dim))
