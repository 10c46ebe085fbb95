"""Found: what a search has found of a module, in short. It is there, too, where the cache has spared the search."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mtmc.cache import Asked, Entry, Lookup, WinnerCache
from mtmc.export.text import factor
from mtmc.search import SearchResult
from mtmc.search.steps import NOTHING_LEFT
from mtmc.task import Task

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Found:
    """What a search has found.

    speedup: of the best version over the reference, 1.0 where none is faster. runtime_ms: of one forward of it at the full
    shapes. runtime_kind: "measured" or "estimated". All three are None where no version could be timed.
    evaluations: how many were spent. cached: whether the cache has spared the search. made: when it was made, in UTC.
    run: the folder of the search, "" where it was not kept. tolerance: what its outputs were compared by, in words.
    """

    speedup: float | None
    runtime_ms: float | None
    runtime_kind: str | None
    evaluations: int
    cached: bool
    made: str
    run: str
    tolerance: str = ""

    def __str__(self) -> str:
        gain = "no speedup known" if self.speedup is None else f"{factor(self.speedup)} {self.runtime_kind}"
        return f"{gain} after {self.evaluations} evaluations" + (
            f", from the cache of {self.made}" if self.cached else ""
        )


def found_by(result: SearchResult, task: Task, run: str) -> Found:
    """What a search of a task has found that was made now. run: see `Found`."""
    best = result.best
    made = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
    told = task.tolerance.contract(result.tree.best.outcome.metrics)
    return Found(best.speedup, best.runtime_ms, best.runtime_kind, result.evaluations, False, made, run, told)


def found_in(entry: Entry, task: Task) -> Found:
    """What the cache has of a task, whose tolerance is part of the key."""
    times = entry.speedup, entry.runtime_ms, entry.runtime_kind
    return Found(*times, entry.evaluations, True, entry.made, entry.run, task.tolerance.text)


def lookup_for(settings: Mapping[str, Any], anew: bool) -> Lookup | None:
    """The question to the cache for a search with these settings, None where nothing can be kept of such a search.

    anew: whether a search is made even so; then what it finds is kept.
    Raises: RunError if the cache's folder is not the user's alone; ConfigError, EvaluatorError as `mtmc.search.search`.
    """
    asked = Asked.of(settings)
    if isinstance(asked, str):
        _log.info("the cache is not used: %s", asked)
        return None
    cache = WinnerCache()
    cache.check()
    return Lookup(asked, cache, reads=not anew)


def entry_of(
    asked: Asked, task: Task, result: SearchResult, found: Found, sources: Sequence[str], reason: str
) -> Entry:
    """What is kept of a search. sources: of the versions that are used. reason: why there are none, else ""."""
    return Entry(
        task=task.name,
        hardware=asked.hardware,
        sources=tuple(sources),
        reason=reason,
        speedup=found.speedup,
        runtime_ms=found.runtime_ms,
        runtime_kind=found.runtime_kind,
        budget=asked.budget,
        evaluations=found.evaluations,
        complete=result.finished == NOTHING_LEFT,
        made=found.made,
        run=found.run,
        small=task.small,
        held_out=task.held_out,
        baselines_ms={name: each.runtime_ms for name, each in result.baselines.items() if each.runtime_ms is not None},
    )
