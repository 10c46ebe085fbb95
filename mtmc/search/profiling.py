"""Profiling: the versions that agents build on, kernel by kernel. It is no gate, and costs no evaluation of the budget."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace

from mtmc.errors import EvaluatorError
from mtmc.outcome import Outcome
from mtmc.protocols import Depth, EvaluationRequest
from mtmc.search.run_state import Run, TrialRun
from mtmc.search.strategies.common import derive_seed
from mtmc.search.verification import contenders
from mtmc.tree import source_hash

_log = logging.getLogger(__name__)

GATE: Depth = "profile"


def profile_best(run: Run, trial_runs: Sequence[TrialRun]) -> None:
    """Profile what becomes the best version of a batch, if versions may still be profiled. Call it after verification."""
    for trial_run in contenders(trial_runs, run.tree.best.outcome.runtime_ms)[:1]:
        source = trial_run.attempts[trial_run.attempt].source
        assert source is not None and trial_run.outcome is not None
        found = profiled(run, source, trial_run.outcome, trial_run.batch)
        if found is not None:
            trial_run.outcome, trial_run.gate = found, GATE


def profiled(run: Run, source: str, outcome: Outcome, batch: int) -> Outcome | None:
    """The outcome of a right version with what a profile tells of its kernels; None where no more may be profiled.

    outcome: of its screening or verification, which stays what it is. Where the profiler fails the metrics are those alone.
    """
    if not outcome.ok or not run.parts.evaluator.profiles or not run.settings.agents.profiles:
        return None
    hash_ = source_hash(source)
    with run.alone_with(GATE):
        known = run.store.outcome(hash_, GATE)
        if known is not None:
            return known[1]
        if len(run.store.profiles()) >= run.settings.agents.profiles:
            return None
        started = time.perf_counter()
        told = _told(run, source)
        metrics = told.metrics if told is not None and told.ok else {"profile_failed": 1.0}
        found = replace(outcome, metrics={**outcome.metrics, **metrics})
        run.store.add_outcome(hash_, GATE, batch, found, time.perf_counter() - started)
        return found


def _told(run: Run, source: str) -> Outcome | None:
    """What the evaluator tells; None where its own means fail: a search does without."""
    seed = derive_seed(run.settings.seed, GATE, source_hash(source))
    try:
        [told] = run.parts.evaluator.evaluate([EvaluationRequest(run.task, source, seed, GATE)])
    except EvaluatorError as error:
        _log.warning("a version is not profiled: %s", error)
        return None
    if not told.ok:
        why = told.status if told.diagnosis is None else f"{told.status}: {told.diagnosis.message}"
        _log.warning("a version is not profiled: %s", why)
    return told
