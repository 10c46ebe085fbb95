"""The first items of a batch, of a reference that is too large for float64 as a whole.

A reference computes item by item if its result for the first ones is the same whatever the others are. Then float64 says of
these what it would say of all. That is tried out: all others are made the first one, which any reference takes that takes
its own inputs, and which moves the statistics of a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from mtmc.evaluate.reference.distance import norm_error
from mtmc.evaluate.reference.effects import Effects
from mtmc.evaluate.reference.wide_reference import WideReference
from mtmc.task.tensors import flat_tensors, map_tensors

SAME = 1e-6
"""Norm-wise difference of a result from that of the same inputs, as sums in another order make it; a batch's statistics move
it by more."""
ITEMS = 64
"""As many as are asked for at most."""
SHARE = 8
"""One item of so many says how a reference does what it has no memory to be asked as a whole."""


@dataclass(frozen=True)
class Size:
    """What a reference takes. Bytes.

    taken: with inputs, weights and outputs in its own dtype, the outputs twice. weights: of these. kept: what is held
    besides while a wider dtype is asked. narrowest: of a number of the narrowest floating dtype.
    """

    taken: int
    weights: int
    kept: int
    narrowest: int

    def needed(self, wide: torch.dtype, share: float = 1.0) -> int:
        """Bytes that the reference takes in a wider dtype. share: of the items of its batch."""
        items = int((self.taken - self.weights) * share)
        return wide.itemsize // self.narrowest * (self.weights + items) + self.kept


class FirstItems:
    """A reference that draws the first `count` items of a batch."""

    def __init__(self, reference: WideReference, batch: int, count: int) -> None:
        self._reference, self.batch, self.count = reference, batch, count
        self.device, self.tolerance = reference.device, reference.tolerance
        self.construct, self.widened = reference.construct, reference.widened
        self.run_wide, self.rounded = reference.run_wide, reference.rounded

    def of(self, value: Any) -> Any:
        """The first items of the tensors in nested lists; tensors that are no batch stay."""
        return map_tensors(value, lambda each: each[: self.count].clone() if _is_batch(each, self.batch) else each)

    def repeated(self, tensor: torch.Tensor) -> torch.Tensor:
        """A batch whose other items are all the first one; what is no batch stays."""
        if not _is_batch(tensor, self.batch):
            return tensor
        others = tensor[:1].expand(self.batch - self.count, *tensor.shape[1:])
        return torch.cat([tensor[: self.count], others])

    def draw(self, seed: int) -> list[Any]:
        """Inputs: the first items of those that the reference draws."""
        inputs: list[Any] = self.of(self._reference.draw(seed))
        return inputs

    def observed(self, model: Any, inputs: list[Any], seed: int) -> tuple[list[Any], Effects]:
        """See `WideReference.observed`."""
        return self._reference.observed(model, inputs, seed)


def first_items(reference: WideReference, seed: int, own: list[Any], size: Size, free: int) -> FirstItems | None:
    """As many items of the batch as float64 has room for.

    own: the leaves of the reference's result for the inputs of this seed. free: bytes. None where it has no room for one, or
    where items know of each other, or where there is no batch: every output has its items along its first dimension, and
    every input that is as long there has them too. Raises: TaskError.
    """
    outputs = [each for each in own if isinstance(each, torch.Tensor)]
    batches = {each.shape[0] if each.dim() else 0 for each in outputs}
    if len(outputs) < len(own) or len(batches) != 1:
        return None
    [batch] = batches
    fitting = [
        count for count in range(1, min(ITEMS, batch - 1) + 1) if size.needed(torch.float64, count / batch) <= free
    ]
    if not fitting or size.taken + size.kept > free:
        return None
    items = FirstItems(reference, batch, max(fitting))
    return items if _is_by_items(items, reference, seed, own) else None


def few_items(reference: WideReference, seed: int) -> FirstItems | None:
    """A reference with a part of its batch, which is what its largest input has along its first dimension; None where that
    is one item. Raises: TaskError."""
    batches = {each.shape[0]: each.numel() for each in flat_tensors(reference.draw(seed)) if each.dim() > 0}
    batch = max(batches, key=batches.__getitem__, default=1)
    return FirstItems(reference, batch, max(1, batch // SHARE)) if batch > 1 else None


def _is_by_items(items: FirstItems, reference: WideReference, seed: int, own: list[Any]) -> bool:
    """Whether the first items' result stays the same when all others are the first one."""
    inputs = reference.draw(seed)
    if not any(_is_batch(each, items.batch) for each in flat_tensors(inputs)):
        return False
    inputs = map_tensors(inputs, items.repeated)
    found, effects = reference.observed(reference.construct(), inputs, seed)
    if effects or len(found) != len(own):
        return False
    pairs = [(items.of(a), items.of(b)) for a, b in zip(found, own, strict=True)]
    return all(torch.equal(a, b) or _nearly(a, b) for a, b in pairs)


def _nearly(a: torch.Tensor, b: torch.Tensor) -> bool:
    if not a.is_floating_point() or a.shape != b.shape:
        return False
    return norm_error(a, b.double(), torch.isfinite(b)) < SAME


def _is_batch(tensor: torch.Tensor, batch: int) -> bool:
    return tensor.dim() > 0 and tensor.shape[0] == batch
