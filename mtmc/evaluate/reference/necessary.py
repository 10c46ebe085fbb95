"""Necessary traffic of a task: bytes that any version must read of its inputs and write, as a call of the reference tells.

What lies in memory of its own and hangs on the inputs must be written, each byte once, however many outputs show it. The
numbers of the inputs that it hangs on must be read, as far as other ops than lookups have read them. So an input that is
handed out as it is, or a view of it, is neither read nor written, nor is what the model keeps and does not change. A
version's own ways make no difference: where the reference makes a copy, a copy is necessary.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from mtmc.evaluate.reference.pieces import Piece, distinct_bytes, placed
from mtmc.evaluate.reference.reaching import Reaching
from mtmc.task.quantized import readable
from mtmc.task.tensors import storage_key


@dataclass(frozen=True)
class Traffic:
    """Bytes of inputs that must be read, and of outputs, changed inputs and changed state that must be written."""

    read: int
    written: int


def necessary(
    inputs: Sequence[torch.Tensor],
    kept: Sequence[torch.Tensor],
    changing: Sequence[torch.Tensor],
    forward: Callable[[], Sequence[torch.Tensor]],
) -> Traffic:
    """Of one call. inputs: its tensors. kept: the model's parameters, and what else it keeps. changing: of both, those that
    the call changes. forward: makes it, and gives the tensors of its result."""
    before = [tensor.clone() for tensor in changing]
    with Reaching(inputs) as ways:
        outputs = [tensor for tensor in forward() if placed(tensor)]
    known = {storage_key(tensor) for tensor in (*inputs, *kept) if placed(tensor)}
    made = [tensor for tensor in outputs if storage_key(tensor) not in known and ways.depends(tensor)]
    read = ways.read([*made, *changing])
    changed = sum(map(_changed_bytes, before, changing))
    return Traffic(sum(map(distinct_bytes, read.values())), written_bytes(made) + changed)


def written_bytes(made: Sequence[torch.Tensor]) -> int:
    """Bytes of memory in which any of these tensors has an element."""
    lies = defaultdict[int, list[Piece]](list)
    for tensor in made:
        if (piece := Piece.of(tensor)) is not None:
            lies[storage_key(tensor)].append(piece)
    return sum(map(distinct_bytes, lies.values()))


def _changed_bytes(before: torch.Tensor, after: torch.Tensor) -> int:
    """Of the numbers that are other ones. Both of one shape and type."""
    was, now = readable(before), readable(after)
    same = (was == now) | ((was != was) & (now != now))
    return int((~same).sum()) * after.element_size()
