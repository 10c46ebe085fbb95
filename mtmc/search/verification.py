"""Verification: the last gate, for a batch's best version only.

A version becomes the run's best only when it has passed. The versions of a batch that are faster than the best so far
are verified fastest first until one passes: those after it are slower, so none of them can become the best. One that
does not pass is rejected, and the next takes its place. So is one that takes longer there than the reference, with which
it is timed in turn where that can be done: what was faster once, on a busy host say, is not handed back.
"""

from __future__ import annotations

from collections.abc import Sequence

from mtmc.search.evaluation import outcome_of
from mtmc.search.run_state import Run, TrialRun


def verify_best(run: Run, trial_runs: Sequence[TrialRun]) -> None:
    """Verify what would become the best version of a batch whose trials have all ended; nothing where none would."""
    if not run.parts.evaluator.verifies:
        return
    for trial_run in contenders(trial_runs, run.tree.best.outcome.runtime_ms):
        attempt = trial_run.attempts[trial_run.attempt]
        assert attempt.source is not None
        _, verified = outcome_of(run, attempt.source, "verify", run.batch_id)
        if verified.ok:
            return
        trial_run.outcome, trial_run.gate = verified, "verify"


def contenders(trial_runs: Sequence[TrialRun], best_ms: float | None) -> list[TrialRun]:
    """The trials that ended with a version faster than `best_ms` (ms; None: any), fastest first, ties in trial order."""
    timed = [
        (trial_run.outcome.runtime_ms, trial_run.row.trial.id, trial_run)
        for trial_run in trial_runs
        if trial_run.duplicate_of is None and trial_run.outcome is not None and trial_run.outcome.ok
        if trial_run.outcome.runtime_ms is not None and (best_ms is None or trial_run.outcome.runtime_ms < best_ms)
    ]
    return [trial_run for _, _, trial_run in sorted(timed, key=lambda each: each[:2])]
