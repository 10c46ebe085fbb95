"""Events: what a search tells of its trials as they go on, each a frozen record. Data only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mtmc.action import Action
from mtmc.outcome import Outcome

if TYPE_CHECKING:
    from mtmc.search.result import SearchResult


@dataclass(frozen=True)
class TrialAsked:
    """The strategy has chosen a trial. trial: its id. node_id: the version that it starts from. action: what is tried."""

    trial: int
    node_id: int
    action: Action


@dataclass(frozen=True)
class TrialCoded:
    """The coder has answered. attempt: 0 for the first edit, then one for each repair. source: the new version, None where
    there is none; error: why, "" where there is one."""

    trial: int
    attempt: int
    source: str | None
    error: str


@dataclass(frozen=True)
class TrialEvaluated:
    """A version was evaluated, or had been before in this run. attempt: which of the trial's."""

    trial: int
    attempt: int
    outcome: Outcome


@dataclass(frozen=True)
class TrialVerified:
    """What would become the best version was verified. outcome: that of the trial; it is not ok for a version that did not
    pass."""

    trial: int
    outcome: Outcome


@dataclass(frozen=True)
class NewBest:
    """A version is the best so far. speedup: over the root, None where that is not known. runtime_ms: of one forward, ms.
    runtime_kind: "measured" or "estimated"."""

    trial: int
    node_id: int
    speedup: float | None
    runtime_ms: float | None
    runtime_kind: str | None


@dataclass(frozen=True)
class Finished:
    """The search has ended; the last event. reason: why. result: as `mtmc.search.search` hands it back."""

    reason: str
    result: SearchResult


Event = TrialAsked | TrialCoded | TrialEvaluated | TrialVerified | NewBest | Finished
