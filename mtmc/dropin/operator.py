"""A version as a custom operator of torch, `mtmc::NAME_DIGEST`: inputs and the model's tensors in, all results out.

To the compiler it is one call without a body, whose fake implementation is the printed reference.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch

from mtmc.dropin.loaded import Instance, launched_on
from mtmc.dropin.recipe import Recipe
from mtmc.task import Slot
from mtmc.task.tensors import flat_tensors, leaves, storage_key

NAMESPACE = "mtmc"
_MOST = 256
"""Instances that an operator keeps: one for each set of the model's tensors that it is called with."""

_registered: dict[str, Any] = {}
_lock = threading.Lock()


def operator(recipe: Recipe, mutated: Sequence[int]) -> Callable[..., Any]:
    """A call of the operator of a version, which is registered once in a process. mutated: places of the tensors that it
    changes."""
    name = f"{_plain(recipe.task.name)}_{_digest(recipe, mutated)}"
    with _lock:
        if name not in _registered:
            _registered[name] = _register(name, recipe, frozenset(mutated))
        return _registered[name]


def _register(name: str, recipe: Recipe, mutated: frozenset[int]) -> Callable[..., Any]:
    """A call of the operator with inputs and tensors one after the other. It takes them in two lists, those that it reads
    and those that it changes, for torch allows no more than 64 arguments, and a network has hundreds of tensors."""
    count, inputs = len(recipe.call.tensors) + len(recipe.places), len(recipe.call.tensors)
    outputs = sum(1 for _, leaf in leaves(recipe.output) if isinstance(leaf, Slot))
    results = "Tensor" if outputs == 1 else f"({', '.join(['Tensor'] * outputs)})"
    kernels, reference = _Instances(recipe, "ModelNew"), _Instances(recipe, "Model")
    kept, changed = tuple(i for i in range(count) if i not in mutated), tuple(sorted(mutated))

    def run(instances: _Instances, *lists: Sequence[torch.Tensor]) -> Any:
        given = dict(zip((*kept, *changed), itertools.chain(*lists), strict=True))
        tensors = tuple(given[i] for i in range(count))
        instance = instances.of(tensors, inputs)
        found = _own(flat_tensors(instance.run(tensors[:inputs], tensors[inputs:])), tensors)
        return found[0] if outputs == 1 else tuple(found)

    def launch(*lists: Sequence[torch.Tensor]) -> Any:
        with launched_on(next(itertools.chain(*lists)).device):
            return run(kernels, *lists)

    made = torch.library.custom_op(
        f"{NAMESPACE}::{name}",
        launch,
        mutates_args=("changed",) if changed else (),
        schema=f"(Tensor[] read{', Tensor(a!)[] changed' if changed else ''}) -> {results}",
    )
    made.register_fake(functools.partial(run, reference))
    called = getattr(getattr(torch.ops, NAMESPACE), name).default

    def call(*tensors: torch.Tensor) -> Any:
        lists = [[tensors[i] for i in places] for places in ((kept, changed) if changed else (kept,))]
        return called(*lists)

    return call


class _Instances:
    """Instances of a recipe's class, one for each thread and set of the model's tensors: a version may keep what belongs to
    these (a CUDA graph)."""

    def __init__(self, recipe: Recipe, kind: str) -> None:
        self._recipe, self._kind = recipe, kind
        self._local = threading.local()

    def of(self, tensors: Sequence[torch.Tensor], inputs: int) -> Instance:
        """The instance for a call with these tensors."""
        device = tensors[0].device
        faked = self._kind == "Model"
        key = (device, *(() if faked else (x.data_ptr() for x in tensors[inputs:])))
        known: OrderedDict[Any, Instance] = self._local.__dict__.setdefault("known", OrderedDict())
        if key not in known:
            recipe = self._recipe
            known[key] = Instance(
                recipe.source if self._kind == "ModelNew" else recipe.task.source,
                self._kind,
                list(recipe.places),
                recipe.constants,
                device,
            )
            if len(known) > _MOST:
                known.popitem(last=False)
        return known[key]


def _own(results: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Results in memory of their own, as an operator's have to be."""
    own: list[torch.Tensor] = []
    for result in results:
        shared = any(storage_key(result) == storage_key(x) for x in (*tensors, *own))
        own.append(result.clone() if shared else result)
    return own


def _plain(name: str) -> str:
    return re.sub(r"\W+", "_", name).lower()


def _digest(recipe: Recipe, mutated: Sequence[int]) -> str:
    text = [recipe.source, recipe.task.source, *recipe.places, *map(str, mutated)]
    digest = hashlib.sha256("\0".join(text).encode())
    for name, value in sorted(recipe.constants.items()):
        digest.update(name.encode() + value.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:12]
