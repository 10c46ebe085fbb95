"""Weights with heavy tails: drawn small ones hide what a kernel takes for granted of them.

While a model is constructed, some of the random numbers that torch draws are made several times as large, and the others
smaller, so that their mean square stays and a deep network's numbers neither grow nor fade. Which ones follows from the
numbers themselves, so that reference and candidate, which draw the same ones, get the same weights, in whatever way they
ask for them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

TAILS = ((1 / 64, 4.0), (1 / 256, 8.0))
"""(share of the elements, what they are multiplied by)."""
REST = ((1.0 - sum(share * factor**2 for share, factor in TAILS)) / (1.0 - sum(share for share, _ in TAILS))) ** 0.5
"""What the others are multiplied by."""
LEAST = 16
"""Elements from which on a tensor has tails."""
_DRAWS = ("normal_", "uniform_", "randn", "rand", "normal", "randn_like", "rand_like")
_TRUNCATED = ("erfinv", "erfinv_")


class HeavyTails(TorchDispatchMode):
    """While active, normal and uniform random numbers have heavy tails. seed: of what they follow from besides."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seed = seed

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "overloadpacket", func).__name__
        if name in _TRUNCATED and args[0].is_floating_point():  # torch makes truncated normals of uniform numbers
            edge = 1.0 - torch.finfo(args[0].dtype).eps
            args = (args[0].clamp_(-edge, edge), *args[1:])
        result = func(*args, **(kwargs or {}))
        own = (kwargs or {}).get("generator") is not None  # the evaluator's own noise, see `degenerate`
        if name in _DRAWS and not own and isinstance(result, torch.Tensor):
            grow_tails(result, self._seed)
        return result


def grow_tails(tensor: torch.Tensor, seed: int) -> None:
    """Give a tensor of random numbers tails, in place; one that is not floating, small, or without data stays."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.is_meta or tensor.numel() < LEAST:
        return
    if not tensor.is_floating_point() or tensor.layout is not torch.strided:
        return
    first = float(tensor.detach().reshape(-1)[0])
    digest = hashlib.sha256(f"{seed} {first} {tensor.numel()}".encode()).digest()
    generator = torch.Generator(tensor.device).manual_seed(int.from_bytes(digest[:7], "little"))
    numbers = torch.rand(tensor.shape, generator=generator, device=tensor.device)
    factors, below = torch.full_like(numbers, REST), 0.0
    for share, factor in TAILS:
        factors[(numbers >= below) & (numbers < below + share)] = factor
        below += share
    with torch.no_grad():
        tensor.mul_(factors.to(tensor.dtype))


def with_tails(weights: Mapping[str, torch.Tensor], seed: int) -> dict[str, torch.Tensor]:
    """Copies of the tensors of a state, those that are not one value throughout with tails."""
    grown = {name: tensor.clone() if isinstance(tensor, torch.Tensor) else tensor for name, tensor in weights.items()}
    for tensor in grown.values():
        if isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and tensor.numel() >= LEAST:
            low, high = torch.aminmax(tensor.detach())
            if bool(low != high):
                grow_tails(tensor, seed)
    return grown
