"""optimize(): a live nn.Module in, a drop-in nn.Module with faster kernels out."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from mtmc.cache import Lookup
from mtmc.dropin.binding import bound
from mtmc.dropin.drop_in import drop_in, refuse_module
from mtmc.dropin.found import entry_of, found_by, found_in, lookup_for
from mtmc.export.no_gain import why_no_gain
from mtmc.search import search
from mtmc.task import Capture, capture_module
from mtmc.task.tolerance import Declared

_log = logging.getLogger(__name__)


def optimize(
    module: torch.nn.Module,
    example_inputs: Sequence[Any] | torch.Tensor,
    example_kwargs: Mapping[str, Any] | None = None,
    *,
    cache: bool = True,
    anew: bool | None = None,
    tolerance: Declared = None,
    **settings: Any,
) -> Any:
    """Search for faster kernels of `module` and return a module that is the same but for its forward, which runs them.

    What is returned is an object of the module's class, see `mtmc.dropin.optimized.OptimizedModule`. Where kernels do not
    hold for a call, or nothing was found, the original's forward runs, and `.mtmc` says why. A drop-in that is given again
    with other inputs gets versions for these besides.

    example_inputs: the positional arguments of one call (or the only one, a tensor); example_kwargs: its keyword
    arguments. settings: those of `mtmc.search.search` (budget, strategy, policy, coder, evaluator, seed, out, ...).
    cache: whether what was found before for such a module, whatever its weights, is used instead of a search with the same
    settings and no larger budget, and what is found now is kept (`mtmc cache`).
    anew: whether there is a search whatever the cache has; None: where `out` is given, so that the folder holds one.
    tolerance: how far outputs may be from the module's, as a task's file would declare it: {"atol": 1e-3, "rtol": 1e-2},
    {"steps": 1} or "kernelbench" (`mtmc.task.tolerance`).

    Raises: TaskError where the module cannot be exported, naming the op, no drop-in can be made of it, or the tolerance is
        none; ConfigError,
        RunError, EvaluatorError as `mtmc.search.search` does; RunError if others may write to the cache's folder.
    """
    refuse_module(module)
    searched = settings.get("out") is not None if anew is None else anew
    lookup = lookup_for(settings, searched) if cache else None
    known = None if lookup is None else lookup.shapes
    capture = capture_module(module, example_inputs, example_kwargs, known=known, tolerance=tolerance)
    if lookup is not None and lookup.entry is not None:
        made = _from_cache(module, capture, lookup)
        if made is not None:
            return made
    result = search(bound(capture), **settings)
    reason = why_no_gain(result.tree)
    if reason:
        _log.warning("%s: %s", capture.task.name, reason)
    sources = [] if reason else [result.best_file]
    made = drop_in(module, capture, sources, result=result, reason=reason or None)
    made.mtmc.found = found_by(result, capture.task, str(settings.get("out") or ""))
    if lookup is not None:
        used = [source for source in sources if source in made.mtmc.versions]
        if sources and not used:
            reason = made.mtmc.reason or "its version was not right on the module"
        lookup.keep(entry_of(lookup.asked, capture.task, result, made.mtmc.found, used, reason))
    return made


def _from_cache(module: torch.nn.Module, capture: Capture, lookup: Lookup) -> Any:
    """The drop-in of what the cache has; None where that is not right on the module."""
    entry = lookup.entry
    assert entry is not None
    found = found_in(entry, capture.task)
    reason = f"{entry.reason} (from the cache of {entry.made})" if entry.reason else None
    made = drop_in(module, capture, entry.sources, reason=reason)
    if entry.sources and not set(entry.sources) & set(made.mtmc.versions):
        lookup.refuse(made.mtmc.reason or "it was not right on the module")
        return None
    made.mtmc.found = found
    _log.warning("%s is not searched again: %s (cache=False searches it)", capture.task.name, reason or found)
    return made
