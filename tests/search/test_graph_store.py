"""build_graph(store=): checkpoints in a file or on a server, by which another process goes on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command

from mtmc.errors import ConfigError, RunError
from mtmc.search import load
from mtmc.search.canonical import canonical_json
from mtmc.store import POINTER_NAME, STORE_NAME
from tests.postgres_server import Server
from tests.search.test_build_graph import CONFIG, given, graph, plain_search

BEGIN = """
import os, sys
from tests.search.test_build_graph import CONFIG, given, graph
from pathlib import Path
graph(store=sys.argv[1], interrupts=["spend"], batch=4).invoke(given(Path(sys.argv[2])), CONFIG)
os._exit(9)  # it dies with the question open
"""


def begun_elsewhere(store: str, out: Path) -> None:
    """A process begins, is asked, and dies."""
    done = subprocess.run([sys.executable, "-c", BEGIN, store, str(out)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 9, done.stderr


def answered(made: Any) -> Any:
    """The end of a run that asks, each time answered with yes."""
    found = made.invoke(Command(resume=True), CONFIG)
    while "__interrupt__" in found:
        found = made.invoke(Command(resume=True), CONFIG)
    return found


def test_another_process_answers_what_one_that_died_was_asked(tmp_path: Path) -> None:
    store = str(tmp_path / "deep" / "graphs.sqlite")
    begun_elsewhere(store, tmp_path / "a")
    made = graph(store=store, interrupts=["spend"], batch=4)
    assert made.get_state(CONFIG).next == ("prepare",), "it is asked before the root is evaluated"
    assert answered(made)["finished"] == load(tmp_path / "a").finished
    assert canonical_json(load(tmp_path / "a")) == plain_search(batch=4)
    assert (tmp_path / "a" / STORE_NAME).exists(), "the record is in the run's folder"
    assert len(list(graph(store=store).get_state_history(CONFIG))) > 10


def test_on_a_server_the_record_is_there_too(postgres: Server, tmp_path: Path) -> None:
    begun_elsewhere(postgres.url, tmp_path / "a")
    answered(graph(store=postgres.url, interrupts=["spend"], batch=4))
    assert canonical_json(load(tmp_path / "a")) == plain_search(batch=4)
    assert (tmp_path / "a" / POINTER_NAME).exists() and not (tmp_path / "a" / STORE_NAME).exists()


def test_graphs_of_one_store_are_told_apart_by_their_threads(tmp_path: Path) -> None:
    store = str(tmp_path / "graphs.sqlite")
    for thread, budget in (("one", 3), ("two", 5)):
        graph(store=store, budget=budget).invoke(given(tmp_path / thread), {"configurable": {"thread_id": thread}})
    values = [graph(store=store).get_state({"configurable": {"thread_id": each}}).values for each in ("one", "two")]
    assert [each["evaluations"] for each in values] == [3, 5]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_it_is_called_in_an_event_loop_too(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    store = str(tmp_path / "g.sqlite") if kind == "sqlite" else request.getfixturevalue("postgres").url

    async def called() -> int:
        made = graph(store=store)
        await made.ainvoke(given(tmp_path / "a"), CONFIG)
        return len([state async for state in made.aget_state_history(CONFIG)])

    assert asyncio.run(called()) > 10
    assert canonical_json(load(tmp_path / "a")) == plain_search()


def test_as_a_part_of_another_graph_the_whole_has_the_say(tmp_path: Path) -> None:
    class State(TypedDict, total=False):
        task: str
        out: str
        finished: str

    store = tmp_path / "graphs.sqlite"
    builder: Any = StateGraph(State)
    builder.add_node("search", graph(store=str(store), budget=3))
    builder.add_edge(START, "search")
    builder.add_edge("search", END)
    whole = builder.compile(checkpointer=InMemorySaver())
    assert whole.invoke(given(tmp_path / "a"), CONFIG)["finished"]
    assert not list(graph(store=str(store)).get_state_history(CONFIG)), "the checkpoints are the whole's"


def test_a_store_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database, and long enough not to look like an empty one " * 20)
    for store in (str(tmp_path), str(tmp_path / "text"), str(tmp_path / "text" / "below")):
        with pytest.raises(ConfigError, match=r"store=.* cannot keep checkpoints .*: give the path of a SQLite file"):
            graph(store=store)
    with pytest.raises(ConfigError, match="store and checkpointer both keep checkpoints"):
        graph(store=str(tmp_path / "a.sqlite"), checkpointer=InMemorySaver())
    with pytest.raises(ConfigError, match="store cannot be 'mysql://x/y'"):
        graph(store="mysql://x/y")
    with pytest.raises(ConfigError, match="store cannot have a password"):
        graph(store="postgresql://me:secret@nowhere/db")


def test_a_server_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="there is no connection to postgresql"):
        graph(store=f"postgresql://me@/db?host={tmp_path}")
