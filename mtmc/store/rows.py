"""The rows of a run's store: what is recorded of a batch, its trials, their attempts and their nodes."""

from __future__ import annotations

from dataclasses import dataclass

from mtmc.action import Action
from mtmc.outcome import Cost
from mtmc.protocols import Depth, Trial
from mtmc.tree import KernelNode


@dataclass(frozen=True)
class Attempt:
    """One call of a coder: the edit, or the reason why there is none. number: 0, then one more each repair.

    cost.seconds is what the call took.
    """

    trial_id: int
    number: int
    source: str | None
    plan: str | None
    cost: Cost
    error: str | None = None


@dataclass(frozen=True)
class TrialEnd:
    """How a trial ended.

    kind: "node" (a new version), "duplicate" (its source was in the tree already) or "coder_error" (no edit).
    child_id: the node it led to, None after a coder error. evaluations: how many it is charged with.
    reason: why there is no new node, "" where there is one.
    """

    kind: str
    child_id: int | None
    evaluations: int
    reason: str = ""


@dataclass(frozen=True)
class TrialRow:
    """One trial, with the evaluations it may use; end is None while it is in flight."""

    trial: Trial
    allowance: int
    end: TrialEnd | None = None


@dataclass(frozen=True)
class Batch:
    """One call of `Strategy.ask(asked)` and its trials, which end together.

    after: how many batches had ended when it was asked for. seconds: of the run so far when it ended, None in flight.
    ended: its place in the order in which batches ended, from 0; None in flight, and where it has no trials (the strategy
    had none to give while others were in flight).
    """

    id: int
    asked: int
    trials: tuple[TrialRow, ...]
    after: int
    seconds: float | None = None
    ended: int | None = None


@dataclass(frozen=True)
class Legal:
    """What may be done to a version: its legal actions, and of each the prior and (None where the policy does not say) the
    gain that is expected, log2 of the speedup over this version."""

    actions: tuple[Action, ...]
    priors: tuple[float, ...]
    gains: tuple[float, ...] | None = None


@dataclass(frozen=True)
class NewNode:
    """A node to record: the version itself, the gate its outcome comes from, and what may be done to it."""

    node: KernelNode
    gate: Depth
    legal: Legal
