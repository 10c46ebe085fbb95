"""normed: batch norms of fake tensors, where only shapes count.

torch decomposes one into thirty ops in Python, each time that it is looked at. A network of a hundred of them takes
longer for that than for all else. Here their results are made at once, where it is plain how they lie in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_Helper = Callable[..., tuple[Any, ...]]


def results(
    given: torch.Tensor, others: tuple[torch.Tensor | None, ...], training: bool, functional: bool
) -> tuple[torch.Tensor, ...] | None:
    """What a norm gives for fake tensors: the normed one, mean and deviation of each channel, and its running statistics.

    others: weight, bias, running mean and variance. functional: whether the last two are new tensors in training. None
    where torch has to say how they look: open dimensions, tensors in another order, or whose order is ambiguous, mixed
    types, wrong sizes.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    tensors = [each for each in others if each is not None]
    if not all(isinstance(each, FakeTensor) for each in (given, *tensors)) or others[2] is None or others[3] is None:
        return None
    if not all(isinstance(size, int) and size > 1 for size in given.shape) or given.dim() < 2:
        return None
    channels = given.shape[1]
    alike = all(tuple(each.shape) == (channels,) and each.dtype == given.dtype for each in tensors)
    if not alike or given.dtype not in (torch.float32, torch.float64) or not given.is_contiguous():
        return None
    if any(each.device != given.device for each in tensors) or given.device.type != "cpu":
        return None
    mean, deviation = (given.new_empty(channels if training else 0) for _ in range(2))
    new = functional or not training
    running = [each.new_empty(channels) if new else each for each in others[2:] if each is not None]
    return given.new_empty(given.shape), mean, deviation, *running


def quick(function: _Helper) -> _Helper:
    """torch's decomposition of a norm, with `results` where there are any."""

    def made(
        given: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        mean: torch.Tensor | None,
        variance: torch.Tensor | None,
        training: bool,
        momentum: float,
        eps: float,
        functional: bool,
    ) -> tuple[Any, ...]:
        others = (weight, bias, mean, variance)
        found = results(given, others, training, functional)
        return function(given, *others, training, momentum, eps, functional) if found is None else found

    return made


@contextmanager
def normed_quickly() -> Iterator[None]:
    """While this is open, torch takes the results of fake norms from `results`. Not for several threads at once."""
    import torch._decomp.decompositions as torchs

    before = getattr(torchs, "native_batch_norm_helper", None)
    if before is None:  # another torch: it takes its time
        yield
        return
    torchs.native_batch_norm_helper = quick(before)
    try:
        yield
    finally:
        torchs.native_batch_norm_helper = before
