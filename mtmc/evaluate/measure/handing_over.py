"""After a call, in the candidate's process: outputs out of its reach, and in a row the next call's inputs into it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from mtmc.evaluate.check.layout import dense_strides
from mtmc.evaluate.measure.clock import TOGETHER
from mtmc.evaluate.measure.wire import Output
from mtmc.evaluate.reference.returned import flatten, is_plain, undisturbed

# Bound before any candidate runs: what it assigns to torch and its classes does not reach these.
_copy = torch.Tensor.copy_
_copy_many = torch._foreach_copy_
Reveal = tuple[torch.Tensor, torch.Tensor]
"""Where the inputs of a call come to lie, and where they lie before: both as integers."""


def hand_over(copies: Sequence[tuple[torch.Tensor, torch.Tensor]], together: bool = True) -> None:
    """Copy tensors to their places: pairs of a place and a tensor of its dtype and shape. together: whether `TOGETHER` and
    more are few launches. A deep network that trains leaves hundreds of statistics, and a launch takes a host that has
    waited up to 250 us."""
    if len(copies) < TOGETHER or not together:
        for place, tensor in copies:
            _copy(place, tensor)
        return
    for dtype in dict.fromkeys(place.dtype for place, _ in copies):  # of several torch would make one launch each
        alike = [each for each in copies if each[0].dtype == dtype]
        _copy_many([place for place, _ in alike], [tensor for _, tensor in alike])


def revealing(piece: torch.Tensor, outputs: torch.Tensor, source: int) -> Reveal:
    return piece.view(torch.int64), outputs[source : source + piece.numel()].view(torch.int64)


def between(result: Any, places: list[torch.Tensor | None], following: Reveal | None) -> None:
    """Copy a result to the places made for one like it, with as little work of the host as can be, and the inputs of the
    call that follows to where it finds them. Raises: ValueError for a result of another layout."""
    with undisturbed():
        leaves = [result] if is_plain(result) else flatten(result)[0]
        if len(leaves) != len(places):
            raise ValueError(f"the forward returned {len(leaves)} values, and {len(places)} in the call before")
        copies = []
        for place, leaf in zip(places, leaves, strict=True):
            if place is None:
                continue
            if not is_plain(leaf) or leaf.dtype != place.dtype or leaf.shape != place.shape:
                raise ValueError(
                    f"the forward returned {type(leaf)}, and a {place.dtype} tensor of {place.shape} before"
                )
            copies.append((place, leaf))
        hand_over(copies)
        if following is not None:
            _copy(*following)


def layout_of(output: Output) -> torch.Tensor:
    """A tensor without memory, as an output is laid out."""
    strides = dense_strides(output.shape, output.order)
    return torch.empty_strided(output.shape, strides, dtype=getattr(torch, output.dtype), device="meta")
