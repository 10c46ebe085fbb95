"""The run's store: what goes in comes out, whole or not at all, once, and for one process at a time."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from mtmc.action import STOP, Action, Region
from mtmc.cli import main
from mtmc.errors import RunError
from mtmc.evaluate import ReplaySettings
from mtmc.fakes import FakeEvaluator
from mtmc.outcome import Cost, Diagnosis, Outcome
from mtmc.protocols import EvaluationRequest, Trial
from mtmc.search import load, resume
from mtmc.store import ROOT_TRIAL, STORE_NAME, Attempt, Batch, Legal, NewNode, Store, TrialEnd, TrialRow
from mtmc.task import Task, Variant, load_task
from mtmc.tree import NO_PARENT, KernelNode, source_hash

TASK = Task(
    "toy", "class Model: ...\n", Variant("full"), Variant("small", (("N", 3),)), (Variant("odd1", (("N", 5),)),), b"\0w"
)
SETTINGS = {"seed": 7, "budget": {"evaluations": 3}}
TILE = Action("tile", Region("gelu", 4, 9), (("block", 64),), "tile gelu")
ROOT = Attempt(ROOT_TRIAL, 0, "root\n", '{"stages": []}', Cost(seconds=0.5, calls=1))
OK = Outcome("ok", 2.0, 1.9, 2.1, 30, "measured", {"bytes_moved": 8.0})
BAD = Outcome("build_error", diagnosis=Diagnosis("build", "CompilationError", "no such name", 3, "3 | x"))


def started(folder: Path, url: str = "") -> Store:
    """A store with its root evaluated and recorded."""
    store = Store.create(folder, TASK, SETTINGS, ROOT, url)
    store.add_outcome(source_hash("root\n"), "screen", ROOT_TRIAL, OK, 0.1)
    root = KernelNode(0, NO_PARENT, None, "root\n", ROOT.plan, OK, ROOT_TRIAL, 0, Cost(calls=1))
    store.add_root(NewNode(root, "screen", Legal((TILE, STOP), (0.75, 0.25))), {"compiler": OK}, "H100")
    return store


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """Where the store is: the contract is the same."""
    return "" if request.param == "sqlite" else str(request.getfixturevalue("postgres").url)


def begin_batch(store: Store) -> KernelNode:
    """One batch with one trial, up to where its batch ends: two attempts, the second is right. Returns the node."""
    store.begin_batch(Batch(0, 4, (TrialRow(Trial(0, 0, 0), 3),), 0))
    store.add_attempt(Attempt(0, 0, "broken\n", None, Cost(seconds=1.0, usd=0.25, tokens_in=10)))
    store.add_outcome(source_hash("broken\n"), "screen", 0, BAD, 0.1)
    store.add_attempt(Attempt(0, 1, "child\n", "a plan", Cost(seconds=1.0, usd=0.5, tokens_out=3)))
    store.add_outcome(source_hash("child\n"), "screen", 0, OK, 0.1)
    cost = Cost(usd=0.75, tokens_in=10, tokens_out=3)
    return KernelNode(1, 0, TILE, "child\n", "a plan", OK, 0, 1, cost)


def end_batch(store: Store, node: KernelNode) -> None:
    store.end_batch(0, {0: TrialEnd("node", 1, 2)}, [NewNode(node, "screen", Legal((STOP,), (1.0,), (0.0,)))], 12.5, 0)


def test_what_goes_in_comes_out(tmp_path: Path, url: str) -> None:
    store = started(tmp_path / "run", url)
    node = begin_batch(store)
    end_batch(store, node)
    store.log("finish", 13.0, reason="enough")
    store.close()

    store = Store.open(tmp_path / "run")
    assert store.task() == TASK
    assert store.settings() == SETTINGS
    assert store.baselines() == {"compiler": OK}
    tree = store.tree()
    assert (tree.task_name, len(tree), tree[1]) == ("toy", 2, node)
    assert tree.root.plan == '{"stages": []}' and tree.root.cost == Cost(calls=1)
    assert store.legal(0) == ((TILE, STOP), (0.75, 0.25)) and store.legal_actions(0).gains is None
    assert store.legal_actions(1) == Legal((STOP,), (1.0,), (0.0,))
    assert store.outcome(source_hash("broken\n"), "screen") == (0, BAD)
    assert store.outcome(source_hash("broken\n"), "verify") is None
    assert [attempt.source for attempt in store.attempts(0)] == ["broken\n", "child\n"]
    assert list(store.batches()) == [Batch(0, 4, (TrialRow(Trial(0, 0, 0), 3, TrialEnd("node", 1, 2)),), 0, 12.5, 0)]
    assert (store.evaluations(), store.evaluations_of(0), store.seconds()) == (3, 2, 13.0)
    assert store.events() == [(13.0, "finish", {"reason": "enough"})]
    store.close()


def test_writing_twice_changes_nothing(tmp_path: Path, url: str) -> None:
    store = started(tmp_path, url)
    node = begin_batch(store)
    end_batch(store, node)
    before = (list(store.batches()), store.attempts(0), store.outcome(node.hash, "screen"), list(store.tree()))
    begin_batch(store)
    store.add_attempt(Attempt(0, 1, "another\n", None, Cost()))
    store.add_outcome(node.hash, "screen", 5, BAD, 0.0)
    store.end_batch(0, {0: TrialEnd("duplicate", 0, 9, "again")}, [], 99.0, 7)
    assert (list(store.batches()), store.attempts(0), store.outcome(node.hash, "screen"), list(store.tree())) == before
    store.close()


def test_a_source_is_stored_once(tmp_path: Path) -> None:
    store = started(tmp_path)
    for trial_id in range(5):
        store.add_attempt(Attempt(trial_id, 0, "same\n", None, Cost()))
    store.close()
    rows = sqlite3.connect(tmp_path / STORE_NAME).execute("SELECT count(*) FROM sources").fetchone()
    assert rows == (2,)


def test_what_costs_less_than_writing_it_waits_for_the_next_record(tmp_path: Path) -> None:
    def on_disk() -> int:
        [(count,)] = outside.execute("SELECT count(*) FROM attempts WHERE trial_id >= 0")
        return int(count)

    store = started(tmp_path)
    outside = sqlite3.connect(tmp_path / STORE_NAME)
    store.add_attempt(Attempt(0, 0, "free\n", None, Cost(seconds=0.0002)))
    assert on_disk() == 0
    assert len(store.attempts(0)) == 1, "a read writes what waits first"
    assert on_disk() == 1
    store.add_attempt(Attempt(1, 0, "free too\n", None, Cost()))
    assert on_disk() == 1
    store.add_attempt(Attempt(2, 0, "slow\n", None, Cost(seconds=0.002)))
    assert on_disk() == 3
    store.add_attempt(Attempt(3, 0, "paid\n", None, Cost(tokens_in=1)))
    assert on_disk() == 4
    store.add_attempt(Attempt(4, 0, "last\n", None, Cost()))
    store.close()
    assert on_disk() == 5


def test_the_end_of_a_batch_is_all_or_nothing(tmp_path: Path, url: str) -> None:
    store = started(tmp_path, url)
    node = begin_batch(store)
    unwritable = Action("tile", Region("gelu", 1, 1), (("block", object()),), "")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        store.end_batch(0, {0: TrialEnd("node", 1, 2)}, [NewNode(node, "screen", Legal((unwritable,), (1.0,)))], 1.0, 0)
    [batch] = store.batches()
    assert batch.seconds is None and batch.trials[0].end is None and len(store.tree()) == 1
    end_batch(store, node)
    assert len(store.tree()) == 2
    store.close()


def test_a_used_folder_is_refused(tmp_path: Path) -> None:
    started(tmp_path / "run").close()
    with pytest.raises(RunError, match=r"already used, it holds run\.sqlite: resume"):
        Store.create(tmp_path / "run", TASK, SETTINGS, ROOT)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "tree.json").write_text("{}")
    with pytest.raises(RunError, match=r"it holds tree\.json: choose an empty folder"):
        Store.create(tmp_path / "other", TASK, SETTINGS, ROOT)
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["tree.json"]


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be made"):
        Store.create(tmp_path / "file" / "run", TASK, SETTINGS, ROOT)
    with pytest.raises(RunError, match="cannot be made"):
        Store.create(tmp_path / "file", TASK, SETTINGS, ROOT)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_rights_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(RunError, match="cannot be written"):
        Store.create(tmp_path, TASK, SETTINGS, ROOT)


def test_what_a_killed_creation_leaves_is_no_run(tmp_path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        (tmp_path / f".{STORE_NAME}.new{suffix}").write_bytes(b"half a file")
    with pytest.raises(RunError, match="no run"):
        Store.open(tmp_path)
    store = started(tmp_path)
    assert len(store.tree()) == 1
    store.close()


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="there is no run in"):
        Store.open(tmp_path / "nowhere")
    (tmp_path / STORE_NAME).write_bytes(b"not a database" * 100)
    for opened in (Store.open, Store.read):
        with pytest.raises(RunError, match="is it a run of mtmc"):
            opened(tmp_path)


def test_a_run_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    started(tmp_path).close()
    with sqlite3.connect(tmp_path / STORE_NAME) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    for opened in (Store.open, Store.read):
        with pytest.raises(RunError, match=r"newer version of mtmc \(schema 99, this one reads up to 4\): upgrade"):
            opened(tmp_path)
    assert not list(tmp_path.glob("*-wal")), "a refused run is left as it was"


def old_run(folder: Path) -> dict[str, bytes]:
    """A run of nine evaluations that was killed after five, as the version before schema 3 left it; the files it has."""
    folder.mkdir()
    connection = sqlite3.connect(folder / STORE_NAME)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript((Path(__file__).parent / "old_runs" / "schema2.sql").read_text())
    connection.close()
    (folder / ".lock").write_text("4242\n")
    return contents(folder)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_run_of_an_older_version_can_be_looked_at_and_not_gone_on_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    before = old_run(folder)
    with pytest.raises(
        RunError, match=r"cannot be resumed: an older version of mtmc made it.*start it again in another"
    ):
        Store.open(folder)
    with pytest.raises(RunError, match="an older version of mtmc made it"):
        resume(folder, evaluator=FakeEvaluator())
    assert contents(folder) == before
    assert main(["resume", str(folder)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"mtmc: the run {folder} cannot be resumed: an older version of mtmc made it")
    result = load(folder)
    assert [node.action.key for node in result.tree if node.action][:3] == [
        "lower(softmax;)",
        "vectorize(softmax;num_warps=16)",
        "reorder(softmax;cache=let go)",
    ]
    assert (result.evaluations, result.finished) == (5, None)
    for words in (["show"], ["show", "3"], ["export", "--format=json"], ["report"]):
        assert main([words[0], str(folder), *words[1:]]) == 0, words
    assert "evict_first" in capsys.readouterr().out
    assert contents(folder) == before, "looking changes nothing"


def test_what_an_older_version_evaluated_can_be_replayed(tmp_path: Path) -> None:
    old_run(tmp_path / "run")
    result = load(tmp_path / "run")
    evaluator = ReplaySettings(run=str(tmp_path / "run")).open()
    request = EvaluationRequest(load_task("softmax"), result.tree[2].source)
    assert evaluator.evaluate([request]) == [result.tree[2].outcome]


def test_one_at_a_time_in_this_process(tmp_path: Path, url: str) -> None:
    store = started(tmp_path, url)
    with pytest.raises(RunError, match="open already in this process"):
        Store.open(tmp_path)
    reader = Store.read(tmp_path)
    assert len(reader.tree()) == 1
    with pytest.raises(RunError, match="cannot be written"):
        reader.log("finish", 0.0)
    reader.close()
    store.close()
    Store.open(tmp_path).close()


def test_a_run_can_be_opened_again_before_the_server_has_seen_that_nobody_is_there(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not url:
        pytest.skip("SQLite has no server")
    import psycopg

    store, held = started(tmp_path, url), list[psycopg.Connection]()
    close = psycopg.Connection.close
    with monkeypatch.context() as patched:
        patched.setattr(psycopg.Connection, "close", lambda self: held.append(self))
        store.close()
        assert held and not held[0].closed
        Store.open(tmp_path).close()
    for connection in held:
        close(connection)


def test_one_process_at_a_time(tmp_path: Path, url: str) -> None:
    store = started(tmp_path, url)
    code = f"from pathlib import Path; from mtmc.store import Store; Store.open(Path({str(tmp_path)!r}))"
    command = [sys.executable, "-c", code]
    root = Path(__file__).parent.parent
    refused = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert re.search(rf"is open in another process \((id|mtmc \S+) {os.getpid()}\)", refused.stderr)
    store.close()
    assert subprocess.run(command, cwd=root, capture_output=True).returncode == 0
