"""The search of one piece, a slice of evaluations at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from mtmc.cache import Entry, Lookup
from mtmc.dropin.binding import bound
from mtmc.dropin.compiled import MODES
from mtmc.dropin.found import entry_of, found_by
from mtmc.errors import ConfigError
from mtmc.export.no_gain import why_no_gain
from mtmc.protocols import Evaluator
from mtmc.search import Budget, Progress, SearchResult, resume, search
from mtmc.search.result import spent_cost, write_outputs
from mtmc.store import Store
from mtmc.task import Capture
from mtmc.tree import ROOT_ID
from mtmc.whole.pieces import Piece

_PARTS = ("strategy", "policy", "coder")


@dataclass(frozen=True)
class Spent:
    """What searches have taken so far, as the fields of `Budget` of the same names count it."""

    evaluations: int = 0
    wall_seconds: float = 0.0
    usd: float = 0.0
    tokens: int = 0
    calls: int = 0

    def __add__(self, other: Spent) -> Spent:
        return Spent(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))


def check_budget(budget: Budget) -> None:
    """Raises: ConfigError for a limit that cannot be divided among searches."""
    if budget.model_seconds is not None:
        raise ConfigError(
            "budget.model_seconds is not for a whole model: limit budget.wall_seconds, usd, tokens or calls"
        )


def slice_budget(whole: Budget, all_spent: Spent, own: Spent, evaluations: int) -> Budget:
    """The budget of a search that may take so many more evaluations, and of the rest whatever the whole budget leaves."""
    limits: dict[str, Any] = {"evaluations": own.evaluations + evaluations}
    for name in ("wall_seconds", "usd", "tokens", "calls"):
        limit = getattr(whole, name)
        if limit is not None:
            limits[name] = max(limit - getattr(all_spent, name), 0) + getattr(own, name)
    if limits.get("wall_seconds") == 0:
        limits["wall_seconds"] = 1e-3
    return replace(whole, **limits)


@dataclass
class PieceSearch:
    """A piece, its capture at one of its places, and how far its search has come.

    settings: those of `mtmc.search.search`, without budget, evaluator and folder. lookup: what the cache knows of the
    piece: where it has an entry there is no search. not_right: why its winner is not used in a place, by the submodule's id.
    """

    piece: Piece
    capture: Capture
    folder: Path
    settings: Mapping[str, Any]
    lookup: Lookup | None = None
    result: SearchResult | None = None
    spent: Spent = field(default_factory=Spent)
    not_right: dict[int, str] = field(default_factory=dict)
    _seconds: float = 0.0

    def advance(self, budget: Budget, evaluator: Evaluator) -> None:
        """Search until the budget is spent. Raises: as `mtmc.search.search` does."""
        started = time.monotonic()
        if self.result is None:
            settings = {**self.settings, "dumps": False, "progress": self._told_with_name()}
            self.result = search(bound(self.capture), budget=budget, evaluator=evaluator, out=self.folder, **settings)
        else:
            parts = {name: self.settings[name] for name in _PARTS if name in self.settings}
            objects = {name: part for name, part in parts.items() if not isinstance(part, str)}
            told = self._told_with_name()
            self.result = resume(self.folder, budget=budget, evaluator=evaluator, dumps=False, progress=told, **objects)
        self._seconds += time.monotonic() - started
        self.spent = self._all_spent()

    def _told_with_name(self) -> Callable[[Progress], None] | Literal[False]:
        """What is told of progress, with the piece it is of."""
        tell = self.settings.get("progress")
        return (lambda progress: tell(replace(progress, what=self.piece.name))) if callable(tell) else False

    def _all_spent(self) -> Spent:
        store = Store.read(self.folder)
        try:
            cost = spent_cost(store)
        finally:
            store.close()
        assert self.result is not None
        return Spent(self.result.evaluations, self._seconds, cost.usd, cost.tokens_in + cost.tokens_out, cost.calls)

    @property
    def entry(self) -> Entry | None:
        """What the cache has instead of a search."""
        return None if self.lookup is None else self.lookup.entry

    def keep(self) -> None:
        """Keep what the search has found in the cache."""
        if self.lookup is not None and self.result is not None:
            sources = [] if self.source is None else [self.source]
            found = found_by(self.result, self.capture.task, "")
            self.lookup.keep(
                entry_of(self.lookup.asked, self.capture.task, self.result, found, sources, self.no_gain or "")
            )

    @property
    def speedup(self) -> float:
        """Of the best version over the original, at least 1."""
        if self.entry is not None:
            return max(1.0, self.entry.speedup or 1.0)
        found = self.result.best.speedup if self.result is not None else None
        return max(1.0, found or 1.0)

    @property
    def source(self) -> str | None:
        """The file of the best version, with its guards; None where none is faster than the original."""
        if self.entry is not None:
            return self.entry.sources[0] if self.entry.sources else None
        if self.result is None or self.result.best.node_id == ROOT_ID:
            return None
        return self.result.best_file

    @property
    def beats_compiler(self) -> bool:
        """Whether its best version is faster than torch.compile of the piece alone, in any mode that was measured; True
        where none was."""
        if self.entry is not None:
            found: Mapping[str, float | None] = self.entry.baselines_ms
            best_ms = self.entry.runtime_ms
        else:
            assert self.result is not None
            found = {name: outcome.runtime_ms for name, outcome in self.result.baselines.items()}
            best_ms = self.result.best.runtime_ms
        times = [each for name, each in found.items() if name in MODES and each is not None]
        return best_ms is None or all(best_ms < each for each in times)

    @property
    def no_gain(self) -> str | None:
        """Why no version is faster than the original, None where one is."""
        if self.entry is not None:
            return None if self.entry.sources else f"{self.entry.reason} (from the cache of {self.entry.made})"
        if self.result is None or self.source is not None:
            return None
        return why_no_gain(self.result.tree)

    def finish(self) -> None:
        """Write everything that the run's folder holds besides the store, if dumps are wanted."""
        if self.result is not None and self.settings.get("dumps", True):
            write_outputs(self.result, self.folder)
