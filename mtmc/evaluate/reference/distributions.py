"""What inputs are drawn from besides the task's own distribution, to show what its easy inputs hide.

Each of them keeps signs, integers and single numbers as they are, and makes no two elements equal that were not, so that
logarithms, indices and the order of a sort keep their meaning. What a task draws alike with every seed (a mask of ones, a
gate of zeros, a table of positions) has another value in all of them (`redraw`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch

from mtmc.task.quantized import readable, stored
from mtmc.task.tensors import map_tensors

Distribution = Literal["drawn", "redrawn", "shifted", "spiky", "sparse", "late", "early", "wide", "huge"]
USUAL: tuple[Distribution, ...] = ("drawn", "shifted")
"""Those for which KernelBench's tolerance is made."""
SPREAD = 3.0
SHIFT = 0.5
EXPONENT = 6
SPIKES = (4, 10)
"""Exponents of two by which an element that stands out does so."""
SPIKE_SHARE = 1 / 64
"""Share of elements, and of rows, that stand out; at least one in each tensor."""
TINY = 2.0**-12
"""Of an element that counts for nothing. No zero: equal numbers have no order, and zeros no logarithm."""
PLACES = (1 / 2, 3 / 4, 7 / 8)
"""Parts of every row that count for nothing where only what comes behind them (or before, counted from the end) does."""
HUGE = 2.0**18
"""Beyond float16, far inside of bfloat16 and float32."""
NOISE = 0.25
"""What a fixed input is moved by at most: relative, or absolute where it is zero throughout."""
CLEARED = 1 / 8
"""Share of the elements of a fixed mask that are turned over."""


def redistributed(
    inputs: list[Any], distribution: Distribution, seed: int, fixed: Sequence[bool] | None = None
) -> list[Any]:
    """Inputs that were drawn from the task's own distribution, made to come from another.

    fixed: for each tensor among them whether it is the same in every draw; left out: none is.
    """
    if distribution == "drawn":
        return inputs
    flags = iter(() if fixed is None else fixed)
    generator = torch.Generator("cpu").manual_seed(seed)

    def moved(tensor: torch.Tensor) -> torch.Tensor:
        change = redraw if next(flags, False) else _FUNCTIONS[distribution] if tensor.is_floating_point() else None
        if change is None or tensor.numel() < 2:
            return tensor
        return _as_it_lay(stored(change(readable(tensor), generator), tensor.dtype), tensor)

    found: list[Any] = map_tensors(inputs, moved)
    return found


def _as_it_lay(made: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """`made` with the strides of the tensor it was made from: a task whose images lie channels last gets such images from
    every distribution, and a kernel that reads them so is right to."""
    like = torch.empty_like(tensor)
    return made if made.stride() == like.stride() else like.copy_(made)


def shift(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Three times as wide, centred half a spread above zero: both signs, no zero mean. A constant tensor stays."""
    wide = tensor.double()
    spread, centre = wide.std(), wide.mean()
    return ((wide - centre) * SPREAD + SHIFT * spread).to(tensor.dtype) if float(spread) > 0 else tensor


def widen_range(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Each sample (index of the first dimension) scaled by a power of two from 2^-6 to 2^6.

    The powers are spread evenly over the samples and shuffled. Signs stay, so that a logarithm still has its domain; sums
    over samples meet numbers of very different size; and what overflows in a narrow type, or is right only for numbers
    around one, shows.
    """
    samples = tensor.shape[0]
    exponents = torch.linspace(EXPONENT, -EXPONENT, samples, device="cpu").round()
    exponents = exponents[torch.randperm(samples, generator=generator, device="cpu")]
    scales = torch.exp2(exponents).to(tensor.device, tensor.dtype)
    return tensor * scales.reshape(-1, *[1] * (tensor.dim() - 1))


def redraw(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Another value of an input that is the same in every draw: of one value throughout, it is moved by noise; else its
    rows change places, and its numbers are scaled. A mask has a few of its elements turned over. Integers stay: they are
    indices as a rule."""
    if tensor.dtype == torch.bool:
        return _rows_shuffled(tensor, generator) ^ (_uniform(tensor, generator) < CLEARED)
    if not tensor.is_floating_point():
        return tensor
    noise = (2.0 * _uniform(tensor, generator) - 1.0) * NOISE
    moved = torch.where(torch.isfinite(tensor), tensor * (1.0 + noise).to(tensor.dtype), tensor)
    low, high = torch.aminmax(tensor)
    if bool(low == high):
        return noise.to(tensor.dtype) if float(low) == 0.0 else moved
    return _rows_shuffled(moved, generator)


def _spiky(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A few elements, and a few whole rows, many times as large as the others. Takes little more memory than a copy."""
    spiky = tensor.clone()
    if tensor.dim() > 1:
        rows = spiky[..., :1]
        spiky.mul_(torch.where(_some(rows, generator, SPIKE_SHARE), 2.0**EXPONENT, 1.0).to(tensor.dtype))
    own = _generator_of(tensor, generator)
    count = max(1, int(tensor.numel() * SPIKE_SHARE))
    places = torch.randint(tensor.numel(), (count,), generator=own, device=tensor.device)
    low, high = SPIKES
    sizes = torch.exp2((low + places % (high - low + 1)).to(torch.float32)).to(tensor.dtype)  # of one place, one size
    where = torch.unravel_index(places, tensor.shape)
    spiky[where] = tensor[where] * sizes
    return spiky


def _sparse(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Rows of which only some elements count: an eighth of them anywhere, those before or behind some place, or all of
    them in order."""
    row = tensor if tensor.dim() else tensor.reshape(1)
    heads = row[..., :1]
    kinds, place = _uniform(heads, generator), _uniform(heads, generator)
    along = torch.linspace(0.0, 1.0, row.shape[-1], device=tensor.device)
    few = _uniform(row, generator) < 1 / 8
    counts = torch.where(kinds < 0.5, few, torch.where(kinds < 0.7, along >= place, along <= place))
    ordered = torch.where(kinds > 0.9, row.sort(dim=-1).values, row)
    return torch.where(counts | (kinds > 0.9), ordered, ordered * TINY).reshape(tensor.shape)


def _one_side(late: bool) -> Callable[[torch.Tensor, torch.Generator], torch.Tensor]:
    """Rows that stand out behind (or before) one place, the same in all of them, and count for nothing elsewhere: whoever
    looks at a part of each row to see whether the rest is worth looking at finds nothing there."""

    def moved(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        row = tensor if tensor.dim() else tensor.reshape(1)
        part = PLACES[int(torch.randint(len(PLACES), (), generator=generator, device="cpu"))]
        along = torch.arange(row.shape[-1], device=tensor.device)
        along = along if late else row.shape[-1] - 1 - along
        quiet = along < min(int(part * row.shape[-1]), row.shape[-1] - 1)
        return torch.where(quiet, row * TINY, _spiky(row, generator)).reshape(tensor.shape)

    return moved


def _some(tensor: torch.Tensor, generator: torch.Generator, share: float) -> torch.Tensor:
    """Which elements of a share of them at random, at least one."""
    numbers = _uniform(tensor, generator)
    return (numbers < share) | (numbers == numbers.amin())


def _uniform(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Numbers from [0, 1) of a tensor's shape, made where it is, with a seed from the generator."""
    return torch.rand(tensor.shape, generator=_generator_of(tensor, generator), device=tensor.device)


def _generator_of(tensor: torch.Tensor, generator: torch.Generator) -> torch.Generator:
    """One where a tensor is, with a seed from the generator on the CPU."""
    seed = int(torch.randint(2**62, (), generator=generator, device="cpu"))
    return torch.Generator(tensor.device).manual_seed(seed)


def _rows_shuffled(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """With the indices of the last dimension but one in another order, of the only one where there is no other."""
    dim = max(tensor.dim() - 2, 0)
    order = torch.randperm(tensor.shape[dim], generator=generator, device="cpu")
    return tensor.index_select(dim, order.to(tensor.device))


_FUNCTIONS: Mapping[Distribution, Callable[[torch.Tensor, torch.Generator], torch.Tensor]] = {
    "redrawn": lambda tensor, generator: tensor,  # what is drawn alike aside
    "shifted": shift,
    "spiky": _spiky,
    "sparse": _sparse,
    "late": _one_side(late=True),
    "early": _one_side(late=False),
    "wide": widen_range,
    "huge": lambda tensor, generator: tensor * HUGE,
}
