"""drop_in(): from a live module, its capture and versions of it to a drop-in."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from mtmc.dropin.optimized import ATTRIBUTE, OptimizedModule, attach, new_record
from mtmc.dropin.recipe import Recipe
from mtmc.errors import TaskError
from mtmc.task import Capture

if TYPE_CHECKING:
    from mtmc.search import SearchResult

_log = logging.getLogger(__name__)

_WRAPPERS = {
    "DataParallel": "module",
    "DistributedDataParallel": "module",
    "FullyShardedDataParallel": "module",
    "OptimizedModule": "_orig_mod",
}
"""Classes of torch around a module that call it themselves, and the attribute that holds it."""


def drop_in(
    module: torch.nn.Module,
    capture: Capture,
    sources: Sequence[str],
    *,
    result: SearchResult | None = None,
    reason: str | None = None,
) -> Any:
    """A module that is `module` in everything but forward, which runs the versions `sources` of its capture.

    Each version runs beside the module first, see `mtmc.dropin.verify`; one that is not right is not used, and a warning
    says why. The first that holds for a call is used for it. A drop-in gets the versions besides those that it has, and is
    returned itself. result: the search that found the versions. reason: why there are none, for `.mtmc.reason`.

    Raises: TaskError if no drop-in can be made of the module.
    """
    refuse_module(module)
    if isinstance(module, OptimizedModule):
        made: torch.nn.Module = module
        record = module.mtmc
        record.result = result or record.result
    else:
        record = new_record(module, result=result, reason=reason or "there is no version of it")
        made = attach(module, record)
    for source in sources:
        refused = record.add(made, Recipe.of(capture, source), capture.call.tensors)
        if refused is not None:
            warnings.warn(f"mtmc: a version is not used: {refused}", RuntimeWarning, stacklevel=3)
    return made


def refuse_module(module: Any) -> None:
    """Raises: TaskError if no drop-in can be made of the module, with what to give instead."""
    if not isinstance(module, torch.nn.Module):
        raise TaskError(f"a drop-in is made of a torch.nn.Module, not of a {type(module).__name__}")
    kind = type(module)
    inner = _WRAPPERS.get(kind.__name__) if kind.__module__.startswith("torch.") else None
    if inner is not None:
        raise TaskError(f"the module is wrapped by {kind.__name__}, which calls it by itself: optimize its .{inner}")
    if isinstance(module, torch.jit.ScriptModule):
        raise TaskError(f"{kind.__name__} is compiled by TorchScript: optimize the module that it was made from")
    if not isinstance(module, OptimizedModule) and hasattr(module, ATTRIBUTE):
        raise TaskError(f"{kind.__name__} has an attribute {ATTRIBUTE} of its own, which a drop-in needs: rename it")
    slots = [base.__name__ for base in kind.__mro__ if vars(base).get("__slots__")]
    if slots:
        raise TaskError(f"{slots[0]} has __slots__, which a drop-in cannot share: keep attributes without them")
    lazy = [n for n, p in (*module.named_parameters(), *module.named_buffers()) if torch.nn.parameter.is_lazy(p)]
    if lazy:
        raise TaskError(f"{kind.__name__} has tensors without a shape yet ({lazy[0]}): call it once before")
