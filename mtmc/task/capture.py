"""Capture: what was read off a live module and one call of it, and how its parts are found again in the module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from mtmc.errors import TaskError
from mtmc.task.base import Task, Variant

if TYPE_CHECKING:
    import torch

    from mtmc.task.live_call import Call

Shapes: TypeAlias = tuple[Variant, tuple[Variant, ...]]
"""A task's small and held-out sets of shapes."""
KnownShapes: TypeAlias = "Callable[[str, Call, Mapping[str, torch.Tensor]], Shapes | None]"
"""The shapes of a printed module if they are known: from its text, the example call, and the live tensors by attribute."""


@dataclass(frozen=True)
class Capture:
    """A live module, captured at one call.

    task: the printed file. Its `Model` takes the call's tensors as one flat list, and gives a flat list of tensors.
    call: the example call. What is no tensor in it holds for every version of the task (`same_call`).
    places: attribute of the printed `Model` -> path of that tensor in the live module (`resolve`). An attribute that is
        missing here is a constant that forward makes by itself; its value is in `task.state` alone.
    output: the result of the example call, with a `Slot` for each tensor (`restore`); its other leaves are constants.
    ties: (attribute, path) of what is the same tensor at another place of the module, where forward may read it too.
    default_dtype: torch's at the capture, which tensors that forward makes by itself have.
    """

    task: Task
    call: Call
    places: Mapping[str, str]
    output: Any
    ties: tuple[tuple[str, str], ...] = ()
    default_dtype: str = "float32"


def resolve(module: torch.nn.Module, path: str) -> torch.Tensor:
    """The tensor of a live module at a path of `Capture.places`: attributes, items of sequences, keys of mappings.

    Raises: TaskError where there is no tensor any more.
    """
    import torch

    found: Any = module
    for part in path.split("."):
        try:
            found = _step(found, part)
        except (AttributeError, LookupError):
            found = None
            break
    if not isinstance(found, torch.Tensor):
        raise TaskError(f"{type(module).__name__} has no tensor at {path!r} any more: optimize the module as it is now")
    return found


def _step(owner: Any, part: str) -> Any:
    if hasattr(owner, part):
        return getattr(owner, part)
    if isinstance(owner, Mapping):
        return owner[part] if part in owner else owner[int(part)]
    if isinstance(owner, Sequence) and part.isdigit():
        return owner[int(part)]
    raise LookupError(part)
