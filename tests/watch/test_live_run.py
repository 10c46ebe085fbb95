"""LiveRun and LiveFolder: what is new of runs as they grow."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mtmc.errors import RunError
from mtmc.export.page import page_data
from mtmc.fakes import FakeEvaluator
from mtmc.outcome import Outcome
from mtmc.protocols import EvaluationRequest
from mtmc.search import load
from mtmc.search.course import course
from mtmc.store import LOCK_NAME, FolderLock, Store, copy_run, holder_since
from mtmc.watch import LiveFolder, LiveRun
from mtmc.watch.live_run import COUNTS
from tests.watched import run

NOTHING = dict.fromkeys(COUNTS, 0)
LISTS = ("nodes", "lines", "actions", "evaluations", "seconds", "usd")


def counts(data: dict[str, Any]) -> dict[str, int]:
    """What a page knows that has these data."""
    known = {name: len(data["nodes" if name == "versions" else name]) for name in COUNTS if name != "statistics"}
    return {**known, "statistics": data["statistics"]}


def plain(node: dict[str, Any]) -> dict[str, Any]:
    """A version of the page without its statistics."""
    return {name: value for name, value in node.items() if name not in ("notes", "prior")}


def test_changes_add_up_to_the_whole(tmp_path: Path) -> None:
    live, held = LiveRun(tmp_path / "run"), dict[str, Any]()
    for budget in (4, 9, 9, 24):
        run(tmp_path / "run", budget)
        news = live.changes(counts(held) if held else NOTHING)
        held = {**news, **{name: [*held.get(name, ()), *news[name]] for name in LISTS}}
        assert len(held["nodes"]) == news["live"]["versions"] and held["best"] < len(held["nodes"])
    assert held["evaluations"] == LiveRun(tmp_path / "run").changes(NOTHING)["evaluations"]
    record = load(tmp_path / "run").record
    whole = page_data(record)
    assert [plain(node) for node in held["nodes"]] == [plain(node) for node in whole["nodes"]]
    assert all(held[name] == whole[name] for name in ("lines", "actions", "evaluations", "best", "path", "settings"))
    notes = live.changes(NOTHING)["notes"]
    assert {node_id: each["visits"] for node_id, each in notes} == {
        node_id: each["visits"] for node_id, each in record.annotations.items()
    }
    assert live.changes(counts(held))["nodes"] == []


def test_the_course_says_what_had_been_spent(tmp_path: Path) -> None:
    result = run(tmp_path / "run", 12)
    store = Store.read(tmp_path / "run")
    try:
        found = course(store)
        ended = [batch.seconds for batch in store.batches()]
    finally:
        store.close()
    assert [each.node_id for each in found] == list(result.record.evaluations)
    assert [each.seconds for each in found] == sorted(each.seconds for each in found)
    assert found[-1].seconds == max(seconds or 0.0 for seconds in ended) > 0.0 == found[0].seconds
    assert found[-1].usd == pytest.approx(result.record.cost.usd) and found[-1].usd > found[0].usd


class Gate(FakeEvaluator):
    """An evaluator that waits before each evaluation, until it may."""

    def __init__(self, free: int) -> None:
        super().__init__(failing=0.0)
        object.__setattr__(self, "free", threading.Semaphore(free))
        object.__setattr__(self, "waiting", threading.Semaphore(0))

    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
        self.waiting.release()  # type: ignore[attr-defined]
        self.free.acquire()  # type: ignore[attr-defined]
        return super().evaluate(requests)


@contextmanager
def going_on(out: Path, free: int) -> Iterator[Gate]:
    """A run that has done so many evaluations, the root's included, and waits in the next two."""
    gate = Gate(free)
    thread = threading.Thread(target=run, args=(out, 12), kwargs={"evaluator": gate})
    thread.start()
    try:
        for _ in range(free + (2 if free else 1)):
            assert gate.waiting.acquire(timeout=300)  # type: ignore[attr-defined]
        yield gate
    finally:
        gate.free.release(1000)  # type: ignore[attr-defined]
        thread.join()


def test_trials_under_way_are_shown(tmp_path: Path) -> None:
    with going_on(tmp_path / "run", 3):
        data = LiveRun(tmp_path / "run").changes(NOTHING)
        live = data["live"]
        assert live["state"] == "running" and live["versions"] == 3 and live["budget"] == 12
        assert [trial["stage"] for trial in live["trials"]] == ["evaluating", "evaluating"]
        assert all(trial["sentence"] and trial["node"] < 3 and trial["attempts"] == 1 for trial in live["trials"])
        (tmp_path / "left").mkdir()
        copy_run(tmp_path / "run", tmp_path / "left")  # as a process that is killed now leaves it
        left = LiveRun(tmp_path / "left").progress()
        assert left.state == "stopped" and left.trials == () and left.versions == 3
    after = LiveRun(tmp_path / "run").progress()
    assert after.state == "ended" and after.trials == () and after.finished == "12 evaluations are spent"


def test_a_run_without_a_root_is_waited_for(tmp_path: Path) -> None:
    with going_on(tmp_path / "run", 0):
        live = LiveRun(tmp_path / "run")
        assert live.progress().versions == 0 and live.progress().speedup is None
        assert live.changes(NOTHING)["nodes"] == []
    assert live.progress().versions > 1


LOCK = "import sys; from pathlib import Path; from mtmc.store import FolderLock; FolderLock(Path(sys.argv[1]))"


def test_who_asks_for_the_holder_takes_nothing_away(tmp_path: Path) -> None:
    assert holder_since(tmp_path) is None
    lock = FolderLock(tmp_path)
    assert holder_since(tmp_path) == (tmp_path / LOCK_NAME).stat().st_mtime
    held = subprocess.run([sys.executable, "-c", LOCK, str(tmp_path)], capture_output=True, text=True, check=False)
    assert "is open in another process" in held.stderr
    lock.release()
    assert holder_since(tmp_path) is None
    holding = subprocess.Popen(
        [sys.executable, "-c", f"{LOCK}; print(1, flush=True); input()", str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with holding:
        assert holding.stdout is not None and holding.stdout.readline() == b"1\n"
        assert holder_since(tmp_path) is not None
        holding.communicate(b"\n")
    assert holder_since(tmp_path) is None


def test_another_run_in_the_same_folder_is_noticed(tmp_path: Path) -> None:
    live = LiveRun(tmp_path / "run")
    run(tmp_path / "run", 6)
    first = live.changes(NOTHING)
    kept = tmp_path / "kept"
    (tmp_path / "run").rename(kept)
    with pytest.raises(RunError, match="is gone"):
        live.progress()
    run(tmp_path / "run", 3)
    other = live.changes(NOTHING)
    assert other["generation"] != first["generation"] and len(other["nodes"]) == other["live"]["versions"] <= 3


def test_the_runs_of_a_sweep_are_compared(tmp_path: Path) -> None:
    for number, (strategy, seed) in enumerate((("mcts", 0), ("mcts", 1), ("random", 0))):
        run(tmp_path / str(number + 8), 8, strategy=strategy, seed=seed)
    folder = LiveFolder(tmp_path)
    found = folder.overview()
    assert found["names"] == ["strategy", "seed"] and not folder.single
    assert [row["name"] for row in found["runs"]] == ["8", "9", "10"]
    assert [row["choices"] for row in found["runs"]] == [["mcts", 0], ["mcts", 1], ["random", 0]]
    for row in found["runs"]:
        result = load(tmp_path / row["name"])
        assert row["state"] == "ended" and row["evaluations"] == 8 and row["speedup"] == result.best.speedup
        assert row["curve"][-1][0] == len(result.record.evaluations) and row["curve"][-1][3] == row["speedup"]
    late = tmp_path / "0"
    run(late, 4)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "error.txt").write_text("no GPU\n")
    folder._due = 0.0
    again = {row["name"]: row for row in folder.overview()["runs"]}
    assert list(again) == ["0", "8", "9", "10", "bad"] and again["0"]["id"] == 3  # whose page is open keeps its address
    assert again["bad"]["state"] == "failed" and again["bad"]["finished"] == "no GPU"
    assert len(folder.runs[0].changes(NOTHING)["nodes"]) == again["8"]["versions"]  # read again for its page


def test_a_run_that_cannot_be_read_keeps_no_other_from_it(tmp_path: Path) -> None:
    run(tmp_path / "a", 4)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "run.sqlite").write_bytes(b"no database")
    rows = LiveFolder(tmp_path).overview()["runs"]
    assert [row["state"] for row in rows] == ["ended", "unreadable"] and "no SQLite file" in rows[1]["finished"]


@pytest.mark.parametrize("name", ["missing", "empty", "file"])
def test_a_folder_without_a_run_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="name a run's folder"):
        LiveFolder(tmp_path / name)
