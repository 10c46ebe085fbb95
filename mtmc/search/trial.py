"""The steps of one trial: code, evaluate, repair. Plain functions; each says which step comes next.

Whatever a step finds is in the store before it returns, keyed by trial and attempt or by the source's hash. A trial
that a killed process has left in flight runs through the same steps again and takes from the store what is there, so
no edit and no evaluation is paid for twice.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Literal

from mtmc.errors import CoderError
from mtmc.protocols import EditRequest
from mtmc.search.bench import TrialBench
from mtmc.search.context import Flight, Run, history
from mtmc.search.evaluation import outcome_of
from mtmc.search.strategies.common import derive_seed
from mtmc.store import Attempt
from mtmc.tree import source_hash

Next = Literal["evaluate", "repair", "done"]

REPAIRABLE = ("build_error", "wrong_result", "crash")
"""Statuses that a coder is asked to mend; a version that hangs, eats the memory or cheats is let go."""

_log = logging.getLogger(__name__)


def code(run: Run, trial_id: int) -> Next:
    """The coder's first edit of a trial. Done where there is none, or its source is in the tree already."""
    flight = run.flights[trial_id]
    return _try(run, flight, _request(run, flight))


def evaluate(run: Run, trial_id: int) -> Next:
    """Screen the last edit. On to a repair where one may help."""
    flight = run.flights[trial_id]
    attempt = flight.attempts[-1]
    assert attempt.source is not None
    hash_ = source_hash(attempt.source)
    if run.store.outcome(hash_, "screen") is None and len(flight.fresh) >= flight.row.allowance:
        flight.reason = "its drafts have used up the trial's evaluations"
        return "done"
    batch, outcome = outcome_of(run, attempt.source, "screen", run.batch_id)
    if batch == run.batch_id and hash_ not in flight.fresh:
        flight.fresh.append(hash_)
    flight.evaluated.append((attempt, outcome))
    flight.outcome, flight.gate, flight.attempt = outcome, "screen", attempt.number
    return "repair" if may_repair(run, flight) else "done"


def repair(run: Run, trial_id: int) -> Next:
    """The coder's next edit, given the diagnosis of the last. Done where it has none, or none that is new."""
    flight = run.flights[trial_id]
    assert flight.outcome is not None
    request = _request(run, flight)
    failed_source = flight.attempts[-1].source
    return _try(run, flight, replace(request, feedback=flight.outcome.diagnosis, failed_source=failed_source))


def may_repair(run: Run, flight: Flight) -> bool:
    """Whether the last version failed in a way that may be mended, and rounds, evaluations and time are left for it."""
    assert flight.outcome is not None
    if flight.outcome.status not in REPAIRABLE or flight.attempt >= run.settings.repairs:
        return False
    if len(flight.fresh) >= flight.row.allowance:
        return False
    limit = run.settings.budget.wall_seconds
    return limit is None or run.seconds < limit or len(flight.recorded) > len(flight.attempts)


def _try(run: Run, flight: Flight, request: EditRequest) -> Next:
    """One call of the coder, and what its answer means for the trial."""
    attempt = _attempt(run, flight, request)
    earlier = [source_hash(each.source) for each in flight.attempts if each.source is not None]
    flight.attempts.append(attempt)
    if attempt.source is None:
        flight.reason = attempt.error or ""
        return "done"
    hash_ = source_hash(attempt.source)
    if hash_ in earlier:
        _log.debug("trial %d: the coder gave an edit again that failed", flight.row.trial.id)
        return "done"
    known = run.tree.find(attempt.source)
    if known is not None:
        flight.duplicate_of = known.id
        flight.reason = f"its source is that of node {known.id}"
        return "done"
    return "evaluate"


def _attempt(run: Run, flight: Flight, request: EditRequest) -> Attempt:
    """The coder's answer to a request: recorded by a killed process, or asked for now and recorded."""
    number = len(flight.attempts)
    if number < len(flight.recorded):
        return flight.recorded[number]
    trial_id = flight.row.trial.id
    started = time.perf_counter()
    bench = TrialBench(run, flight)
    try:
        edit = run.parts.coder.edit(replace(request, bench=bench))
    except CoderError as error:
        _log.debug("trial %d: %s", trial_id, error)
        cost = replace(bench.cost, seconds=time.perf_counter() - started)
        attempt = Attempt(trial_id, number, None, None, cost, str(error))
    else:
        cost = replace(edit.cost, seconds=time.perf_counter() - started)
        attempt = Attempt(trial_id, number, edit.source, edit.plan, cost)
    run.store.add_attempt(attempt)
    return attempt


def _request(run: Run, flight: Flight) -> EditRequest:
    parent = flight.parent
    return EditRequest(
        task=run.task,
        source=parent.source,
        plan=parent.plan,
        outcome=parent.outcome,
        action=flight.action,
        hardware=run.parts.evaluator.hardware,
        history=history(run.tree, parent.id),
        seed=derive_seed(run.settings.seed, "edit", flight.row.trial.id, len(flight.attempts)),
    )
