"""The steps of a run: prepare, select, backup, finish. Plain functions on a `Run` that the state machine calls."""

from __future__ import annotations

import logging

from mtmc.errors import TaskError
from mtmc.outcome import Cost, Outcome
from mtmc.search.budget import allowances, batch_size, exhausted
from mtmc.search.context import Flight, Run
from mtmc.search.evaluation import outcome_of
from mtmc.search.legal import legal_actions
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
    """Ids of the trials of the next batch, ready to fly; none where the search has ended, see `Run.finished`.

    A batch that a killed process has left in flight comes first.
    """
    resumed = run.pending is not None
    if run.pending is not None:
        batch, run.pending = run.pending, None
    else:
        run.finished = exhausted(run.settings.budget, run.spent)
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
    run.flights = {row.trial.id: _flight(run, row, resumed) for row in batch.trials}
    return sorted(run.flights)


def backup(run: Run) -> None:
    """End the batch in flight: new nodes into the tree, the strategy told in trial order, one record in the store."""
    flights = [run.flights[trial_id] for trial_id in sorted(run.flights)]
    best = run.tree.best.id
    verify_best(run, flights)
    nodes = [_land(run, flight) for flight in flights]
    charges = _charges(flights)
    for flight in flights:
        for attempt, outcome in flight.evaluated:
            assert attempt.source is not None
            run.note_failure(source_hash(attempt.source), attempt.plan, outcome)
    new: list[NewNode] = []
    ends: dict[int, TrialEnd] = {}
    for flight, node, charge in zip(flights, nodes, charges, strict=True):
        trial_id = flight.row.trial.id
        if node is not None:
            actions, priors = legal_actions(run, node)
            new.append(NewNode(node, flight.gate, actions, priors))
            run.keep_actions(node.id, actions)
            run.tell_node(node, actions, priors)
        ends[trial_id] = _end(flight, node, charge)
        run.tell_trial(trial_id, ends[trial_id].child_id)
    run.store.end_batch(run.batch_id, ends, new, run.seconds)
    run.evaluations += sum(charges)
    run.batch_id += 1
    run.flights = {}
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


def _flight(run: Run, row: TrialRow, resumed: bool) -> Flight:
    parent = run.tree[row.trial.node_id]
    recorded = run.store.attempts(row.trial.id) if resumed else ()
    return Flight(row, parent, run.actions(parent.id)[row.trial.action_index], recorded)


def _land(run: Run, flight: Flight) -> KernelNode | None:
    """The new node of a trial, added to the tree; None where there is none."""
    if flight.duplicate_of is not None or flight.outcome is None:
        return None
    attempt = flight.attempts[flight.attempt]
    assert attempt.source is not None
    known = run.tree.find(attempt.source)
    if known is not None:
        flight.duplicate_of = known.id
        flight.reason = f"its source is that of node {known.id}"
        return None
    node = KernelNode(
        id=len(run.tree),
        parent_id=flight.parent.id,
        action=flight.action,
        source=attempt.source,
        plan=attempt.plan,
        outcome=flight.outcome,
        trial_id=flight.row.trial.id,
        repairs=flight.attempt,
        cost=_cost(flight.attempts),
    )
    run.tree.add(node)
    run.experience.note(run.tree, node)
    return node


def _end(flight: Flight, node: KernelNode | None, charge: int) -> TrialEnd:
    if node is not None:
        return TrialEnd("node", node.id, charge)
    if flight.duplicate_of is not None:
        return TrialEnd("duplicate", flight.duplicate_of, charge, flight.reason)
    return TrialEnd("coder_error", None, charge, flight.reason)


def _charges(flights: list[Flight]) -> list[int]:
    """Evaluations of each trial; one that two trials of a batch share is charged to the first of them."""
    charged: set[str] = set()
    charges = []
    for flight in flights:
        new = [hash_ for hash_ in flight.fresh if hash_ not in charged]
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
