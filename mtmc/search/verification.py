"""Verification: the last gate, for a batch's best version only. Of trials that end one by one each is a batch.

A version becomes the run's best only when it has passed. The versions of a batch that are faster than the best so far
are verified fastest first until one passes: those after it are slower, so none of them can become the best. One that
does not pass is rejected, and the next takes its place, a slower one of the same trial say. So is one whose file, as it
would be handed out, cannot be imported by itself. That is asked of every evaluator.

One that takes longer there than the reference, with which it is timed in turn where that can be done, and does so once more,
is not handed back either: it was faster once, on a busy host say. It is right, and stays in the tree as what it is: slower.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from mtmc.outcome import Diagnosis, Outcome
from mtmc.search.evaluation import is_not_faster, outcome_of
from mtmc.search.events import TrialVerified
from mtmc.search.folder import handed_out_text
from mtmc.search.refinement import step_back
from mtmc.search.run_state import Run, TrialRun
from mtmc.store import Attempt
from mtmc.tree import source_hash

_log = logging.getLogger(__name__)


def verify_best(run: Run, trial_runs: Sequence[TrialRun]) -> None:
    """Verify what would become the best version of a batch whose trials have all ended; nothing where none would.

    May be called from the thread of a trial: the best version so far may become a faster one meanwhile, never a slower.
    """
    while waiting := contenders(trial_runs, run.tree.best.outcome.runtime_ms):
        trial_run = waiting[0]
        failed = _failed(run, trial_run)
        assert trial_run.outcome is not None
        run.tell(TrialVerified(trial_run.row.trial.id, failed or trial_run.outcome))
        if failed is None:
            return
        step_back(trial_run, failed)


def guards_of(run: Run) -> str | None:
    """What the coder's versions hold for, found when a version other than the root is to be handed out first; that takes
    about a second."""
    with run.alone_with("guards"):
        known = run.store.guards()
        if known is not None:
            return known
        found = run.parts.coder.guards(run.task)
        if found is not None:
            run.store.keep_guards(found)
        return found


def _failed(run: Run, trial_run: TrialRun) -> Outcome | None:
    """The outcome of a version that must not become the best; None where it may."""
    attempt = trial_run.attempts[trial_run.attempt]
    source = attempt.source
    assert source is not None
    if run.parts.evaluator.verifies:
        _, outcome = outcome_of(run, source, "verify", trial_run.batch, lambda: _refused(run, trial_run))
        return None if outcome.ok and not is_not_faster(outcome) else outcome
    known = run.store.outcome(source_hash(source), "verify")  # of a process that was killed since
    if known is not None:
        return known[1]
    started = time.perf_counter()
    failed = _refused(run, trial_run)
    if failed is not None:
        seconds = time.perf_counter() - started
        run.store.add_outcome(source_hash(source), "verify", trial_run.batch, failed, seconds)
    return failed


def _refused(run: Run, trial_run: TrialRun) -> Outcome | None:
    """Why a version that passed verification must not become the best: its file is of no use, or it was declined."""
    failed = _not_handed_out(run, trial_run.attempts[trial_run.attempt])
    assert trial_run.outcome is not None
    if failed is not None or run.watch.accept is None or run.watch.accept(trial_run, trial_run.outcome):
        return failed
    return Outcome("rejected", diagnosis=Diagnosis("verify", "Declined", "it was declined by whoever was asked"))


def _not_handed_out(run: Run, attempt: Attempt) -> Outcome | None:
    """Why a version's file, with its guards, is of no use to whoever gets it; None where it can be imported."""
    assert attempt.source is not None
    text = handed_out_text(attempt.source, attempt.plan is not None, guards_of(run))
    failed = run.parts.evaluator.imports(text)
    if failed is not None:
        said = failed.diagnosis.message if failed.diagnosis is not None else failed.status
        _log.warning("the version of trial %d is not handed out: %s", attempt.trial_id, said)
    return failed


def contenders(trial_runs: Sequence[TrialRun], best_ms: float | None) -> list[TrialRun]:
    """The trials that ended with a version faster than `best_ms` (ms; None: any), fastest first, ties in trial order."""
    timed = [
        (trial_run.outcome.runtime_ms, trial_run.row.trial.id, trial_run)
        for trial_run in trial_runs
        if trial_run.duplicate_of is None and trial_run.outcome is not None and trial_run.outcome.ok
        if trial_run.outcome.runtime_ms is not None and (best_ms is None or trial_run.outcome.runtime_ms < best_ms)
    ]
    return [trial_run for _, _, trial_run in sorted(timed, key=lambda each: each[:2])]
