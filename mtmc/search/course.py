"""Course: a run's evaluations in the order in which their trials ended, with what the run had taken by then."""

from __future__ import annotations

from dataclasses import dataclass

from mtmc.chat import POLICY
from mtmc.store import ROOT_TRIAL, Store
from mtmc.tree import ROOT_ID


@dataclass(frozen=True)
class Evaluated:
    """One evaluation.

    node_id: of the version. An evaluation that made none (of an attempt that was then repaired, say) has the id of the
    version that its trial started from, which changes nothing about the best so far.
    seconds: of the run when its batch had ended, 0 for the root. usd: what coder and policy had been paid by then.
    """

    node_id: int
    seconds: float
    usd: float


def course(store: Store) -> list[Evaluated]:
    """All evaluations of the batches that have ended; the root's comes first."""
    paid = _paid(store)
    usd = paid.get(ROOT_TRIAL, 0.0)
    found = [Evaluated(ROOT_ID, 0.0, usd)]
    ended = [batch for batch in store.batches() if batch.ended is not None]
    for batch in sorted(ended, key=lambda batch: batch.ended or 0):
        usd += sum(paid.get(row.trial.id, 0.0) for row in batch.trials)
        for row in batch.trials:
            if row.end is None:
                continue
            made = [row.end.child_id] if row.end.kind == "node" and row.end.child_id is not None else []
            count = row.end.evaluations
            ids = ([row.trial.node_id] * count + made)[-count:] if count else []
            found += [Evaluated(node_id, batch.seconds or 0.0, usd) for node_id in ids]
    return found


def _paid(store: Store) -> dict[int, float]:
    """US dollars by trial: for its edits, and for the policy's looks on its account."""
    paid: dict[int, float] = {}
    for trial_id, cost in store.costs():
        paid[trial_id] = paid.get(trial_id, 0.0) + cost.usd
    for call in store.model_calls(texts=False):
        if call.purpose == POLICY and call.reply is not None:
            paid[call.trial_id] = paid.get(call.trial_id, 0.0) + (call.reply.usd or 0.0)
    return paid
