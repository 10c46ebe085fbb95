"""Campaign: the searches of a whole model's pieces, until the budget is spent or none promises enough."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import nn

from mtmc.cache import Asked, Lookup, WinnerCache
from mtmc.dropin.drop_in import refuse_module
from mtmc.errors import TaskError
from mtmc.protocols import Evaluator, EvaluatorSettings
from mtmc.search import Budget, components
from mtmc.task import capture_module
from mtmc.whole.allocate import Prospect, next_slice, slice_size
from mtmc.whole.examples import Example
from mtmc.whole.piece_search import PieceSearch, Spent, slice_budget
from mtmc.whole.pieces import Choice, Limits, Piece, choose
from mtmc.whole.site import Profile

_log = logging.getLogger(__name__)

Take = Callable[[Piece], Example]
"""Gives the arguments with which a piece is called at its first place. Raises: TaskError where it is not called so again."""


@dataclass
class Campaign:
    """What is searched of a model, and how far it has come.

    take: see `Take`. folder: where each search gets a folder. settings: those of `mtmc.search.search` besides budget,
    evaluator and folder. asked: of the cache, for each piece; None: it is not used. reads_cache: whether what it has is
    wanted, else it only keeps what is found. refused: why calls cannot be searched, by their key, as far as that came out.
    """

    model: nn.Module
    profile: Profile
    take: Take
    evaluator: Evaluator | EvaluatorSettings
    budget: Budget
    folder: Path
    settings: Mapping[str, Any]
    limits: Limits = field(default_factory=Limits)
    asked: Asked | None = None
    reads_cache: bool = True
    refused: dict[str, str] = field(default_factory=dict)
    searches: dict[str, PieceSearch] = field(default_factory=dict)
    prospects: dict[str, Prospect] = field(default_factory=dict)
    started: float | None = None

    @property
    def choice(self) -> Choice:
        """The pieces, by what is known now."""
        return choose(self.profile, self.limits, self.refused)

    @property
    def spent(self) -> Spent:
        """By all searches together; of wall time all since the beginning, captures included."""
        total = sum((each.spent for each in self.searches.values()), Spent())
        return replace(total, wall_seconds=time.monotonic() - self.started) if self.started is not None else total

    def run(self) -> None:
        """Spend the budget. An evaluator that is opened here is closed at the end: its processes would be in the way of what
        is timed on the GPU afterwards.

        Raises: ConfigError, RunError or EvaluatorError as `mtmc.search.search` does.
        """
        self.started = time.monotonic()
        evaluator = components.opened(self.evaluator)
        try:
            self._run(evaluator)
        finally:
            if evaluator is not self.evaluator:
                evaluator.close()

    def _run(self, evaluator: Evaluator) -> None:
        while True:
            pieces = self.choice.pieces
            for piece in pieces:
                known = self.prospects.get(piece.key, Prospect(piece.share, piece.headroom))
                self.prospects[piece.key] = replace(known, share=piece.share)  # it grows by what others are split into
            left = self.budget.evaluations - self.spent.evaluations
            size = min(left, slice_size(self.budget.evaluations, max(1, len(pieces))))
            chosen = next_slice([self.prospects[piece.key] for piece in pieces], size)
            if chosen is None or self._exhausted():
                return
            self._advance(pieces[chosen], size, evaluator)

    def _exhausted(self) -> bool:
        """Whether a limit besides that of evaluations is reached."""
        spent = self.spent
        limits = [
            (getattr(self.budget, name), getattr(spent, name)) for name in ("wall_seconds", "usd", "tokens", "calls")
        ]
        return any(limit is not None and used >= limit for limit, used in limits)

    def _advance(self, piece: Piece, size: int, evaluator: Evaluator) -> None:
        """Give a piece a slice; where it turns out that it cannot be searched, it is refused."""
        before = self.prospects[piece.key]
        try:
            found = self.searches.get(piece.key) or self._begin(piece)
            if self.asked is not None and found.entry is not None:
                # What was spent on it then counts, so that the rest of the budget goes to the same pieces as then.
                found.spent = Spent(found.entry.evaluations)
                self.searches[piece.key] = found
                self.prospects[piece.key] = before.after(found.spent.evaluations, found.speedup, finished=True)
                _log.warning("%s is not searched again: %.2fx, from the cache", piece.name, found.speedup)
                return
            budget = slice_budget(self.budget, self.spent, found.spent, size)
            found.advance(budget, evaluator)
        except TaskError as error:
            _log.info("%s is not searched: %s", piece.name, error)
            self.refused[piece.key] = " ".join(str(error).split())
            self.searches.pop(piece.key, None)
            return
        self.searches[piece.key] = found
        ended_early = found.spent.evaluations < budget.evaluations
        self.prospects[piece.key] = before.after(found.spent.evaluations, found.speedup, ended_early)
        _log.info("%s: %.2fx after %d evaluations", piece.name, found.speedup, found.spent.evaluations)

    def _begin(self, piece: Piece) -> PieceSearch:
        """The search of a piece, before its first evaluation. Raises: TaskError where it cannot be searched."""
        site = piece.sites[0]
        module = self.model.get_submodule(site.path)
        refuse_module(module)
        args, kwargs = self.take(piece)
        lookup = None if self.asked is None else Lookup(self.asked, WinnerCache(), self.reads_cache)
        known: dict[str, Any] = {} if lookup is None else {"known": lookup.shapes}
        capture = capture_module(module, args, kwargs, _task_name(piece), **known)
        name = f"{len(self.searches) + len(self.refused) + 1:02d}-{_task_name(piece)}"
        given: dict[str, Any] = {} if lookup is None else {"lookup": lookup}
        return PieceSearch(piece, capture, self.folder / name, self.settings, **given)


def _task_name(piece: Piece) -> str:
    """The class of the submodule as the name of a folder."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", piece.sites[0].kind).lstrip("._-") or "piece"
