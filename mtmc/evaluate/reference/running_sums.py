"""What a running sum in fp32 may lose: as much as adding one number after the other does.

torch adds in blocks and trees, and float64 asked for numbers that are moved by their own rounding shows as little loss. A
kernel that carries a sum along a row of half a million numbers rounds it half a million times, which is a hundred times the
rounding of one number and yet all that the algorithm can do. So where a reference has running sums (or products), the
rounded float64 result gets what such roundings add up to. It stays far below what a narrower type loses anywhere.
One sum of a million numbers and more is a running one, too, where programs add their parts to it one after another.
So are the statistics of a batch norm, which torch adds up in float64 on a CPU, and channels last in fp32, one number after
another; of numbers of either sign partial sums may be as large as half of all that is added (in order of size they are),
and the mean a small rest of them.
So is each element of a product in fp32 that does without tensor cores: of inputs that stand out, what is added to one
large number is rounded as that is. Libraries add up in several parts, and lose a fourth or fifth of it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

SHARE = 0.5
"""Of the roundings of one number after another that are simulated. What is found is multiplied by `compare.FACTOR`, so that
twice what they come to is allowed: the next draw of them may be unlucky."""
_SEED = 11
KEPT_SIGNS = 1 << 14
"""Elements up to which signs are kept for the next tensor of the shape: drawing them takes longer than what they are for."""
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
_NORMS = tuple(
    f"aten::{name}"
    for name in ("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "_native_batch_norm_legit")
)
"""Batch norms, of an input and a weight, with running statistics as arguments 3 and 4; 5 is whether they write those, 6 the
share of what is new. They return what one over the deviation is as the third result."""
_MATRICES = {
    "aten::mm": 0,
    "aten::bmm": 0,
    "aten::mv": 0,
    "aten::dot": 0,
    "aten::addmm": 1,
    "aten::baddbmm": 1,
    "aten::addmv": 1,
}
"""Products, and which argument is the left operand."""
MOST_TERMS = 1 << 13
"""Of a product's element, beyond which no more is granted: with twice as many, two pieces of bf16 (4e-6) would do."""
_SUMS, _PRODUCTS = ("aten::cumsum", "aten::cumsum_"), ("aten::cumprod", "aten::cumprod_")


class RunningSums(TorchDispatchMode):
    """While active, running sums and products are off by what rounding them to fp32 at each element comes to.

    carried: whether there was one that hands on what it has at each element."""

    def __init__(self) -> None:
        super().__init__()
        self.carried = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        result = func(*args, **named)
        name = func._schema.name
        with torch._C._DisableTorchDispatch():  # what is added here is nothing for the modes beneath this one
            return self._lost(name, args, named, result)

    def _lost(self, name: str, args: Any, named: Any, result: Any) -> Any:
        """The result of an op, with what is lost of it."""
        if name in _NORMS and args[5]:
            self._statistics(args, result)
            return result
        if name in _WHOLE and _is_long(result, args[0]):
            return self._whole(result, args[0])
        if terms := _terms(name, args):
            return self._product(result, terms)
        if name not in (*_SUMS, *_PRODUCTS) or not result.is_floating_point() or result.dim() == 0:
            return result
        self.carried = True
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
        return result.add_(result.abs().mul_(_loss(given.numel() / result.numel() / PIECE / 3)))

    @staticmethod
    def _statistics(args: Any, result: Any) -> None:
        """Statistics of the channels (dimension 1) with what is lost of them, kept and used."""
        given, weight, _, kept_mean, kept_variance, _, share, *_ = args
        others = [dim for dim in range(given.dim()) if dim != 1]
        terms, eps = given.numel() / given.shape[1], torch.finfo(torch.float32).eps
        loss = _loss(max(terms / PIECE, min(terms, MOST_TERMS)) / 3)
        variance, mean = torch.var_mean(given, dim=others, correction=0)
        sizes = torch.linalg.vector_norm(given, 1, dim=others) / terms
        moved = (mean.abs() * loss + sizes * (SHARE * eps / 4)) * _signs(mean)
        if kept_mean is not None:
            kept_mean.add_(moved * share)
            kept_variance.add_(variance * (loss * share))
        scale = result[2] if weight is None else result[2] * weight
        result[0].sub_((moved * scale).reshape(-1, *[1] * (given.dim() - 2))).mul_(1 - loss / 2)

    @staticmethod
    def _product(result: Any, terms: int) -> Any:
        """A product with what rounding the sum of an element after each term comes to, of either sign: `terms` roundings of
        at most half a unit of a sum that is as large as it ends for half of them."""
        if not result.is_floating_point() or result.numel() == 0:
            return result
        return result.mul_((_signs(result) * _loss(min(terms, MOST_TERMS) / 12)).add_(1.0))


def _signs(like: Any) -> Any:
    """1 or -1 for each element, the same for the same shape: not to be changed."""
    made = _drawn_signs if like.numel() <= KEPT_SIGNS else _drawn_signs.__wrapped__
    return made(tuple(like.shape), like.dtype, like.device)


@lru_cache(maxsize=256)
def _drawn_signs(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    generator = torch.Generator(device).manual_seed(_SEED)
    signs = torch.randint(2, shape, generator=generator, dtype=torch.int8, device=device)
    return signs.to(dtype).mul_(2.0).sub_(1.0)


def _loss(roundings: float) -> float:
    """What so many roundings of a whole sum come to, as a part of it."""
    return torch.finfo(torch.float32).eps / 2 * roundings**0.5 * SHARE


def _terms(name: str, args: Any) -> int:
    """Terms that are added up for an element of a product; 0 where it is none."""
    if name in _MATRICES:
        return int(args[_MATRICES[name]].shape[-1])
    if name == "aten::convolution":
        weight, transposed, groups = args[1], args[6], args[8]
        return int(weight.numel() // weight.shape[0] if not transposed else weight.numel() // weight.shape[1] // groups)
    return 0


def _is_long(result: Any, given: Any) -> bool:
    return (
        isinstance(result, torch.Tensor) and result.is_floating_point() and given.numel() >= LONG * result.numel() > 0
    )
