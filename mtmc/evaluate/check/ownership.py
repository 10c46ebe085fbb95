"""Which outputs lie in memory of their own, and what is done with one that should and does not.

Where the reference hands out a copy of an input, one output twice, a row repeated or a conjugate, each written out, a
version could hand out the input itself, one tensor for both, a view that does not move on, or numbers with a mark that
they are to be conjugated by whoever reads them. All values are right, and what the reference writes is left to the
evaluator, which copies outputs in no time of the call's. So the version has it written in its own time. What the
reference itself hands out so, versions may.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from mtmc.evaluate.check.layout import dense_strides, extent, memory_order

_copy = torch.Tensor.copy_  # bound before any candidate runs: what it assigns to torch's classes does not reach this


def owned(leaves: Sequence[Any], given: Sequence[torch.Tensor]) -> tuple[bool, ...]:
    """Of each leaf of a result whether it is a tensor whose numbers lie written out in memory that neither the inputs nor
    leaves before it have. given: the inputs' tensors."""
    others = [_stretch(tensor) for tensor in given]
    found = []
    for leaf in leaves:
        own = isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided
        if own:
            here = _stretch(leaf)
            own = _is_written_out(leaf) and not any(_share(here, other) for other in others)
            others.append(here)
        found.append(own)
    return tuple(found)


def written_out(leaves: Sequence[Any], own: Sequence[bool], given: Sequence[torch.Tensor]) -> list[Any]:
    """The leaves of a version's result, with copies of those that are to have memory of their own and have not.

    own: of the reference's leaves, see `owned`; of another number of them nothing is asked.
    """
    if not any(own) or len(own) != len(leaves):
        return list(leaves)
    return [
        _written(leaf) if asked and isinstance(leaf, torch.Tensor) and not has else leaf
        for leaf, asked, has in zip(leaves, own, owned(leaves, given), strict=True)
    ]


def _written(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.layout is not torch.strided:
        return tensor  # it is refused as what it is
    strides = dense_strides(tensor.shape, memory_order(tensor))
    return _copy(torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device), tensor)


def _is_written_out(tensor: torch.Tensor) -> bool:
    """Whether each number has a place of its own, and lies there as it is."""
    dense = tensor.numel() * tensor.element_size()
    lies = extent(tensor.shape, tensor.stride(), tensor.element_size())
    return lies >= dense and not tensor.is_conj() and not tensor.is_neg()


_Stretch = tuple[int, int, bool]
"""First byte, end, and whether a tensor has all between them."""


def _stretch(tensor: torch.Tensor) -> _Stretch:
    size = extent(tensor.shape, tensor.stride(), tensor.element_size())
    first = tensor.data_ptr()
    return first, first + size, size <= tensor.numel() * tensor.element_size()


def _share(one: _Stretch, other: _Stretch) -> bool:
    """Whether two tensors surely share memory: parts of one buffer that lie between each other's rows do not."""
    if one[0] >= one[1] or other[0] >= other[1]:
        return False
    return one[0] == other[0] or (one[0] < other[1] and other[0] < one[1] and (one[2] or other[2]))
