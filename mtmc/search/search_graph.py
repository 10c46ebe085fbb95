"""The graph that `build_graph` hands out: a search in steps, each from what the run's store has.

    START -> prepare -> select -> trials -> backup -> select ... -> finish -> END
                                    '=> each trial: code -> evaluate -> (other, repair or refine -> evaluate)*

A step finds the run in the session of the call that it is part of, which opens it where that is not done. So a checkpoint
holds ids and counters only, and another process goes on from the store. Before a step asks a question (`interrupt`) all
that it stands on is recorded; it then starts again, from the store, with the answer.
"""

from __future__ import annotations

import contextvars
import functools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

from langgraph.config import get_config, get_stream_writer
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, interrupt

from mtmc.errors import ModelDown
from mtmc.outcome import Outcome
from mtmc.search import steps
from mtmc.search.events import Event, Finished
from mtmc.search.folder import handed_out
from mtmc.search.graph import trial_graph, trial_work
from mtmc.search.graph_state import SearchInput, SearchOutput, SearchState
from mtmc.search.result import write_outputs
from mtmc.search.run import cut_short, result_now
from mtmc.search.run_state import Run, TrialRun, Watch
from mtmc.search.session import Recipe, Session
from mtmc.store import Batch

SESSION = "__mtmc_session"
"""Where a call's configuration has its session; names with underscores are in no checkpoint."""

STEPS = 10**9
"""LangGraph's limit of steps, for a call: the budget is what ends a search."""

DECLINED = "what it would spend was declined"


class SearchGraph(CompiledStateGraph[Any, Any, Any, Any]):
    """A graph each of whose calls has a session, which ends with it, whether it was broken off, interrupted or done."""

    def stream(self, input: Any, config: Any = None, **options: Any) -> Iterator[Any]:
        """See `Pregel.stream`."""
        session = _begun(self.builder)
        try:
            yield from super().stream(input, _with(config, session), **options)
        finally:
            session.close()

    async def astream(self, input: Any, config: Any = None, **options: Any) -> AsyncIterator[Any]:
        """See `Pregel.astream`."""
        session = _begun(self.builder)
        try:
            async for item in super().astream(input, _with(config, session), **options):
                yield item
        finally:
            session.close()


def _begun(builder: Any) -> Session:
    return Session(builder.recipe)


class _Again(Exception):
    """A version was declined, which is recorded, and another question is due: the step starts again, for it alone."""


def compiled(recipe: Recipe, checkpointer: Any) -> CompiledStateGraph[Any, Any, SearchInput, SearchOutput]:
    """See `mtmc.search.build_graph`."""
    builder: Any = StateGraph(SearchState, input_schema=SearchInput, output_schema=SearchOutput)
    builder.recipe = recipe
    trial = trial_graph(lambda: _session().current, checkpointer=None)  # which lets LangGraph draw it

    def trials(state: SearchState) -> Any:
        return fly(state, trial)

    def end_batches(state: SearchState) -> Any:
        return backup(state, trial)

    for name, step, following in (
        ("prepare", prepare, ("select",)),
        ("select", select, ("trials", "finish")),
        ("trials", trials, ("backup",)),
        ("backup", end_batches, ("select",)),
        ("finish", finish, ()),
    ):
        builder.add_node(name, step, destinations=(*following, END))
    builder.add_edge(START, "prepare")
    graph = builder.compile(checkpointer=checkpointer)
    graph.__class__ = SearchGraph
    return graph


def _guarded(step: Callable[..., Command[str]]) -> Callable[..., Command[str]]:
    """A step that ends a search whose model does not answer, as `mtmc.search.search` does; it can be resumed."""

    @functools.wraps(step)
    def guarded(state: SearchState, *arguments: Any) -> Command[str]:
        try:
            return step(state, *arguments)
        except ModelDown as down:
            session, run = _here(state)
            session.land()
            if not run.store.has_root():
                raise
            cut_short(run, down)
            return _over(run, session.recipe)

    return guarded


@_guarded
def prepare(state: SearchState) -> Command[str]:
    """Open the run, evaluate its root."""
    session, run = _here(state)
    if len(run.tree) == 0 and "spend" in session.recipe.interrupts and not interrupt(_spending(run, ())):
        return Command(goto=END, update={"finished": DECLINED})
    steps.prepare(run)
    return Command(goto="select", update=_counters(run))


@_guarded
def select(state: SearchState) -> Command[str]:
    """Choose the next trials, which are recorded; none begins yet."""
    session, run = _here(state)
    chosen = session.choose(run)
    if run.finished is not None:
        return Command(goto="finish", update=_counters(run))
    if chosen and "spend" in session.recipe.interrupts and not interrupt(_spending(run, chosen)):
        return Command(goto=END, update={**_counters(run), "finished": DECLINED})
    return Command(goto="trials", update=_counters(run))


@_guarded
def fly(state: SearchState, trial: Any) -> Command[str]:
    """Begin the chosen trials and wait until a batch has ended. trial: the machine of one."""
    session, run = _here(state)
    ended = session.fly(run, trial_work(run, trial, {"configurable": {SESSION: session}}))
    return Command(goto="backup", update={**_counters(run), "ended": ended})


@_guarded
def backup(state: SearchState, trial: Any) -> Command[str]:
    """End the batches whose trials have ended. Where the run was opened since, these take again from its store what they
    found. trial: the machine of one."""
    session, run = _here(state)
    ended = [batch_id for batch_id in state["ended"] if batch_id in run.in_flight]
    if not run.in_flight:
        ended = session.fly(run, trial_work(run, trial, {"configurable": {SESSION: session}}))
    try:
        for batch_id in ended:
            steps.backup(run, batch_id)
    except _Again:
        session.close()
        return Command(goto="backup")
    return Command(goto="select", update={**_counters(run), "ended": []})


@_guarded
def finish(state: SearchState) -> Command[str]:
    """Record the end, write what a run's folder holds, hand back the best version."""
    session, run = _here(state)
    if run.finished is None:
        session.choose(run)
    if run.finished is None:  # opened since, with a greater budget
        return Command(goto="select")
    steps.finish(run)
    return _over(run, session.recipe)


def _over(run: Run, recipe: Recipe) -> Command[str]:
    result = result_now(run)
    if recipe.dumps:
        write_outputs(result, run.store.folder)
    run.tell(Finished(run.finished or "", result))
    return Command(goto=END, update=_counters(run))


def _with(config: Any, session: Session) -> Any:
    given = dict(config or {})
    return {**given, "recursion_limit": STEPS, "configurable": {**given.get("configurable", {}), SESSION: session}}


def _session() -> Session:
    found: Session = get_config()["configurable"][SESSION]
    return found


def _here(state: SearchState) -> tuple[Session, Run]:
    """The session of this call and its run, which tells this call's stream what happens."""
    session = _session()
    run = session.run(state)
    accept = _Accept(run) if "accept" in session.recipe.interrupts else None
    run.watch = Watch(session.keep_best, _writer(), accept=accept)
    return session, run


def _writer() -> Callable[[Event], None]:
    """Writes to this step's stream, from any thread: LangGraph's own looks for its place in the thread's context."""
    write, context = get_stream_writer(), contextvars.copy_context()
    return lambda event: context.copy().run(write, event)


class _Accept:
    """Asks whether a version may become the best: once in a step, so that an answer is never taken for another's."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._asked = False

    def __call__(self, trial_run: TrialRun, outcome: Outcome) -> bool:
        if self._asked:
            raise _Again
        self._asked = True
        root_ms, source = self._run.tree.root.outcome.runtime_ms, trial_run.attempts[trial_run.attempt].source
        gain = root_ms / outcome.runtime_ms if root_ms and outcome.runtime_ms else None
        facts = {"speedup": gain, "runtime_ms": outcome.runtime_ms, "runtime_kind": outcome.runtime_kind}
        return bool(interrupt({"what": "accept", **_trial(trial_run), **facts, "source": source}))


def _spending(run: Run, chosen: Sequence[Batch]) -> dict[str, Any]:
    """What is asked before money is spent: plain data."""
    trials = [_trial(run.trial_runs[row.trial.id]) for batch in chosen for row in batch.trials]
    spent = {"evaluations": run.evaluations, "of": run.settings.budget.evaluations, "usd": run.models.spent.usd}
    return {"what": "spend", **spent, "trials": trials}


def _trial(trial_run: TrialRun) -> dict[str, Any]:
    return {
        "trial": trial_run.row.trial.id,
        "node_id": trial_run.parent.id,
        "kind": trial_run.action.kind,
        "action": trial_run.action.sentence,
    }


def _counters(run: Run) -> dict[str, Any]:
    best = run.tree.best
    return {
        "trials": sorted(run.trial_runs),
        "rounds": run.ended,
        "evaluations": run.evaluations,
        "nodes": len(run.tree),
        "best": best.id,
        "source": handed_out(best, run.store.guards(), run.task.tolerance),
        "speedup": run.tree.speedup(best.id),
        "runtime_ms": best.outcome.runtime_ms,
        "runtime_kind": best.outcome.runtime_kind,
        "finished": run.finished or "",
    }
