"""The steps of a run: prepare, select, backup, finish. Plain functions on a `Run` that the state machine calls."""

from __future__ import annotations

import logging

from mtmc.errors import TaskError
from mtmc.outcome import Cost, Outcome
from mtmc.search.budget import allowances, batch_size, exhausted
from mtmc.search.evaluation import outcome_of
from mtmc.search.legal import legal_actions
from mtmc.search.run_state import Run, TrialRun
from mtmc.search.verification import verify_best
from mtmc.store import ROOT_TRIAL, Attempt, Batch, NewNode, TrialEnd, TrialRow, coding_cost
from mtmc.tree import NO_PARENT, ROOT_ID, KernelNode, source_hash

NOTHING_LEFT = "nothing is left to try"

_log = logging.getLogger(__name__)


def prepare(run: Run) -> None:
    """Evaluate the root and what it is compared with, and list its legal actions; nothing where that is recorded.

    Raises: TaskError if the reference does not pass its own evaluation.
    """
    if len(run.tree) > 0:
        return
    [attempt] = run.store.attempts(ROOT_TRIAL)
    assert attempt.source is not None
    _, outcome = outcome_of(run, attempt.source, "screen", ROOT_TRIAL)
    run.evaluations = run.store.evaluations()
    if not outcome.ok:
        raise TaskError(f"the reference of task {run.task.name} fails its own evaluation: {_why(outcome)}")
    others = run.parts.evaluator.baselines(run.task)
    root = KernelNode(ROOT_ID, NO_PARENT, None, attempt.source, attempt.plan, outcome, ROOT_TRIAL, 0, _cost([attempt]))
    run.tree.add(root)
    actions, priors = legal_actions(run, root)
    run.store.add_root(NewNode(root, "screen", actions, priors), others, run.parts.evaluator.hardware)
    run.tell_node(root, actions, priors)
    report(run)


def select(run: Run) -> list[int]:
    """Ids of the trials of the next batch, ready to start; none where the search has ended, see `Run.finished`.

    A batch that a killed process has left in flight comes first.
    """
    resumed = run.pending is not None
    if run.pending is not None:
        batch, run.pending = run.pending, None
    else:
        run.finished = run.tree.root.outcome.undecided or exhausted(run.settings.budget, run.spent)
        if run.finished is not None:
            return []
        asked = batch_size(run.settings.budget, run.spent, run.settings.batch)
        trials, run.state = run.parts.strategy.ask(run.state, asked)
        if not trials:
            run.finished = NOTHING_LEFT
            return []
        given = allowances(run.settings.budget, run.spent, len(trials), run.settings.repairs)
        rows = tuple(TrialRow(trial, allowance) for trial, allowance in zip(trials, given, strict=True))
        batch = Batch(run.batch_id, asked, rows)
        run.store.begin_batch(batch)
    run.trial_runs = {row.trial.id: _trial_run(run, row, resumed) for row in batch.trials}
    return sorted(run.trial_runs)


def backup(run: Run) -> None:
    """End the batch in flight: new nodes into the tree, the strategy told in trial order, one record in the store."""
    trial_runs = [run.trial_runs[trial_id] for trial_id in sorted(run.trial_runs)]
    best = run.tree.best.id
    verify_best(run, trial_runs)
    nodes = [_new_node(run, trial_run) for trial_run in trial_runs]
    charges = _charges(trial_runs)
    for trial_run in trial_runs:
        for attempt, outcome in trial_run.evaluated:
            assert attempt.source is not None
            run.note_failure(source_hash(attempt.source), attempt.plan, outcome)
    new: list[NewNode] = []
    ends: dict[int, TrialEnd] = {}
    for trial_run, node, charge in zip(trial_runs, nodes, charges, strict=True):
        trial_id = trial_run.row.trial.id
        if node is not None:
            actions, priors = legal_actions(run, node)
            new.append(NewNode(node, trial_run.gate, actions, priors))
            run.keep_actions(node.id, actions)
            run.tell_node(node, actions, priors)
        ends[trial_id] = _end(trial_run, node, charge)
        run.tell_trial(trial_id, ends[trial_id].child_id)
    run.store.end_batch(run.batch_id, ends, new, run.seconds)
    run.evaluations += sum(charges)
    run.batch_id += 1
    run.trial_runs = {}
    if run.tree.best.id != best:
        _log.info("node %d is the best so far: %s times the root", run.tree.best.id, run.tree.speedup(run.tree.best.id))
    report(run)


def finish(run: Run) -> None:
    """Record that the search has ended, and why."""
    assert run.finished is not None
    run.store.log("finish", run.seconds, reason=run.finished, evaluations=run.evaluations, best=run.tree.best.id)
    _log.info("the search has ended: %s", run.finished)
    report(run)


def report(run: Run) -> None:
    """Tell the caller where the run stands."""
    if run.on_progress is not None:
        run.on_progress(run.progress)


def _trial_run(run: Run, row: TrialRow, resumed: bool) -> TrialRun:
    parent = run.tree[row.trial.node_id]
    recorded = run.store.attempts(row.trial.id) if resumed else ()
    return TrialRun(row, parent, run.actions(parent.id)[row.trial.action_index], recorded)


def _new_node(run: Run, trial_run: TrialRun) -> KernelNode | None:
    """The new node of a trial, added to the tree; None where there is none."""
    if trial_run.duplicate_of is not None or trial_run.outcome is None:
        return None
    attempt = trial_run.attempts[trial_run.attempt]
    assert attempt.source is not None
    known = run.tree.find(attempt.source)
    if known is not None:
        trial_run.duplicate_of = known.id
        trial_run.reason = f"its source is that of node {known.id}"
        return None
    node = KernelNode(
        id=len(run.tree),
        parent_id=trial_run.parent.id,
        action=trial_run.action,
        source=attempt.source,
        plan=attempt.plan,
        outcome=trial_run.outcome,
        trial_id=trial_run.row.trial.id,
        repairs=trial_run.attempt,
        cost=_cost(trial_run.attempts),
    )
    run.tree.add(node)
    run.action_statistics.note(run.tree, node)
    return node


def _end(trial_run: TrialRun, node: KernelNode | None, charge: int) -> TrialEnd:
    if node is not None:
        return TrialEnd("node", node.id, charge)
    if trial_run.duplicate_of is not None:
        return TrialEnd("duplicate", trial_run.duplicate_of, charge, trial_run.reason)
    return TrialEnd("coder_error", None, charge, trial_run.reason)


def _charges(trial_runs: list[TrialRun]) -> list[int]:
    """Evaluations of each trial; one that two trials of a batch share is charged to the first of them."""
    charged: set[str] = set()
    charges = []
    for trial_run in trial_runs:
        new = [hash_ for hash_ in trial_run.fresh if hash_ not in charged]
        charged.update(new)
        charges.append(len(new))
    return charges


def _cost(attempts: list[Attempt]) -> Cost:
    total = Cost()
    for attempt in attempts:
        total = coding_cost(total, attempt.cost)
    return total


def _why(outcome: Outcome) -> str:
    diagnosis = outcome.diagnosis
    return outcome.status if diagnosis is None else f"{outcome.status}: {diagnosis.kind}: {diagnosis.message}"
