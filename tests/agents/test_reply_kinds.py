"""The table of reply kinds: what each recorded call counts as, and the whole benchmark on runs of fakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import reply_kinds
from benchmarks.reply_kinds import Reply, reply_of, run_facts, tally
from mtmc.chat import ChatReply, ChatRequest, Message, ModelCall
from mtmc.errors import RunError
from mtmc.fakes import FAKE_TASK, FakeCoder, FakeEvaluator, FakePolicy
from mtmc.search import search
from mtmc.store import Store

NUMBERS = iter(range(1000))


def call(verdict: str = "", purpose: str = "edit", error: str = "", spent: bool = False) -> ModelCall:
    """error: then there is no reply."""
    key = str(next(NUMBERS))
    request = ChatRequest((Message("user", key),), purpose)
    reply = None if error else ChatReply("text", 100, 10, None, 2.0)
    return ModelCall(-1, 0, 0, key, "openai/small", request, reply, error, spent, verdict)


@pytest.mark.parametrize(
    ("recorded", "counts_as"),
    [
        (call("usable"), Reply("edit", "usable")),
        (call("repaired", "repair"), Reply("repair", "repaired")),
        (call("repaired: 2 fences"), Reply("edit", "repaired", "N fences")),
        (call("unusable: no code"), Reply("edit", "unusable", "no code")),
        (call("unusable: line 12: no 'x = 3'"), Reply("edit", "unusable", "line N: no '...'")),
        (call("unusable: two\n  files"), Reply("edit", "unusable", "two files")),
        (call(""), Reply("edit", "not judged")),
        (
            call("", error="the server answered 500, 5 times"),
            Reply("edit", "no reply", "the server answered N, N times"),
        ),
        (call("", error="budget.calls", spent=True), Reply("edit", "not asked", "budget.calls")),
    ],
)
def test_what_a_call_counts_as(recorded: ModelCall, counts_as: Reply) -> None:
    assert reply_of(recorded) == counts_as


def test_a_long_reason_is_short() -> None:
    why = reply_of(call("unusable: " + "long " * 100)).why
    assert len(why) <= 110 and why.endswith("...")


def test_counts_are_ordered_by_kind_then_number() -> None:
    verdicts = ["unusable: b", "unusable: a 1", "usable", "unusable: a 2", "repaired"]
    found = tally([call(verdict) for verdict in verdicts])
    assert list(found.items()) == [
        (Reply("edit", "usable"), 1),
        (Reply("edit", "repaired"), 1),
        (Reply("edit", "unusable", "a N"), 2),
        (Reply("edit", "unusable", "b"), 1),
    ]


def recorded_run(folder: Path, verdicts: list[str]) -> Path:
    parts = {"policy": FakePolicy(), "coder": FakeCoder(usd=0), "evaluator": FakeEvaluator()}
    search(FAKE_TASK, budget=8, out=folder, dumps=False, **parts)  # type: ignore[arg-type]
    store = Store.open(folder)
    for verdict in verdicts:
        store.add_call(call(verdict))
    store.close()
    return folder


def test_the_whole_table_of_two_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = recorded_run(tmp_path / "asked", ["usable", "unusable: no code", "unusable: no code", "repaired"])
    alone = recorded_run(tmp_path / "alone", [])
    out = tmp_path / "table"
    assert reply_kinds.main([str(asked), str(alone), "--about", "A fake.", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "| unusable | 2 (50%) |" in shown and "| usable | 1 (25%) |" in shown
    assert "| edit | unusable | no code | 2 |" in shown
    assert "Model: openai/small. A fake." in shown
    assert out.with_suffix(".md").read_text(encoding="utf-8").strip() in shown
    data = json.loads(out.with_suffix(".json").read_text(encoding="utf-8"))
    first, second = data["runs"]
    assert first["kinds"][0] == {"purpose": "edit", "kind": "usable", "why": "", "calls": 1}
    assert (first["calls"], first["tokens_in"], first["tokens_out"], first["model_seconds"]) == (4, 400, 40, 8.0)
    assert second["kinds"] == [] and second["evaluations"] == 8
    assert first["speedup"] == second["speedup"] == run_facts(alone).speedup
    assert sum(first["statuses"].values()) == 7  # all evaluations but the root's
    assert {"date", "python", "cores"} <= set(data["machine"]) and data["command"]


def test_a_reply_that_nobody_judged_fails_the_benchmark(tmp_path: Path) -> None:
    assert reply_kinds.main([str(recorded_run(tmp_path / "run", ["usable", ""]))]) == 1


def test_a_folder_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="nothing"):
        run_facts(tmp_path / "nothing")
