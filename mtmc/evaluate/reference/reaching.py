"""Which inputs reach the result of a forward other than through a lookup, in which only what is asked for is read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mtmc.task.tensors import flat_tensors, storage_key

INDEXED_READS = (
    "embedding",
    "embedding_bag",
    "_embedding_bag",
    "gather",
    "index",
    "index_select",
    "take",
    "_grouped_mm",
)
"""Ops whose first tensor is a table, or has groups of rows that end where numbers in memory say."""


class Reaching(TorchDispatchMode):
    """While open, follows inputs through torch's ops, storage by storage, on fake tensors or real ones."""

    def __init__(self, inputs: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._held: list[torch.Tensor] = [*inputs]  # so that no storage comes twice
        self._ways: defaultdict[int, set[int]] = defaultdict(set)
        for at, tensor in enumerate(inputs):
            self._ways[storage_key(tensor)].add(at)

    def of(self, tensor: torch.Tensor) -> set[int]:
        """Positions of the inputs that have reached a tensor."""
        return self._ways[storage_key(tensor)]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given, made = flat_tensors((args, kwargs)), flat_tensors(result)
        table = given[0] if given and func._schema.name.rpartition("::")[2] in INDEXED_READS else None
        found: set[int] = set().union(*(self.of(tensor) for tensor in given if tensor is not table))
        for tensor in [*made, *mutated(func._schema, args, kwargs or {})]:
            self._held.append(tensor)
            self._ways[storage_key(tensor)] |= found
        return result


def mutated(schema: Any, args: Any, kwargs: Any) -> list[Any]:
    """The tensors that an op of this schema writes into."""
    values = [(a, args[i] if i < len(args) else kwargs.get(a.name)) for i, a in enumerate(schema.arguments)]
    return flat_tensors([value for a, value in values if a.alias_info is not None and a.alias_info.is_write])


def reached(inputs: Sequence[torch.Tensor], forward: Callable[[], Any]) -> set[int]:
    """Positions of the inputs that reach what a forward on them gives."""
    with Reaching(inputs) as ways:
        made = flat_tensors(forward())
    return set().union(*(ways.of(tensor) for tensor in made))
