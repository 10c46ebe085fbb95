"""The steps of one trial: code, evaluate, another candidate, repair, refine. Plain functions; each says which is next.

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
from mtmc.protocols import EditRequest, NoCandidate, Relatives
from mtmc.search.evaluation import screened
from mtmc.search.events import TrialCoded, TrialEvaluated
from mtmc.search.refinement import choose, may_refine
from mtmc.search.relatives import relatives_of
from mtmc.search.run_state import Run, TrialRun, history
from mtmc.search.strategies.common import derive_seed
from mtmc.search.trial_context import TrialContext
from mtmc.store import Attempt
from mtmc.tree import source_hash

Next = Literal["evaluate", "other", "repair", "refine", "done"]

REPAIRABLE = ("build_error", "wrong_result", "crash")
"""Statuses that a coder is asked to repair; a version that hangs, eats the memory or cheats is not repaired."""

_log = logging.getLogger(__name__)


def code(run: Run, trial_id: int) -> Next:
    """The coder's first edit of a trial. Done where there is none, or its source is in the tree already."""
    trial_run = run.trial_runs[trial_id]
    return _try(run, trial_run, replace(_request(run, trial_run), candidates=_candidates(run)))


def evaluate(run: Run, trial_id: int) -> Next:
    """Screen the last edit. On to another candidate or a repair where it failed, or to a refinement where that may pay."""
    trial_run = run.trial_runs[trial_id]
    attempt = trial_run.attempts[-1]
    assert attempt.source is not None
    outcome = screened(run, trial_run, attempt.source)
    if outcome is None:
        trial_run.reason = "its drafts have used up the trial's evaluations"
        return "done"
    trial_run.evaluated.append((attempt, outcome))
    choose(trial_run)
    run.tell(TrialEvaluated(trial_id, attempt.number, outcome))
    if not _may_go_on(run, trial_run):
        return "done"
    if may_take_another(run, trial_run):
        return "other"
    return "repair" if may_repair(run, trial_run) else "refine" if may_refine(run, trial_run) else "done"


def other(run: Run, trial_id: int) -> Next:
    """The next of the candidates for the first edit, whose replies are asked as they were. On to a repair where there is
    none."""
    trial_run = run.trial_runs[trial_id]
    trial_run.others += 1
    request = _request(run, trial_run, attempt=0)
    following = _try(run, trial_run, replace(request, candidates=_candidates(run), passed_over=trial_run.others))
    failed = trial_run.attempts[-1].source is None
    return "repair" if failed and _may_go_on(run, trial_run) and may_repair(run, trial_run) else following


def repair(run: Run, trial_id: int) -> Next:
    """The coder's next edit, given the diagnosis of the last. Done where it has none, or none that is new."""
    trial_run = run.trial_runs[trial_id]
    trial_run.repairs += 1
    failed, outcome = trial_run.evaluated[-1]
    request = _request(run, trial_run)
    return _try(run, trial_run, replace(request, feedback=outcome.diagnosis, failed_source=failed.source))


def refine(run: Run, trial_id: int) -> Next:
    """The coder's next edit, given what its fastest right version takes. Done where it has none, or none that is new."""
    trial_run = run.trial_runs[trial_id]
    trial_run.refinements += 1
    source = trial_run.attempts[trial_run.attempt].source
    request = _request(run, trial_run)
    return _try(run, trial_run, replace(request, right_source=source, right_outcome=trial_run.outcome))


def may_take_another(run: Run, trial_run: TrialRun) -> bool:
    """Whether the last version was a candidate that failed, and there may be another."""
    attempt, outcome = trial_run.evaluated[-1]
    if (
        outcome.ok
        or outcome.status == "not_run"
        or attempt.plan is not None
        or trial_run.repairs
        or trial_run.refinements
    ):
        return False
    return trial_run.others < _candidates(run) - 1


def may_repair(run: Run, trial_run: TrialRun) -> bool:
    """Whether the last version failed in a way that may be repaired, and rounds are left for it."""
    return trial_run.evaluated[-1][1].status in REPAIRABLE and trial_run.repairs < run.settings.repairs


def _may_go_on(run: Run, trial_run: TrialRun) -> bool:
    """Whether evaluations and time are left for another edit."""
    if len(trial_run.fresh) >= trial_run.row.allowance:
        return False
    limit = run.settings.budget.wall_seconds
    return limit is None or run.seconds < limit or len(trial_run.recorded) > len(trial_run.attempts)


def _try(run: Run, trial_run: TrialRun, request: EditRequest) -> Next:
    """One call of the coder, and what its answer means for the trial."""
    attempt = _attempt(run, trial_run, request)
    earlier = [source_hash(each.source) for each in trial_run.attempts if each.source is not None]
    trial_run.attempts.append(attempt)
    run.tell(TrialCoded(trial_run.row.trial.id, attempt.number, attempt.source, attempt.error or ""))
    if attempt.source is None:
        trial_run.reason = attempt.error or ""
        return "done"
    hash_ = source_hash(attempt.source)
    if hash_ in earlier:
        _log.debug("trial %d: the coder gave an edit again that it had given", trial_run.row.trial.id)
        return "done"
    known = run.tree.find(attempt.source)
    if known is not None and not _went_on(run, trial_run, hash_):
        if trial_run.outcome is None or not trial_run.outcome.ok:
            trial_run.duplicate_of = known.id
        trial_run.reason = f"its source is that of node {known.id}"
        return "done"
    return "evaluate"


def _went_on(run: Run, trial_run: TrialRun, hash_: str) -> bool:
    """Whether the last attempt is one that a killed process evaluated or followed by another: its source has become a node
    since, by a trial that ended first."""
    number = trial_run.attempts[-1].number
    follows = number + 1 < len(trial_run.recorded)
    return follows or (number < len(trial_run.recorded) and hash_ in run.accounts[trial_run.batch].made)


def _attempt(run: Run, trial_run: TrialRun, request: EditRequest) -> Attempt:
    """The coder's answer to a request: recorded by a killed process, or asked for now and recorded."""
    trial_run.goes_on = request.right_source is not None or request.passed_over > 0
    number = trial_run.at = len(trial_run.attempts)
    if number < len(trial_run.recorded):
        drafts = [hash_ for hash_, at in trial_run.screened.items() if at == number]
        trial_run.fresh += [hash_ for hash_ in drafts if hash_ not in trial_run.fresh]
        return trial_run.recorded[number]
    trial_id = trial_run.row.trial.id
    started = time.perf_counter()
    context = TrialContext(run, trial_run)
    try:
        edit = run.parts.coder.edit(replace(request, context=context))
    except CoderError as error:
        _log.debug("trial %d: %s", trial_id, error)
        spent = error.cost if isinstance(error, NoCandidate) else context.cost
        cost = replace(spent, seconds=time.perf_counter() - started)
        attempt = Attempt(trial_id, number, None, None, cost, str(error))
    else:
        cost = replace(edit.cost, seconds=time.perf_counter() - started)
        attempt = Attempt(trial_id, number, edit.source, edit.plan, cost)
    run.store.add_attempt(attempt)
    return attempt


def _candidates(run: Run) -> int:
    return run.settings.agents.candidates if run.parts.coder.gives_candidates else 1


def _request(run: Run, trial_run: TrialRun, attempt: int | None = None) -> EditRequest:
    """What the coder is asked at an attempt; None: the one that is due."""
    number = len(trial_run.attempts) if attempt is None else attempt
    parent, asks = trial_run.parent, run.parts.coder.asks_model
    relatives = relatives_of(run, parent.id, trial_run.known, trial_run.action.kind) if asks else Relatives()
    return EditRequest(
        task=run.task,
        source=parent.source,
        plan=parent.plan,
        outcome=parent.outcome,
        action=trial_run.action,
        hardware=run.parts.evaluator.hardware,
        history=history(run.tree, parent.id),
        seed=derive_seed(run.settings.seed, "edit", trial_run.row.trial.id, number),
        run=run.facts,
        relatives=relatives,
    )
