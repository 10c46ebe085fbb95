"""A model's operations, submodule call by submodule call, without its data: what they move, and which calls are equal.

The model runs on fake tensors (shapes, no memory), so that a model of any size is traced in seconds on any machine.
Its operations are counted as those of a task's reference are (`mtmc.evaluate.counting`), and estimated for a GPU. Two
calls are equal if their operations are the same, one after another, on tensors of the same shapes, types and strides, with
the same numbers among their arguments, and if each reads the same results before it, and the same weights by their names
in the submodule that is called. So the layers of a network are equal that differ in their weights alone.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from mtmc.evaluate.counting.storages import Storages
from mtmc.evaluate.counting.tally import Record
from mtmc.evaluate.counting.torch_ops import torch_modes
from mtmc.evaluate.estimates.estimate import estimate
from mtmc.evaluate.loading.fake import FakeMode
from mtmc.hardware import Hardware
from mtmc.task.live_objects import own_arguments, own_objects
from mtmc.task.live_state import unchanged
from mtmc.task.tensors import flat_tensors, map_tensors
from mtmc.whole.calls import CallTree, Place, Watcher
from mtmc.whole.regions import compile_now
from mtmc.whole.signature import opaque
from mtmc.whole.site import Profile, Site

_log = logging.getLogger(__name__)


_NUMBER = itertools.count()


@dataclass
class _Calls:
    """What is known of a place: its calls, each a span of records and one of operations."""

    kind: str
    refusal: str
    records: list[tuple[int, int]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)


class _Operations(TorchDispatchMode):
    """Every operation with what it is given; tensors by the number of their storage."""

    def __init__(self, storages: Storages) -> None:
        super().__init__()
        self.log: list[tuple[Any, ...]] = []
        self._storages = storages
        self._lifting = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        named = sorted((kwargs or {}).items())
        self._lifting = "lift_fresh" in str(func)  # the tensor it is given was made of numbers, in forward itself
        given = self._plain(args), self._plain(named)
        self._lifting = False
        self.log.append((str(func), *given, self._plain(tree_leaves(result))))
        return result

    def _plain(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            layout = (str(value.dtype), tuple(value.shape), tuple(value.stride()), value.storage_offset())
            return _Tensor(self._storages.number(value), layout, _numbers(value) if self._lifting else "")
        if isinstance(value, Mapping):
            return tuple((name, self._plain(each)) for name, each in value.items())
        if isinstance(value, tuple | list):
            return tuple(map(self._plain, value))
        return repr(value)


@dataclass(frozen=True)
class _Tensor:
    """A tensor of an operation. numbers: a hash of its values, where it was made of numbers in forward."""

    storage: int
    layout: tuple[Any, ...]
    numbers: str


def _numbers(tensor: torch.Tensor) -> str:
    """A hash of the values of a tensor that was made of numbers."""
    known = getattr(tensor, "constant", None) if isinstance(tensor, FakeTensor) else tensor
    if known is None:
        return f"unknown {next(_NUMBER)}"  # equal to no other one
    with _disable_current_modes():
        flat = known.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        return hashlib.sha256(flat.numpy().tobytes()).hexdigest()


class _OtherCallsError(Exception):
    """The model calls its submodules in another way than it does with its data."""


class _Tracer(Watcher):
    """Notes where the calls of each place begin and end among records and operations.

    expected: the places that there are; another one is the end of it (`_OtherCallsError`). None: any.
    """

    def __init__(
        self,
        names: Mapping[int, str],
        records: list[Record],
        operations: _Operations,
        expected: Sequence[Place] | None = None,
    ) -> None:
        self.found: dict[int, _Calls] = {}
        self._expected = expected
        self._names, self._records, self._operations = names, records, operations
        self._starts: list[tuple[int, int]] = []

    def enter(self, place: Place, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if self._expected is not None and place not in self._expected[place.index : place.index + 1]:
            raise _OtherCallsError(f"{place.path or 'the model'} is called as ({place.signature})")
        if place.index not in self.found:
            self.found[place.index] = _Calls(type(module).__name__, _refusal(module, args, kwargs))
        self._starts.append((len(self._records), len(self._operations.log)))

    def leave(self, place: Place) -> None:
        first_record, first_operation = self._starts.pop()
        calls = self.found[place.index]
        calls.records.append((first_record, len(self._records)))
        made = self._operations.log[first_operation:]
        calls.keys.append(key_of(calls.kind, place.signature, made, self._names, place.path))


def _refusal(module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    strange = opaque(args, kwargs)
    if strange:
        return f"it is given a {strange}, which is neither a tensor nor plain data"
    if not flat_tensors((*args, *kwargs.values())):
        return "it is given no tensor"
    return ""


def key_of(
    kind: str, signature: str, operations: Sequence[tuple[Any, ...]], names: Mapping[int, str], path: str
) -> str:
    """A hash of a call's operations that does not hang on which tensors they work.

    names: of the model's weights, by the number of their storage. path: of the submodule that is called.
    """
    order: dict[int, int] = {}
    inside = f"{path}." if path else ""

    def plain(value: Any) -> Any:
        if isinstance(value, _Tensor):
            name = names.get(value.storage, "")
            own = name.removeprefix(inside) if name.startswith(inside) else ""
            place = order.setdefault(value.storage, len(order))
            return (own, place, value.layout, value.numbers)
        return tuple(map(plain, value)) if isinstance(value, tuple) else value

    text = repr((kind, signature, [plain(operation) for operation in operations]))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Traced:
    """One call of a model, operation by operation, which is the same for every GPU. found: what is known of each place, by
    its index. records: of the operations, in order."""

    places: tuple[Place, ...]
    found: Mapping[int, _Calls]
    records: Sequence[Record]

    def profile(self, gpu: Hardware) -> Profile:
        """Where the time goes, estimated."""
        times = [kernel.ms for kernel in estimate(self.records, {}, gpu).kernels]
        sites = tuple(_site(place, self.found[place.index], self.records, times, gpu) for place in self.places)
        return Profile(sites, "estimated", gpu.name)


def trace(model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], tree: CallTree) -> Traced:
    """What one call of a model does. The model is not changed, and what it is given neither.

    tree: gets the places. A model that reads values, that cannot be copied, or that calls its submodules in another way
    when it has no data is traced with its data. The last is so with transformers, whose attention has a mask then.

    Raises: whatever the model raises.
    """
    given, named = own_arguments(tuple(args), kwargs)
    with unchanged(model), torch.no_grad(), tree.watched(model, Watcher()):
        model(*given, **named)
    try:
        without_data = CallTree()
        own = own_objects((tuple(args), dict(kwargs)))  # without the mode, as what is in objects has data
        with FakeMode(allow_non_fake_inputs=True) as mode:
            given, named = map_tensors(own, mode.from_tensor)
            traced = _trace(_hollow(model, mode), given, named, without_data, Storages(fake=True), tree.places)
        if without_data.places == tree.places:
            return traced
        _log.info("the model is traced with its data, for without these it makes fewer calls of its submodules")
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        _log.info("the model is traced with its data, for it does not run without (%s)", reason)
    tree.forget()
    given, named = own_arguments(tuple(args), kwargs)
    with unchanged(model):
        return _trace(model, given, named, tree, Storages(fake=False, held=False))


def _hollow(model: torch.nn.Module, mode: FakeMode) -> torch.nn.Module:
    """A copy of a model with fake tensors: what a forward keeps in its attributes is kept in the copy."""
    fake = {id(tensor): mode.from_tensor(tensor) for module in model.modules() for tensor in _tensors(module)}
    made = copy.deepcopy(model, dict(fake))
    compile_now(made)
    return made


def _tensors(module: torch.nn.Module) -> list[torch.Tensor]:
    held = (module._parameters, module._buffers, vars(module))
    return [value for each in held for value in each.values() if isinstance(value, torch.Tensor)]


def _trace(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    tree: CallTree,
    storages: Storages,
    expected: Sequence[Place] | None = None,
) -> Traced:
    """expected: the places that the tree is to get, None where any will do. Raises: _OtherCallsError if it gets others."""
    names: dict[int, str] = {}
    for path, module in model.named_modules():
        for name, value in (*module._parameters.items(), *module._buffers.items(), *vars(module).items()):
            if isinstance(value, torch.Tensor):
                names.setdefault(storages.number(value), f"{path}.{name}" if path else name)
    records: list[Record] = []
    operations = _Operations(storages)
    watcher = _Tracer(names, records, operations, expected)
    ops, calls = torch_modes(storages, records, [])
    with torch.no_grad(), tree.watched(model, watcher), ops, calls, operations:
        model(*args, **kwargs)
    return Traced(tuple(tree.places), watcher.found, records)


def _site(place: Place, calls: _Calls, records: Sequence[Record], times: Sequence[float], gpu: Hardware) -> Site:
    ms = sum(sum(times[start:end]) for start, end in calls.records)
    start, end = calls.records[0]
    bound = 0.0
    if end > start:
        alone = estimate(records[start:end], {}, gpu)
        bound = alone.runtime_ms * alone.metrics["roofline"]
    refusal = calls.refusal
    if not refusal and len(set(calls.keys)) > 1:
        refusal = "it does not do the same work at each call"
    return Site(
        place.index, place.parent, place.path, calls.kind, place.signature, len(calls.records), ms, bound,
        end - start, calls.keys[0], refusal,
    )  # fmt: skip
