"""Evaluation: what is found of a source, once in a run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from mtmc.outcome import Diagnosis, Outcome
from mtmc.protocols import Depth, EvaluationRequest
from mtmc.search.run_state import Run, TrialRun
from mtmc.search.strategies.common import derive_seed
from mtmc.tree import source_hash

NOT_FASTER = "NotFaster"


def outcome_of(
    run: Run, source: str, gate: Depth, batch: int, refused: Callable[[], Outcome | None] = lambda: None
) -> tuple[int, Outcome]:
    """What evaluation finds of a source, and the batch that found it: from the store if it is there.

    refused: why a version that passed verification is rejected all the same, None where it is not.
    No source is evaluated twice in a run, also not by two trials at once.
    """
    hash_ = source_hash(source)
    with run.alone_with(f"{gate} {hash_}"):
        found = run.store.outcome(hash_, gate)
        if found is not None:
            return found
        started = time.perf_counter()
        outcome = _evaluated(run, source, gate, hash_)
        if gate == "verify" and outcome.ok and not is_not_faster(outcome):
            outcome = refused() or outcome
        run.store.add_outcome(hash_, gate, batch, outcome, time.perf_counter() - started)
        return batch, outcome


def _evaluated(run: Run, source: str, gate: Depth, hash_: str) -> Outcome:
    """What the evaluator says. A verification that finds a version slower than the reference is made once more, since
    what else the machine does only adds to a time."""
    outcome = _asked(run, source, gate, derive_seed(run.settings.seed, gate, hash_))
    if gate == "screen":
        return outcome
    outcome = verified(outcome, run.tree.root.outcome)
    if not is_not_faster(outcome):
        return outcome
    return verified(
        _asked(run, source, gate, derive_seed(run.settings.seed, gate, hash_, "again")), run.tree.root.outcome
    )


def _asked(run: Run, source: str, gate: Depth, seed: int) -> Outcome:
    [outcome] = run.parts.evaluator.evaluate([EvaluationRequest(run.task, source, seed, gate)])
    return outcome


def screened(run: Run, trial_run: TrialRun, source: str) -> Outcome | None:
    """What screening finds of a trial's version or draft: from the store, or paid with one of its evaluations. None where it
    has none left."""
    hash_, account = source_hash(source), run.accounts[trial_run.batch]
    known = run.store.outcome(hash_, "screen")
    if known is not None and known[0] != trial_run.batch:
        return known[1]
    if not account.hold(hash_, trial_run.fresh, trial_run.row.allowance):
        return None
    try:
        run.store.add_screened(trial_run.row.trial.id, hash_, trial_run.at)
        batch, outcome = outcome_of(run, source, "screen", trial_run.batch)
    except BaseException:
        account.let_go(hash_, trial_run.fresh)
        raise
    if batch != trial_run.batch:
        account.let_go(hash_, trial_run.fresh)
    return outcome


def verified(outcome: Outcome, root: Outcome) -> Outcome:
    """What a verification found, rejected where the version did not pass. One that took longer than the reference (what that
    took in turn with it, or the root where it was not timed so) is right and goes on as that much slower than the root, with
    a diagnosis that says so (NotFaster): what is made of it may be faster."""
    if not outcome.ok:
        return replace(outcome, status="rejected")
    reference_ms = outcome.metrics.get("eager_ms", root.runtime_ms)
    if outcome.runtime_ms is None or reference_ms is None or outcome.runtime_ms <= reference_ms:
        return outcome
    message = f"when verified it took {outcome.runtime_ms:.4g} ms, the reference {reference_ms:.4g} ms"
    slower_ms = outcome.runtime_ms if root.runtime_ms is None else root.runtime_ms * outcome.runtime_ms / reference_ms
    return replace(outcome, runtime_ms=slower_ms, diagnosis=Diagnosis("verify", NOT_FASTER, message))


def is_not_faster(outcome: Outcome) -> bool:
    """Whether a verification found the version slower than the reference."""
    return outcome.diagnosis is not None and outcome.diagnosis.kind == NOT_FASTER
