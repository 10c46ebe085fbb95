"""stream(): a search as an iterator of its events."""

from __future__ import annotations

import io
import sys
import threading
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mtmc.errors import ConfigError, EvaluatorError, RunError
from mtmc.fakes import FAKE_TASK, FakeCoder, FakeEvaluator, FakePolicy
from mtmc.search import (
    Event,
    Finished,
    NewBest,
    TrialAsked,
    TrialCoded,
    TrialEvaluated,
    TrialVerified,
    display,
    load,
    resume,
    search,
    stream,
)
from mtmc.search.canonical import canonical_json
from mtmc.store import Store


def parts(**settings: Any) -> dict[str, Any]:
    fakes = {"policy": FakePolicy(), "coder": FakeCoder(), "evaluator": FakeEvaluator()}
    return {**fakes, "budget": 24, "dumps": False, **settings}


@pytest.mark.parametrize("settings", [{}, {"batch": 4}, {"batch": 3, "asynchronous": True}])
def test_the_events_tell_of_every_trial_in_its_order_and_end_with_the_result(settings: dict[str, Any]) -> None:
    events = list(stream(FAKE_TASK, **parts(**settings)))
    last = events.pop()
    assert isinstance(last, Finished) and last.reason == last.result.finished
    tree = last.result.tree
    by_trial: dict[int, list[Event]] = {}
    for event in events:
        assert not isinstance(event, Finished)
        by_trial.setdefault(event.trial, []).append(event)
    order = (TrialAsked, TrialCoded, TrialEvaluated, TrialVerified, NewBest)
    for told in by_trial.values():
        assert isinstance(told[0], TrialAsked) and isinstance(told[1], TrialCoded)
        assert [order.index(type(each)) for each in told[-2:]] == sorted(order.index(type(each)) for each in told[-2:])
    for node in tree:
        if node.action is not None:
            asked = by_trial[node.trial_id][0]
            assert isinstance(asked, TrialAsked) and (asked.node_id, asked.action) == (node.parent_id, node.action)
            sources = [each.source for each in by_trial[node.trial_id] if isinstance(each, TrialCoded)]
            assert node.source in sources
    best = [each for each in events if isinstance(each, NewBest)]
    assert best[-1].node_id == tree.best.id and best[-1].speedup == tree.speedup(tree.best.id)
    assert [each.speedup for each in best] == sorted(each.speedup or 0.0 for each in best)
    assert any(isinstance(each, TrialVerified) and each.outcome.ok for each in by_trial[tree.best.trial_id])


def test_a_stream_grows_the_tree_of_a_search() -> None:
    [*_, last] = stream(FAKE_TASK, **parts(batch=4, seed=3))
    assert isinstance(last, Finished)
    assert canonical_json(last.result) == canonical_json(search(FAKE_TASK, **parts(batch=4, seed=3)))


@pytest.mark.parametrize("kind", [TrialAsked, TrialCoded, TrialEvaluated, NewBest])
def test_breaking_off_ends_the_search_and_the_run_goes_on_from_there(kind: type, tmp_path: Path) -> None:
    for event in stream(FAKE_TASK, **parts(out=tmp_path / "a")):
        if isinstance(event, kind):
            break
    assert "search" not in {each.name for each in threading.enumerate()}
    broken = load(tmp_path / "a")
    assert broken.finished is None and broken.evaluations < 12
    fakes = {"policy": FakePolicy(), "coder": FakeCoder(), "evaluator": FakeEvaluator()}
    whole = resume(tmp_path / "a", **fakes, dumps=False)  # type: ignore[arg-type]
    assert canonical_json(whole) == canonical_json(search(FAKE_TASK, **parts()))


def test_a_search_that_is_not_looked_at_waits(tmp_path: Path) -> None:
    events = stream(FAKE_TASK, **parts(out=tmp_path / "a"))
    assert not (tmp_path / "a").exists()  # nothing begins before the first event is asked for
    next(events)
    store = Store.read(tmp_path / "a")
    assert store.evaluations() <= 2
    store.close()
    events.close()  # type: ignore[attr-defined]


def test_what_is_wrong_is_said_at_once_and_what_goes_wrong_where_events_are_taken(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="stratgy"):
        stream(FAKE_TASK, stratgy="mcts")
    with pytest.raises(TypeError, match="progress"):
        stream(FAKE_TASK, progress=print)
    with pytest.raises(ConfigError, match="batch cannot be 0"):
        stream(FAKE_TASK, **parts(batch=0))
    (tmp_path / "best.py").touch()
    with pytest.raises(RunError, match="already"):
        stream(FAKE_TASK, **parts(out=tmp_path))

    class Broken(FakeEvaluator):
        def evaluate(self, requests: Any) -> Any:
            raise EvaluatorError("no GPU is free")

    with pytest.raises(EvaluatorError, match="no GPU is free"):
        next(stream(FAKE_TASK, **parts(evaluator=Broken())))


def test_a_bar_is_shown_on_a_terminal_and_in_a_notebook_unless_it_is_not_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    def shown(stderr: io.StringIO, **settings: Any) -> str:
        monkeypatch.setattr(sys, "stderr", stderr)
        search(FAKE_TASK, **parts(budget=4, **settings))
        return stderr.getvalue()

    monkeypatch.setenv("TERM", "xterm")
    assert "4/4" in shown(Terminal())
    assert shown(Terminal(), progress=False) == "" == shown(io.StringIO())
    told: list[Any] = []
    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))  # type: ignore[misc]
    monkeypatch.setattr(display, "bar", lambda name: nullcontext(told.append))
    shown(io.StringIO())
    assert [each.finished is None for each in told[-2:]] == [True, False]
