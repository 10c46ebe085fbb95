"""What inputs are drawn from besides the task's own distribution, to show what its easy inputs hide."""

from __future__ import annotations

from typing import Any, Literal

import torch

from mtmc.evaluate.loading.modules import map_tensors

Distribution = Literal["drawn", "shifted", "wide"]
SPREAD = 3.0
SHIFT = 0.5
EXPONENT = 6


def redistributed(inputs: list[Any], distribution: Distribution, seed: int) -> list[Any]:
    """Inputs that were drawn from the task's own distribution, made to come from another."""
    if distribution == "shifted":
        return shift(inputs)
    return widen_range(inputs, seed) if distribution == "wide" else inputs


def shift(inputs: list[Any]) -> list[Any]:
    """Floating inputs three times as wide, centred half a spread above zero: both signs, no zero mean.

    A constant tensor stays as it is, and so do integers (they are indices as a rule).
    """

    def shifted(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point() or tensor.numel() < 2:
            return tensor
        wide = tensor.double()
        spread, centre = wide.std(), wide.mean()
        return ((wide - centre) * SPREAD + SHIFT * spread).to(tensor.dtype) if float(spread) > 0 else tensor

    moved: list[Any] = map_tensors(inputs, shifted)
    return moved


def widen_range(inputs: list[Any], seed: int) -> list[Any]:
    """Floating inputs with each sample (index of the first dimension) scaled by a power of two from 2^-6 to 2^6.

    The powers are spread evenly over the samples and shuffled with `seed`. Signs stay, so that a logarithm still has
    its domain; sums over samples meet numbers of very different size; and what overflows in a narrow type, or is right
    only for numbers around one, shows. A single number and integers stay as they are.
    """
    generator = torch.Generator("cpu").manual_seed(seed)

    def widened(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point() or tensor.numel() < 2:
            return tensor
        samples = tensor.shape[0]
        exponents = torch.linspace(EXPONENT, -EXPONENT, samples, device="cpu").round()
        exponents = exponents[torch.randperm(samples, generator=generator, device="cpu")]
        scales = torch.exp2(exponents).to(tensor.device, tensor.dtype)
        return tensor * scales.reshape(-1, *[1] * (tensor.dim() - 1))

    widened_inputs: list[Any] = map_tensors(inputs, widened)
    return widened_inputs
