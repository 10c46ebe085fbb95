"""ragged: arithmetic over groups of different sizes that stand one after the other, in torch and in numpy.

group_of: [all], the group of each element, ascending. groups: how many there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mtmc.rl.forest import Ints

if TYPE_CHECKING:
    import torch

Doubles = NDArray[np.float64]


def log_softmax(logits: torch.Tensor, group_of: torch.Tensor, groups: int) -> torch.Tensor:
    """Log-probabilities of the softmax within each group, [all]."""
    top = logits.new_full((groups,), -float("inf")).scatter_reduce(0, group_of, logits.detach(), "amax")
    shifted = logits - top[group_of]
    return shifted - sums(shifted.exp(), group_of, groups).log()[group_of]


def sums(values: torch.Tensor, group_of: torch.Tensor, groups: int) -> torch.Tensor:
    """The sum of each group, [groups]; 0 for an empty one."""
    return values.new_zeros(groups).index_add(0, group_of, values)


def log_softmax_np(logits: NDArray[np.floating], counts: Ints) -> Doubles:
    """As `log_softmax`, in numpy. counts: [groups], sizes of the groups; none is empty."""
    first = np.cumsum(counts) - counts
    shifted = logits.astype(np.float64) - np.repeat(np.maximum.reduceat(logits, first), counts)
    return shifted - np.repeat(np.log(np.add.reduceat(np.exp(shifted), first)), counts)


def argmax_np(values: NDArray[np.floating], counts: Ints) -> Ints:
    """The place of each group's greatest element within its group, the first of equals. counts: as `log_softmax_np`."""
    first = np.cumsum(counts) - counts
    greatest = values == np.repeat(np.maximum.reduceat(values, first), counts)
    at = np.flatnonzero(greatest)
    group, where = np.unique(np.repeat(np.arange(len(counts)), counts)[at], return_index=True)
    return at[where] - first[group]
