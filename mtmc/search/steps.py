"""The steps of a run: prepare, select, backup, finish. Plain functions on a `Run` that the state machine calls."""

from __future__ import annotations

import logging
from dataclasses import replace

from mtmc.errors import TaskError
from mtmc.outcome import Cost
from mtmc.protocols import Depth
from mtmc.search.account import Account, charges
from mtmc.search.ahead import looking_ahead
from mtmc.search.budget import allowances, batch_size, exhausted
from mtmc.search.evaluation import outcome_of
from mtmc.search.events import NewBest, TrialAsked
from mtmc.search.legal import legal_actions
from mtmc.search.profiling import GATE, profile_best, profiled
from mtmc.search.run_state import Run, TrialRun
from mtmc.search.slow_baselines import SlowBaselines, missing
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
        _begin_slow(run)
        return
    [attempt] = run.store.attempts(ROOT_TRIAL)
    assert attempt.source is not None
    ahead = looking_ahead(run, attempt.plan)
    _, outcome = outcome_of(run, attempt.source, "screen", ROOT_TRIAL)
    run.evaluations = run.store.evaluations()
    if not outcome.ok:
        raise TaskError(f"the reference of task {run.task.name} fails its own evaluation: {outcome.verdict}")
    told = profiled(run, attempt.source, outcome, ROOT_TRIAL)
    gate: Depth = "screen" if told is None else GATE
    outcome = told or outcome
    others = run.parts.evaluator.baselines(run.task)
    root = KernelNode(ROOT_ID, NO_PARENT, None, attempt.source, attempt.plan, outcome, ROOT_TRIAL, 0, _cost([attempt]))
    run.tree.add(root)
    run.facts = replace(run.facts, baselines=others)
    ahead.join()
    legal = legal_actions(run, root)
    run.store.add_root(NewNode(root, gate, legal), others, run.parts.evaluator.hardware)
    _begin_slow(run)
    run.tell_node(root, legal)
    report(run)


def select(run: Run) -> list[Batch]:
    """The batches that start now, their trials ready; none where trials in flight must end first, or where the search has
    ended, see `Run.finished`.

    Those that a killed process has left in flight come first.
    """
    return [*left(run), *_asked(run)]


def left(run: Run) -> list[Batch]:
    """The batches that a killed process has left in flight, their trials ready; none when they were taken already."""
    resumed, run.pending = run.pending, ()
    for batch in resumed:
        _take(run, batch, resumed=True)
    return list(resumed)


def _asked(run: Run) -> list[Batch]:
    """New batches for the trials that may begin: one for all of them where none is in flight, or, asynchronous, one each."""
    settings = run.settings
    if run.in_flight and (not settings.asynchronous or run.barren == run.ended):
        return []
    reason = run.tree.root.outcome.undecided or exhausted(settings.budget, run.spent)
    stagnant = None if reason is not None else run.stagnation.reached(settings.budget.stagnation)
    if reason is not None or stagnant is not None:
        run.finished = None if run.in_flight else reason or stagnant
        run.cut_short = run.finished is not None and stagnant is not None
        return []
    free = batch_size(settings.budget, run.promised, settings.batch - len(run.trial_runs))
    batches: list[Batch] = []
    while free > 0:
        batch = _ask(run, 1 if settings.asynchronous else free, free)
        if batch is None:
            break
        batches.append(batch)
        free -= batch.asked
    if not run.in_flight and not batches:
        run.finished, run.cut_short = nothing_left(run)
    return batches


def _ask(run: Run, asked: int, free: int) -> Batch | None:
    """One call of `Strategy.ask(asked)`, recorded; None where it gives no trial. free: trials that may begin now, which
    are all left an evaluation."""
    trials, run.state = run.parts.strategy.ask(run.state, asked)
    if not trials and not run.in_flight:
        return None  # the search has ended: a run that goes on with a greater budget asks again
    count = len(trials) if asked == free else free
    given = allowances(run.settings.budget, run.promised, count, run.extra_evaluations)
    rows = tuple(TrialRow(trial, allowance) for trial, allowance in zip(trials, given, strict=False))
    batch = Batch(run.next_batch, asked, rows, run.ended, None if trials else run.seconds)
    run.store.begin_batch(batch)
    run.next_batch += 1
    if not trials:
        run.barren = run.ended
        return None
    _take(run, batch, resumed=False)
    return batch


def _take(run: Run, batch: Batch, resumed: bool) -> None:
    """Make the trials of a batch ready to start."""
    run.in_flight[batch.id] = batch
    made = run.store.screened_by(batch.id) if resumed else ()
    run.accounts[batch.id] = Account(sum(row.allowance for row in batch.trials), made)
    for row in batch.trials:
        trial_run = run.trial_runs[row.trial.id] = _trial_run(run, batch, row, resumed)
        run.tell(TrialAsked(row.trial.id, row.trial.node_id, trial_run.action))


def backup(run: Run, batch_id: int) -> None:
    """End a batch: new nodes into the tree, the strategy told in trial order, one record in the store."""
    batch = run.in_flight.pop(batch_id)
    trial_runs = [run.trial_runs.pop(row.trial.id) for row in batch.trials]
    best = run.tree.best.id
    if not run.settings.asynchronous:
        verify_best(run, trial_runs)
        profile_best(run, trial_runs)
    nodes = [_new_node(run, trial_run) for trial_run in trial_runs]
    charged = charges(run.accounts.pop(batch_id), [trial_run.fresh for trial_run in trial_runs])
    for trial_run in trial_runs:
        for attempt, outcome in trial_run.evaluated:
            assert attempt.source is not None
            run.note_failure(source_hash(attempt.source), attempt.plan, outcome)
    new: list[NewNode] = []
    ends: dict[int, TrialEnd] = {}
    for trial_run, node, charge in zip(trial_runs, nodes, charged, strict=True):
        trial_id = trial_run.row.trial.id
        if node is not None:
            legal = legal_actions(run, node)
            new.append(NewNode(node, trial_run.gate, legal))
            run.keep_actions(node.id, legal.actions)
            run.tell_node(node, legal)
        ends[trial_id] = _end(trial_run, node, charge)
        run.tell_trial(trial_id, ends[trial_id].child_id)
    if run.parts.coder.asks_model:
        questions = run.store.coder_questions()
        for trial_id, end in ends.items():
            run.stagnation = run.stagnation.after(end, questions.get(trial_id, 0))
    run.store.end_batch(batch_id, ends, new, run.seconds, run.ended)
    run.evaluations += sum(charged)
    run.ended += 1
    if run.tree.best.id != best:
        node, gain = run.tree.best, run.tree.speedup(run.tree.best.id)
        _log.info("node %d is the best so far: %s times the root", node.id, gain)
        run.tell(NewBest(node.trial_id, node.id, gain, node.outcome.runtime_ms, node.outcome.runtime_kind))
    report(run)


def finish(run: Run) -> None:
    """Record that the search has ended, and why, with the search statistics: whoever looks at it needs no strategy."""
    assert run.finished is not None
    _take_slow(run)
    run.store.keep_annotations(run.parts.strategy.annotations(run.state))
    facts = {"reason": run.finished, "evaluations": run.evaluations, "best": run.tree.best.id}
    run.store.log("finish", run.seconds, **facts, **({"cut_short": True} if run.cut_short else {}))
    _log.info("the search has ended: %s", run.finished)
    report(run)


def _begin_slow(run: Run) -> None:
    """Let what takes minutes to be compared with be measured beside the search, once a process."""
    if run.slow_baselines is None and missing(run.facts.baselines) and (names := missing(run.store.baselines())):
        run.slow_baselines = SlowBaselines(run.parts.evaluator, run.task, names)


def _take_slow(run: Run) -> None:
    """Wait for what is measured beside the search, as long as its wall time and whoever watches allow, and record it."""
    if run.slow_baselines is None:
        return
    limit, names = run.settings.budget.wall_seconds, ", ".join(run.slow_baselines.names)
    if run.watch.progress is not None:
        run.watch.progress(replace(run.progress, finished=None, waits=names))
    _log.info("the search is over (%s), and waits for %s", run.finished, names)
    stopping = run.watch.stopping.is_set
    found = run.slow_baselines.wait(lambda: stopping() or (limit is not None and run.seconds >= limit))
    if found is not None:
        run.store.keep_slow_baselines(found)


def report(run: Run) -> None:
    """Tell the caller where the run stands."""
    if run.watch.progress is not None:
        run.watch.progress(run.progress)


def nothing_left(run: Run) -> tuple[str, bool]:
    """Why a search ends whose strategy asks for nothing more, and whether that is for want of a usable reply."""
    asked = sum(run.store.coder_questions().values()) if run.parts.coder.asks_model else 0
    if asked and run.stagnation.questions == asked:
        return f"{NOTHING_LEFT}: no question of {asked} led to an evaluation; the last: {run.stagnation.reason}", True
    return NOTHING_LEFT, False


def _trial_run(run: Run, batch: Batch, row: TrialRow, resumed: bool) -> TrialRun:
    parent = run.tree[row.trial.node_id]
    action = run.actions(parent.id)[row.trial.action_index]
    if not resumed:
        return TrialRun(row, batch.id, parent, action, known=len(run.tree))
    asked = run.store.screened_in(row.trial.id)
    screened = {hash_: at for hash_, at in asked.items() if hash_ in run.accounts[batch.id].made}
    recorded = run.store.attempts(row.trial.id)
    return TrialRun(row, batch.id, parent, action, recorded, screened, known=_known(run, batch))


def _known(run: Run, batch: Batch) -> int:
    """How many versions the tree had when a batch was asked for, which others may have followed since."""
    earlier = [each for each in run.store.batches() if each.ended is not None and each.ended < batch.after]
    return 1 + sum(row.end is not None and row.end.kind == "node" for each in earlier for row in each.trials)


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


def _cost(attempts: list[Attempt]) -> Cost:
    total = Cost()
    for attempt in attempts:
        total = coding_cost(total, attempt.cost)
    return total
