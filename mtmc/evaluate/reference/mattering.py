"""How much of its inputs a reference's result hangs on, by trying: pieces of them are replaced, and the results compared.

An op may read what changes nothing, because numbers in memory say so: keys behind a sequence's length, rows under a mask of
zeros, experts that nobody is sent to. A version that leaves these out is honest and needs fewer bytes than `necessary` tells
of. What a piece's replacement changes must be read by any version; of the others nothing is claimed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mtmc.evaluate.reference.blocks import same_bits
from mtmc.task.tensors import flat_tensors

PIECE = 128
"""Numbers next to each other that are replaced at a time: one row of a head."""
SURE = 2.33
"""Standard deviations that a share is taken to be smaller than it was found: it is larger in 99 of 100 cases."""
LEAST_BYTES = 1 << 20
"""Of an input that is tried at all: smaller ones count wholly."""
FEWEST = 2
"""Pieces of each input that are tried, however much work that is."""
WORK_S, _OP_S, _BYTE_S, _FLOP_S = 2.0, 10e-6, 1e-12, 2e-14
"""Work for each input, by a fixed price list of an op, a byte that it moves and a flop, about seconds of a large GPU: how
much is tried decides on verdicts, and so must hang on the task alone, not on what else the machine does."""


def mattering_bytes(
    inputs: Sequence[torch.Tensor],
    forward: Callable[[], Sequence[torch.Tensor]],
    seed: int,
    tries: int = 96,
    work_s: float = WORK_S,
    flops: int = 0,
) -> int:
    """Bytes of the inputs that a forward on them hangs on, nearly surely at least so many.

    forward: gives the tensors of its result, the same each time for the same inputs; it leaves the inputs as they are, or
    puts them back. tries: pieces of each input, fewer where their forwards come to more than `work_s`, see `WORK_S`.
    flops: of the forward's products.
    Inputs of other than floating numbers count wholly (an index must not be replaced by any number), and so do those that do
    not lie in order.
    """
    generator = torch.Generator().manual_seed(seed)
    with _Work() as work:
        forward()
    usual = [each.clone() for each in forward()]
    tries = max(FEWEST, min(tries, int(work_s / (2 * max(_OP_S, work.seconds + _FLOP_S * flops)))))
    total = 0
    for tensor in inputs:
        if tensor.nbytes < LEAST_BYTES or not (tensor.is_floating_point() and tensor.is_contiguous()):
            total += tensor.nbytes
            continue
        found = sum(_matters(tensor, forward, usual, generator) for _ in range(tries))
        total += int(tensor.nbytes * at_least(found, tries))
    return total


class _Work(TorchDispatchMode):
    """What the ops come to that run while it is open, products left out: `seconds` by the price list."""

    seconds = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        moved = sum(each.numel() * each.element_size() for each in flat_tensors([args, kwargs or {}, result]))
        self.seconds += _OP_S + _BYTE_S * moved
        return result


def at_least(found: int, tried: int) -> float:
    """A share that is smaller than the true one in 99 of 100 cases (Wilson's lower bound), 1 where all were found.

    found: of those that were tried.
    """
    if found == tried:
        return 1.0
    share, square = found / tried, SURE**2
    middle = share + square / (2 * tried)
    spread = SURE * math.sqrt(share * (1 - share) / tried + square / (4 * tried**2))
    return max(0.0, (middle - spread) / (1 + square / tried))


def _matters(
    tensor: torch.Tensor,
    forward: Callable[[], Sequence[torch.Tensor]],
    usual: Sequence[torch.Tensor],
    generator: torch.Generator,
) -> bool:
    """Whether the result changes where some numbers of an input are others: larger ones of either sign."""
    flat = tensor.view(-1)
    first = int(torch.randint(max(1, flat.numel() - PIECE + 1), (), generator=generator))
    piece = flat[first : first + PIECE]
    before = piece.clone()
    most = min(4096.0, torch.finfo(tensor.dtype).max / 8)
    signs = torch.where(torch.rand(len(piece), generator=generator) < 0.5, -1.0, 1.0).to(tensor.device)
    try:
        for side in (signs, -signs):
            piece.copy_(side * (4 * before.float().abs().clamp(max=most) + 8))
            if any(not bool(same_bits(a, b)) for a, b in zip(forward(), usual, strict=True)):
                return True
        return False
    finally:
        piece.copy_(before)
