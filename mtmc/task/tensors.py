"""The tensors of a structure: nested lists, tuples, mappings and data classes (so the outputs of transformers too).

They are seen as one flat list, in order; what else a structure holds are leaves too.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mtmc.task.slot import Slot

if TYPE_CHECKING:
    import torch


def flat_tensors(structure: Any) -> list[torch.Tensor]:
    """The tensors of a structure, in order."""
    import torch

    if isinstance(structure, torch.Tensor):
        return [structure]
    parts = parts_of(structure)
    return [] if parts is None else [tensor for part in parts.values() for tensor in flat_tensors(part)]


def leaves(structure: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """What a structure holds that is no structure itself, each with where it is: "[0]['mask']"."""
    parts = parts_of(structure)
    if parts is None:
        yield path, structure
        return
    for key, value in parts.items():
        yield from leaves(value, f"{path}[{key!r}]")


def mapped(structure: Any, change: Callable[[Any], Any]) -> Any:
    """A structure of the same types with its leaves changed, in order."""
    parts = parts_of(structure)
    if parts is None:
        return change(structure)
    changed = {key: mapped(value, change) for key, value in parts.items()}
    if type(structure) in (dict, list, tuple):
        return changed if type(structure) is dict else type(structure)(changed.values())
    if isinstance(structure, list | tuple):
        values = changed.values()
        return type(structure)(*values) if hasattr(structure, "_fields") else type(structure)(values)
    made = copy.copy(structure)
    for key, value in changed.items():
        if isinstance(structure, Mapping):
            made[key] = value
        else:
            object.__setattr__(made, key, value)
    return made


def map_tensors(structure: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """A structure of the same types with its tensors changed, in order."""
    import torch

    return mapped(structure, lambda leaf: change(leaf) if isinstance(leaf, torch.Tensor) else leaf)


def storage_key(tensor: torch.Tensor) -> int:
    """What tells the storage of a tensor from all others that are alive, one without memory too."""
    return int(tensor.untyped_storage()._cdata)


def same_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are one, or lie in memory as one would."""
    if one is other:
        return True
    place = (one.data_ptr(), one.shape, one.stride(), one.dtype, one.device)
    return bool(one.numel()) and place == (other.data_ptr(), other.shape, other.stride(), other.dtype, other.device)


def parts_of(structure: Any) -> Mapping[Any, Any] | None:
    """The items of a structure by key, None for a leaf."""
    if isinstance(structure, list | tuple):
        return dict(enumerate(structure))
    if isinstance(structure, Mapping):
        return structure
    if dataclasses.is_dataclass(structure) and not isinstance(structure, type | Slot):
        return {field.name: getattr(structure, field.name, None) for field in dataclasses.fields(structure)}
    return None


def held(structure: Any) -> int:
    """Bytes of the distinct storages behind the tensors of a structure."""
    storages = {
        tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes() for tensor in flat_tensors(structure)
    }
    return sum(storages.values())
