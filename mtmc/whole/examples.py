"""Example calls of submodules, taken from a call of the whole model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch

from mtmc.task.tensors import map_tensors
from mtmc.whole.calls import CallTree, Place, Watcher

Example = tuple[tuple[Any, ...], dict[str, Any]]


class _Collector(Watcher):
    def __init__(self, wanted: Collection[int]) -> None:
        self.found: dict[int, Example] = {}
        self._wanted = wanted

    def enter(self, place: Place, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if place.index in self._wanted and place.index not in self.found:
            self.found[place.index] = map_tensors((args, dict(kwargs)), _copy)


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor with its own memory, its strides as they are where they can be."""
    return tensor.detach().clone()


def examples(
    tree: CallTree, model: torch.nn.Module, call: Callable[[], Any], wanted: Collection[int]
) -> dict[int, Example]:
    """The arguments of the first call of each of these places, copied before the submodule sees them.

    tree: of which the places are. call: calls the model. Places that it does not reach are not in the result.
    """
    collector = _Collector(set(wanted))
    with torch.no_grad(), tree.watched(model, collector):
        call()
    return collector.found
