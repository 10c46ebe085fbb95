"""The state machine (LangGraph): the steps of `steps` and `trial` in the order that the design draws.

    START -> prepare -> grow -> finish -> END         grow: select, wait for a trial to end, backup, and again
                         |
                         '=> in threads, one a trial: [ code -> evaluate -> (other, repair or refine -> evaluate)* ]

Its state holds ids and counters only, so a checkpoint costs the same at node 10,000 as at node 10. The run's store is
what counts: every step takes from it what is there, `prepare` starts from where it stands, and so a checkpoint is never
needed to go on. It says where the machine stood to whoever looks, and is therefore written at the end of a leg, not
after each step (`DURABILITY`). Trials stay under way from leg to leg: a machine whose steps wait for each other could not
begin a trial as soon as another ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from mtmc.search import steps, trial
from mtmc.search.flight import Flight, ThreadedFlight
from mtmc.search.profiling import profile_best
from mtmc.search.run_state import Run
from mtmc.search.verification import verify_best

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.graph.state import CompiledStateGraph

    Machine = CompiledStateGraph[Any, Any, Any, Any]

Durability = Literal["exit", "async"]

DURABILITY: Durability = "exit"
"""When LangGraph writes a checkpoint: at the end of each leg, or "async" after each step, which costs 2 ms a step."""

LEG_SECONDS = 1.0
LEG_ROUNDS = 200
"""A leg ends after the first batch that takes it past either. So the checkpoint is at most a second or a batch old."""

THREAD = "run"
"""LangGraph's name of this run in the checkpoint tables."""


class RunState(TypedDict, total=False):
    """State of the machine. trials: ids of those in flight. evaluations, nodes: how many so far. best: id of the best
    node. rounds, leg: batches ended, and legs begun by this process. finished: why the search has ended.
    """

    trials: list[int]
    evaluations: int
    nodes: int
    best: int
    rounds: int
    leg: int
    finished: str


class TrialState(TypedDict, total=False):
    """State of one trial's machine: its id."""

    trial: int


class Leg:
    """When the leg that is under way ends."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Start the next leg."""
        self.rounds = 0
        self.began = time.monotonic()

    @property
    def over(self) -> bool:
        """Whether the machine is to pause before the next batch."""
        return self.rounds >= LEG_ROUNDS or time.monotonic() - self.began >= LEG_SECONDS


def trial_graph(run: Callable[[], Run], checkpointer: Literal[False] | None = False) -> Machine:
    """The machine of one trial, of the run that `run` gives in its steps.

    It keeps no checkpoints: the store has every edit and every outcome.
    """
    from langgraph.graph import END, START, StateGraph
    from langgraph.types import Command

    def node(step: Callable[[Run, int], trial.Next]) -> Any:
        def act(state: TrialState) -> Any:
            following = step(run(), state["trial"])
            return Command(goto=END if following == "done" else following)

        return act

    builder = StateGraph(TrialState)
    builder.add_node("code", node(trial.code), destinations=("evaluate", END))
    builder.add_node("evaluate", node(trial.evaluate), destinations=("other", "repair", "refine", END))
    builder.add_node("other", node(trial.other), destinations=("evaluate", "repair", END))
    builder.add_node("repair", node(trial.repair), destinations=("evaluate", END))
    builder.add_node("refine", node(trial.refine), destinations=("evaluate", END))
    builder.add_edge(START, "code")
    return builder.compile(checkpointer=checkpointer)


def run_graph(run: Run, leg: Leg, flight: Flight | None, saver: BaseCheckpointSaver[Any] | None) -> Machine:
    """The machine of a whole run. flight: of its trials."""
    from langgraph.graph import END, START, StateGraph

    def prepare(state: RunState) -> RunState:
        steps.prepare(run)
        return _counters(run)

    def grow_one_leg(state: RunState) -> RunState:
        assert flight is not None
        grow(run, leg, flight)
        return _counters(run)

    def finish(state: RunState) -> RunState:
        steps.finish(run)
        return _counters(run)

    builder = StateGraph(RunState)
    for name, step in (("prepare", prepare), ("grow", grow_one_leg), ("finish", finish)):
        builder.add_node(name, step)
    builder.add_edge(START, "prepare")
    builder.add_edge("prepare", "grow")
    builder.add_conditional_edges("grow", lambda state: "finish" if state["finished"] else END, ["finish", END])
    builder.add_edge("finish", END)
    return builder.compile(checkpointer=saver)


def grow(run: Run, leg: Leg, flight: Flight) -> None:
    """Begin trials and end those that have ended, until the search has ended or is to stop, or the leg is over."""
    while not leg.over and not run.watch.stopping.is_set():
        for batch in steps.select(run):
            flight.start(batch)
        if run.finished is not None:
            return
        for batch_id in flight.wait():
            steps.backup(run, batch_id)
            leg.rounds += 1


def drive(run: Run) -> None:
    """Let the machine go until the search has ended or is to stop, leg by leg, one at least, so that the root is recorded.

    Its checkpoints are in the run's own database. Raises: RunError where that cannot be written.
    """
    flight = ThreadedFlight(run.settings.batch, trial_work(run, trial_graph(lambda: run), context=copy_context()))
    try:
        with run.store.backend.checkpoints() as (saver, prune):
            leg = Leg()
            graph = run_graph(run, leg, flight, saver)
            config: Any = {"configurable": {"thread_id": THREAD}}
            number = 0
            while number == 0 or (run.finished is None and not run.watch.stopping.is_set()):
                number += 1
                leg.begin()
                graph.invoke({"leg": number}, config, durability=DURABILITY)
                prune(THREAD)
    except run.store.backend.errors as error:
        raise run.store.backend.failed("written", error) from error
    finally:
        flight.close()


def trial_work(run: Run, machine: Machine, config: Any = None, context: Context | None = None) -> Callable[[int], None]:
    """What the thread of a trial does, given its id. config: of the machine's calls. context: that these have, so that who
    is told of the machine's steps in it (LangChain's callbacks) is told of a trial's, too."""

    def work(trial_id: int) -> None:
        (context or Context()).copy().run(
            lambda: machine.invoke({"trial": trial_id}, {"run_name": "trial", **(config or {})})
        )
        if run.settings.asynchronous:
            verify_best(run, [run.trial_runs[trial_id]])
            profile_best(run, [run.trial_runs[trial_id]])

    return work


def _counters(run: Run) -> RunState:
    return {
        "trials": sorted(run.trial_runs),
        "evaluations": run.evaluations,
        "nodes": len(run.tree),
        "best": run.tree.best.id,
        "rounds": run.ended,
        "finished": run.finished or "",
    }
