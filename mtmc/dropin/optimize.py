"""optimize(): a live nn.Module in, a drop-in nn.Module with faster kernels out."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from mtmc.cache import Entry, Lookup
from mtmc.dropin.binding import bound
from mtmc.dropin.compiled import FasterMode, faster_mode
from mtmc.dropin.drop_in import drop_in, refuse_module
from mtmc.dropin.found import entry_of, found_by, found_in, lookup_for
from mtmc.export.no_gain import why_no_gain
from mtmc.search import SearchResult, search
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
    compiled: bool = True,
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
    compiled: whether the drop-in runs the original under torch.compile where that was measured to be faster than the best
    version (`evaluator.baselines`); `.mtmc.reason` says so. False: kernels are used wherever they beat eager.
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
        made = _from_cache(module, capture, lookup, compiled)
        if made is not None:
            return made
    result = search(bound(capture), **settings)
    found = found_by(result, capture.task, str(settings.get("out") or ""))
    times = {name: outcome.runtime_ms for name, outcome in result.baselines.items()}
    faster = faster_mode(found.runtime_ms, found.runtime_kind, times) if compiled else None
    no_gain = why_no_gain(result.tree)
    reason = str(faster) if faster else no_gain
    if reason:
        _log.warning("%s: %s", capture.task.name, reason)
    sources = [] if no_gain else [result.best_file]
    made = drop_in(module, capture, [] if faster else sources, result=result, reason=reason or None)
    made.mtmc.found = found
    if lookup is not None:
        lookup.keep(_entry(lookup, capture, result, made, sources, no_gain, faster is not None))
    return _under(made, faster)


def _entry(
    lookup: Lookup,
    capture: Capture,
    result: SearchResult,
    made: Any,
    sources: Sequence[str],
    no_gain: str,
    untried: bool,
) -> Entry:
    """What is kept of a search: the versions that were right on the module, or that were not tried since it is faster
    under torch.compile, which is decided again when the entry is used."""
    used = [source for source in sources if untried or source in made.mtmc.versions]
    if sources and not used:
        no_gain = made.mtmc.reason or "its version was not right on the module"
    return entry_of(lookup.asked, capture.task, result, made.mtmc.found, used, no_gain)


def _under(made: Any, faster: FasterMode | None) -> Any:
    """The drop-in, under torch.compile where that is faster: nothing is compiled before the first call."""
    if faster is not None:
        made.compile(mode=faster.mode)
    return made


def _from_cache(module: torch.nn.Module, capture: Capture, lookup: Lookup, compiled: bool) -> Any:
    """The drop-in of what the cache has; None where that is not right on the module."""
    entry = lookup.entry
    assert entry is not None
    found = found_in(entry, capture.task)
    faster = faster_mode(entry.runtime_ms, entry.runtime_kind, entry.baselines_ms) if compiled else None
    told = str(faster) if faster else entry.reason
    reason = f"{told} (from the cache of {entry.made})" if told else None
    made = drop_in(module, capture, () if faster else entry.sources, reason=reason)
    if not faster and entry.sources and not set(entry.sources) & set(made.mtmc.versions):
        lookup.refuse(made.mtmc.reason or "it was not right on the module")
        return None
    made.mtmc.found = found
    _log.warning("%s is not searched again: %s (cache=False searches it)", capture.task.name, reason or found)
    return _under(made, faster)
