"""build_graph(): the search as LangGraph's users expect a graph."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command

from mtmc.errors import ConfigError, ModelDown, RunError
from mtmc.fakes import FakeCoder, FakeEvaluator, FakePolicy
from mtmc.protocols import Edit, EditRequest
from mtmc.search import Finished, NewBest, TrialAsked, build_graph, load, resume, search
from mtmc.search.canonical import canonical_json
from mtmc.store import Store

CONFIG: Any = {"configurable": {"thread_id": "1"}}
BUDGET = 16


def parts(**settings: Any) -> dict[str, Any]:
    return {"policy": FakePolicy(), "coder": FakeCoder(), "evaluator": FakeEvaluator(), "budget": BUDGET, **settings}


def graph(**settings: Any) -> Any:
    return build_graph(**parts(**{"dumps": False, **settings}))


def given(folder: Path) -> Any:
    return {"task": "softmax", "out": str(folder)}


def plain_search(**settings: Any) -> str:
    return canonical_json(search("softmax", **parts(dumps=False, **settings)))


@pytest.mark.parametrize("settings", [{}, {"batch": 4}])
def test_a_graph_grows_the_tree_of_a_search_and_hands_back_its_best(settings: dict[str, Any], tmp_path: Path) -> None:
    found = graph(**settings).invoke(given(tmp_path / "a"))
    run = load(tmp_path / "a")
    assert canonical_json(run) == plain_search(**settings)
    assert found == {
        "evaluations": run.evaluations,
        "nodes": len(run.tree),
        "best": run.best.node_id,
        "source": (tmp_path / "a" / "best.py").read_text(),
        "speedup": run.best.speedup,
        "runtime_ms": run.best.runtime_ms,
        "runtime_kind": run.best.runtime_kind,
        "finished": run.finished,
    }


def test_it_streams_in_an_event_loop_too(tmp_path: Path) -> None:
    async def taken() -> list[Any]:
        return [each async for each in graph().astream(given(tmp_path / "a"), stream_mode="custom")]

    assert isinstance(asyncio.run(taken())[-1], Finished)
    assert canonical_json(load(tmp_path / "a")) == plain_search()


def test_it_is_a_part_of_a_graph_of_ones_own(tmp_path: Path) -> None:
    class Mine(TypedDict, total=False):
        task: str
        out: str
        speedup: float
        told: str

    builder = StateGraph(Mine)
    builder.add_node("choose", lambda state: given(tmp_path / state["told"]))
    builder.add_node("search", graph(interrupts=["accept"]))
    builder.add_node("tell", lambda state: {"told": f"{state['speedup']:.2f}"})
    builder.add_edge(START, "choose")
    builder.add_edge("choose", "search")
    builder.add_edge("search", "tell")
    builder.add_edge("tell", END)
    mine = builder.compile(checkpointer=InMemorySaver())
    events: list[Any] = []
    found: Any = {"told": "a"}
    while not mine.get_state(CONFIG).values or mine.get_state(CONFIG).next:
        events += [each for _, each in mine.stream(found, CONFIG, stream_mode="custom", subgraphs=True)]
        found = Command(resume=True)
    assert mine.get_state(CONFIG).values["told"] == f"{load(tmp_path / 'a').best.speedup:.2f}"
    assert {TrialAsked, NewBest, Finished} <= {type(each) for each in events}
    assert canonical_json(load(tmp_path / "a")) == plain_search()
    drawn = mine.get_graph(xray=True)
    assert {"search:select", "search:trials:code", "search:trials:repair"} <= set(drawn.nodes)


def test_it_is_drawn_with_the_machine_of_a_trial_inside() -> None:
    outer = {"__start__", "prepare", "select", "trials", "backup", "finish", "__end__"}
    assert set(graph().get_graph().nodes) == outer
    text = graph().get_graph(xray=True).draw_mermaid()
    assert "subgraph trials" in text and "evaluate" in text
    edges = {(edge.source, edge.target) for edge in graph().get_graph().edges}
    assert {("prepare", "select"), ("select", "trials"), ("trials", "backup"), ("backup", "select")} <= edges


@pytest.mark.parametrize("settings", [{"batch": 4}, {"batch": 3, "asynchronous": True}])
def test_it_streams_events_and_its_history_has_every_step(settings: dict[str, Any], tmp_path: Path) -> None:
    made = graph(checkpointer=InMemorySaver(), **settings)
    events = list(made.stream(given(tmp_path / "a"), CONFIG, stream_mode="custom"))
    assert isinstance(events[0], TrialAsked) and isinstance(events[-1], Finished)
    assert events[-1].result.best.node_id == load(tmp_path / "a").best.node_id
    history = list(made.get_state_history(CONFIG))
    counts = [each.values["evaluations"] for each in reversed(history) if "evaluations" in each.values]
    assert len(set(counts)) > 3 and counts == sorted(counts) and counts[-1] == BUDGET
    assert all("mtmc" not in name for name in history[0].metadata)


def answered(made: Any, folder: Path, answer: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
    """Every question of a graph, each answered."""
    asked: list[dict[str, Any]] = []
    step: Any = given(folder)
    while True:
        found = made.invoke(step, CONFIG)
        if "__interrupt__" not in found:
            return asked
        [question] = found["__interrupt__"]
        Store.open(folder).close()  # nobody has the run open between the calls
        asked.append(question.value)
        step = Command(resume=answer(question.value))


def test_it_asks_before_money_is_spent_and_goes_on_as_if_it_had_not(tmp_path: Path) -> None:
    made = graph(batch=4, interrupts=["spend"], checkpointer=InMemorySaver())
    asked = answered(made, tmp_path / "a", lambda question: True)
    assert asked[0]["trials"] == [] and asked[0]["evaluations"] == 0  # the root's
    trials = [trial for question in asked for trial in question["trials"]]
    assert [each["trial"] for each in trials] == sorted({each["trial"] for each in trials})
    assert all(each["action"] and each["kind"] for each in trials)
    assert canonical_json(load(tmp_path / "a")) == plain_search(batch=4)


def test_what_is_declined_is_not_spent_and_the_run_can_be_resumed(tmp_path: Path) -> None:
    made = graph(batch=4, interrupts=["spend"], checkpointer=InMemorySaver())
    answered(made, tmp_path / "a", lambda question: question["evaluations"] < 5)
    state = made.get_state(CONFIG).values
    assert state["finished"] == "what it would spend was declined" and load(tmp_path / "a").evaluations < BUDGET
    fakes = {name: each for name, each in parts().items() if name != "budget"}
    assert canonical_json(resume(tmp_path / "a", **fakes, dumps=False)) == plain_search(batch=4)


def test_a_version_that_is_declined_is_never_the_best(tmp_path: Path) -> None:
    made = graph(batch=4, interrupts=["accept"], checkpointer=InMemorySaver())
    refused: list[str] = []

    def answer(question: dict[str, Any]) -> bool:
        refused.append(question["source"])
        return len(refused) > 2

    asked = answered(made, tmp_path / "a", answer)
    assert len({each["source"] for each in asked}) == len(asked) > 2  # none is asked for twice
    run = load(tmp_path / "a")
    declined = [node for node in run.tree if node.source in refused[:2]]
    assert [node.outcome.status for node in declined] == ["rejected", "rejected"]
    assert {node.outcome.diagnosis.kind for node in declined if node.outcome.diagnosis} == {"Declined"}
    assert run.best.source in refused[2:]


def test_no_checkpoint_is_needed_to_go_on(tmp_path: Path) -> None:
    made = graph(batch=2)
    for _, kind in zip(range(9), made.stream(given(tmp_path / "a"), stream_mode="updates"), strict=False):
        assert kind
    assert load(tmp_path / "a").finished is None
    Store.open(tmp_path / "a").close()  # breaking off has let go of the run
    graph(batch=2).invoke(given(tmp_path / "a"))
    assert canonical_json(load(tmp_path / "a")) == plain_search(batch=2)


def test_a_checkpoint_of_a_process_that_is_gone_is_gone_on_with(tmp_path: Path) -> None:
    saver = InMemorySaver()
    for step in graph(checkpointer=saver).stream(given(tmp_path / "a"), CONFIG, stream_mode="updates"):
        if "trials" in step:
            break  # the trial has ended, and is not backed up
    graph(checkpointer=saver).invoke(None, CONFIG)
    assert canonical_json(load(tmp_path / "a")) == plain_search()


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="interrupts cannot have 'pay': use some of spend, accept"):
        graph(interrupts=["pay"])
    with pytest.raises(ConfigError, match="asynchronous"):
        graph(interrupts=["spend"], asynchronous=True)
    with pytest.raises(ConfigError, match="out is missing"):
        graph().invoke({"task": "softmax"})
    graph(budget=2).invoke(given(tmp_path / "a"))
    with pytest.raises(RunError, match="has a run of another task"):
        graph().invoke({"task": "mlp", "out": str(tmp_path / "a")})


def test_a_model_that_is_down_ends_it_and_it_goes_on_later(tmp_path: Path) -> None:
    class Down(FakeCoder):
        def edit(self, request: EditRequest) -> Edit:
            raise ModelDown("the model does not answer")

    found = graph(coder=Down()).invoke(given(tmp_path / "a"))
    assert "does not answer" in found["finished"] and found["nodes"] == 1 and load(tmp_path / "a").cut_short
