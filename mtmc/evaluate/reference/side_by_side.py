"""Small tensors side by side, as the rows of a matrix: what is asked of hundreds of them takes as few launches as of one.

A deep network leaves the statistics of each norm behind, which are compared like outputs: a ResNet-101 has 313 tensors, and
to ask each by itself takes twenty launches and a wait for the device each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

SMALL = 1 << 13
"""Elements up to which an op takes a GPU less time than its launch."""

Row = Sequence[torch.Tensor]
"""Tensors of one shape that are asked about together: an output and what it is compared with."""


def side_by_side(items: Sequence[Row], kinds: Sequence[object] = ()) -> Iterator[tuple[list[int], list[torch.Tensor]]]:
    """Positions of small items that are alike in size, dtypes and device, and of one kind; with a matrix for each tensor of
    an item, in which row i is that of the i-th position. Items that are like no other one are left out.

    kinds: one for each item, hashable; () for one of all.
    """
    found: dict[object, list[int]] = {}
    for at, item in enumerate(items):
        first = item[0]
        if 0 < first.numel() <= SMALL and all(_is_like(each, first) for each in item[1:]):
            dtypes = tuple(each.dtype for each in item)
            found.setdefault((first.numel(), dtypes, first.device, kinds[at] if kinds else None), []).append(at)
    for positions in found.values():
        if len(positions) > 1:
            columns = zip(*(items[at] for at in positions), strict=True)
            yield positions, [torch.stack([each.reshape(-1) for each in column]) for column in columns]


def _is_like(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and one.device == other.device
