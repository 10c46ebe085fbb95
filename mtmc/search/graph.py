"""The state machine (LangGraph): the steps of `steps` and `trial` in the order that the design draws.

    START -> prepare -> select ==Send, one per trial==> [ code -> evaluate -> (repair -> evaluate)* ] -> backup
                         |  ^-----------------------------------------------------------------------------'
                         '-> finish -> END

Its state holds ids and counters only, so a checkpoint costs the same at node 10,000 as at node 10. The run's store is
what counts: every step takes from it what is there, `prepare` starts from where it stands, and so a checkpoint is never
needed to go on. It says where the machine stood to whoever looks, and is therefore written at the end of a leg, not
after each step (`DURABILITY`). A leg also keeps the number of steps of one call under LangGraph's limit.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from mtmc.search import steps, trial
from mtmc.search.run_state import Run
from mtmc.store import STORE_NAME, WAL_PAGES

if TYPE_CHECKING:
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.graph.state import CompiledStateGraph

Durability = Literal["exit", "async"]

DURABILITY: Durability = "exit"
"""When LangGraph writes a checkpoint: at the end of each leg, or "async" after each step, which costs 2 ms a step."""

LEG_SECONDS = 1.0
LEG_ROUNDS = 200
"""A leg ends after the first batch that takes it past either. So the checkpoint is at most a second or a batch old."""

STEPS_PER_ROUND = 3
"""select, the trials, backup."""

THREAD = "run"
"""LangGraph's name of this run in the checkpoint tables."""


class RunState(TypedDict, total=False):
    """State of the machine. trials: ids of the batch in flight. evaluations, nodes: how many so far. best: id of the
    best node. rounds, leg: batches ended, and legs begun by this process. finished: why the search has ended.
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


def trial_graph(run: Run) -> CompiledStateGraph[Any, Any, Any, Any]:
    """The machine of one trial. It keeps no checkpoints: the store has every edit and every outcome."""
    from langgraph.graph import END, START, StateGraph
    from langgraph.types import Command

    def node(step: Callable[[Run, int], trial.Next]) -> Any:
        def act(state: TrialState) -> Any:
            following = step(run, state["trial"])
            return Command(goto=END if following == "done" else following)

        return act

    builder = StateGraph(TrialState)
    builder.add_node("code", node(trial.code), destinations=("evaluate", END))
    builder.add_node("evaluate", node(trial.evaluate), destinations=("repair", END))
    builder.add_node("repair", node(trial.repair), destinations=("evaluate", END))
    builder.add_edge(START, "code")
    return builder.compile(checkpointer=False)


def run_graph(run: Run, leg: Leg, saver: SqliteSaver | None) -> CompiledStateGraph[Any, Any, Any, Any]:
    """The machine of a whole run."""
    from langgraph.graph import END, START, StateGraph
    from langgraph.types import Send

    def prepare(state: RunState) -> RunState:
        steps.prepare(run)
        return _counters(run)

    def select(state: RunState) -> RunState:
        return {"trials": steps.select(run), "finished": run.finished or ""}

    def backup(state: RunState) -> RunState:
        steps.backup(run)
        leg.rounds += 1
        return {**_counters(run), "trials": []}

    def finish(state: RunState) -> RunState:
        steps.finish(run)
        return _counters(run)

    def after_select(state: RunState) -> str | list[Any]:
        return [Send("trial", {"trial": trial_id}) for trial_id in state["trials"]] or "finish"

    builder = StateGraph(RunState)
    for name, step in (("prepare", prepare), ("select", select), ("backup", backup), ("finish", finish)):
        builder.add_node(name, step)
    builder.add_node("trial", trial_graph(run))
    builder.add_edge(START, "prepare")
    builder.add_edge("prepare", "select")
    builder.add_conditional_edges("select", after_select, ["trial", "finish"])
    builder.add_edge("trial", "backup")
    builder.add_conditional_edges("backup", lambda state: END if leg.over else "select", ["select", END])
    builder.add_edge("finish", END)
    return builder.compile(checkpointer=saver)


def drive(run: Run) -> None:
    """Let the machine go until the search has ended, leg by leg, with checkpoints in the run's own SQLite file."""
    from langgraph.checkpoint.sqlite import SqliteSaver

    connection = sqlite3.connect(run.store.folder / STORE_NAME, timeout=30.0, check_same_thread=False)
    try:
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
        leg = Leg()
        graph = run_graph(run, leg, SqliteSaver(connection))
        config: Any = {
            "configurable": {"thread_id": THREAD},
            "recursion_limit": STEPS_PER_ROUND * (LEG_ROUNDS + 2),
            "max_concurrency": run.settings.batch,
        }
        number = 0
        while run.finished is None:
            number += 1
            leg.begin()
            graph.invoke({"leg": number}, config, durability=DURABILITY)
            prune(connection)
    finally:
        connection.close()


def prune(connection: sqlite3.Connection) -> None:
    """Keep the latest checkpoint only. SQLite uses the space of the others again, so the file stays as it is."""
    with connection:
        latest = "SELECT max(checkpoint_id) FROM checkpoints WHERE thread_id = ?"
        for table in ("checkpoints", "writes"):
            connection.execute(
                f"DELETE FROM {table} WHERE thread_id = ? AND checkpoint_id < ({latest})", (THREAD, THREAD)
            )


def _counters(run: Run) -> RunState:
    return {
        "evaluations": run.evaluations,
        "nodes": len(run.tree),
        "best": run.tree.best.id,
        "rounds": run.batch_id,
    }
