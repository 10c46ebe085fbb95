"""build_graph(): a search as a LangGraph graph, to be run, streamed, interrupted and drawn, alone or in another graph."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Literal, get_args

from mtmc.chat import ModelSettings
from mtmc.errors import ConfigError
from mtmc.protocols import Coder, Evaluator, EvaluatorSettings, Policy, Strategy
from mtmc.search.agent_settings import AgentSettings
from mtmc.search.budget import Budget
from mtmc.search.graph_state import SearchInput, SearchOutput
from mtmc.search.session import Recipe

if TYPE_CHECKING:
    from langgraph.graph.state import CompiledStateGraph

Question = Literal["spend", "accept"]
QUESTIONS: tuple[Question, ...] = get_args(Question)


def build_graph(
    *,
    strategy: str | Strategy = "mcts",
    policy: str | Policy = "heuristic",
    coder: str | Coder = "rewriter",
    evaluator: str | Evaluator | EvaluatorSettings = "lab",
    budget: int | Budget = 32,
    seed: int = 0,
    batch: int = 1,
    repairs: int = 2,
    model: str | ModelSettings = "",
    asynchronous: bool = False,
    agents: AgentSettings | None = None,
    dumps: bool = True,
    interrupts: Collection[Question] = (),
    checkpointer: Any = None,
    store: str = "",
) -> CompiledStateGraph[Any, Any, SearchInput, SearchOutput]:
    """A compiled graph that searches the task that it is given: `graph.invoke({"task": "softmax", "out": "runs/a"})`.

    strategy to dumps: as `mtmc.search.search` takes them.
    interrupts: "spend" asks before the root is evaluated and before each batch begins, "accept" before a version becomes
        the best. Each is LangGraph's `interrupt` with plain data; go on with `Command(resume=True)`. False declines: no
        more is spent and the run stays as it is, or the version is rejected.
    checkpointer: as `StateGraph.compile` takes it; a checkpoint is written after each step. None: that of the graph that
        this one is part of, or none.
    store: keeps checkpoints without a checkpointer of one's own: the path of a SQLite file, or
        postgresql://USER@HOST/DATABASE, which then keeps the records of the runs too, as `mtmc.search.search` does. A call
        of another process, with the same store and `thread_id`, goes on from the last step. Empty: neither.

    `stream_mode="custom"` gives the events of `mtmc.search.stream`. Everything is recorded in the run's folder: a graph
    without a checkpoint, or another process, goes on from there by the same input. A run is open as long as one call of
    the graph lasts, so it may also be resumed, loaded and shown in between. A version that was interrupted for is verified
    once more when it goes on.

    Raises: ConfigError for a setting that cannot be; what `mtmc.search.search` raises comes when the graph runs.
    """
    from mtmc.search.search_graph import compiled

    for each in interrupts:
        if each not in QUESTIONS:
            raise ConfigError(f"interrupts cannot have {each!r}: use some of {', '.join(QUESTIONS)}")
    if interrupts and asynchronous:
        raise ConfigError("interrupts need trials in batches: leave asynchronous or interrupts out")
    if store and checkpointer is not None:
        raise ConfigError("store and checkpointer both keep checkpoints: leave one of them out")
    from mtmc.search.checkpoints import checkpoints_in, is_server

    record = store if is_server(store) else ""
    if store:
        checkpointer = checkpoints_in(store)
    given: dict[Any, Any] = {"strategy": strategy, "policy": policy, "coder": coder, "evaluator": evaluator}
    recipe = Recipe(
        given, budget, seed, batch, repairs, model, asynchronous, dumps, frozenset(interrupts), agents, record
    )
    return compiled(recipe, checkpointer)
