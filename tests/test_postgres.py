"""Runs on a PostgreSQL server: as in SQLite, and what only a server can do, to be lost and to be far away."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from mtmc.chat import ModelSettings
from mtmc.cli import main
from mtmc.errors import ConfigError, RunError
from mtmc.evaluate import ReplaySettings
from mtmc.fakes import FAKE_TASK, FakeCoder, FakeEvaluator, FakePolicy
from mtmc.outcome import Cost, Outcome
from mtmc.protocols import EvaluationRequest
from mtmc.search import load, search
from mtmc.search.canonical import canonical_json
from mtmc.store import POINTER_NAME, STORE_NAME, Attempt, Store
from mtmc.store.postgres import PostgresBackend, checked_url
from mtmc.store.postgres_connection import ESCAPE, escaped, unescaped
from tests.killed_runs import Killed, Mortal, evaluated, logged, recorded
from tests.postgres_server import Server
from tests.test_resume import begin, go_on


@pytest.fixture
def whole(tmp_path: Path) -> str:
    """The tree of the same run in SQLite."""
    return canonical_json(begin(tmp_path / "sqlite"))


def test_a_run_is_the_same_as_in_sqlite(postgres: Server, tmp_path: Path, whole: str) -> None:
    result = begin(tmp_path / "run", store=postgres.url, dumps=True)
    assert canonical_json(result) == whole == canonical_json(load(tmp_path / "run"))
    files = {path.name for path in (tmp_path / "run").iterdir()}
    assert POINTER_NAME in files and "best.py" in files and STORE_NAME not in files
    assert result.record.spent == load(tmp_path / "run").record.spent


def test_what_a_run_that_died_has_recorded_is_not_made_again(postgres: Server, tmp_path: Path, whole: str) -> None:
    evaluator = Mortal(failing=0.4)
    evaluator.dies_at = 17
    with pytest.raises(Killed):
        begin(tmp_path / "run", evaluator, store=postgres.url)
    elsewhere = tmp_path / "another machine"
    elsewhere.mkdir()
    shutil.copy(tmp_path / "run" / POINTER_NAME, elsewhere)
    assert canonical_json(go_on(elsewhere)) == whole == canonical_json(load(tmp_path / "run"))


def test_kill_9_and_resume(postgres: Server, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = [sys.executable, "-m", "tests.test_postgres", str(run), postgres.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "at its 13th evaluation\n"
        with pytest.raises(
            RunError, match=rf"open in another process \(mtmc \S+ {process.pid}\): wait for it or end it"
        ):
            go_on(run)
        process.kill()
    known, lines = recorded(run), len(evaluated(run))
    end = time.monotonic() + 120.0
    while True:  # the server notices soon that its client is gone
        try:
            result = go_on(run, logged(run))
            break
        except RunError:
            assert time.monotonic() < end
            time.sleep(0.02)
    assert len(known) == 12 < result.evaluations == 40
    assert not set(evaluated(run)[lines:]) & known


class Pausing(Mortal):
    """Says when it is at the evaluation at which it would die, and waits to be killed."""

    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
        try:
            return super().evaluate(requests)
        except Killed:
            print(f"at its {self.dies_at}th evaluation", flush=True)
            threading.Event().wait()
            raise


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_lost_connection_is_one_message_and_nothing_is_lost(
    postgres: Server, tmp_path: Path, whole: str, asynchronous: bool
) -> None:
    class Losing(FakeEvaluator):
        asked = 0

        def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
            self.asked += 1
            if self.asked == 15:
                postgres.stop()
            return super().evaluate(requests)

    given = {"store": postgres.url, "asynchronous": asynchronous, "batch": 1}
    with pytest.raises(
        RunError, match=r"the connection to postgresql://\S+ is lost .*: what was recorded is there"
    ) as caught:
        begin(tmp_path / "run", Losing(failing=0.4, seconds=0.002), **given)
    assert "\n" not in str(caught.value)
    with pytest.raises(RunError, match="there is no connection to postgresql://"):
        go_on(tmp_path / "run")
    postgres.start()
    assert load(tmp_path / "run").evaluations == 14
    assert canonical_json(go_on(tmp_path / "run")) == whole


def test_it_is_shown_reported_exported_replayed_and_saved(
    postgres: Server, tmp_path: Path, whole: str, capsys: pytest.CaptureFixture[str]
) -> None:
    result = begin(tmp_path / "run", store=postgres.url)
    for words in (["show"], ["show", "1"], ["report"], ["export", "--format=json"]):
        assert main([words[0], str(tmp_path / "run"), *words[1:]]) == 0, words
    assert "evaluations" in capsys.readouterr().out
    replayed = begin(tmp_path / "again", ReplaySettings(run=str(tmp_path / "run")).open())
    assert canonical_json(replayed) == whole
    saved = result.save(tmp_path / "saved")
    assert (saved / STORE_NAME).exists() and not (saved / POINTER_NAME).exists()
    assert canonical_json(load(saved)) == whole
    assert go_on(saved, budget=45).evaluations == 45
    assert load(tmp_path / "run").evaluations == 40, "a saved run is another one"


def test_of_langgraphs_checkpoints_the_latest_is_kept_beside_the_run(postgres: Server, tmp_path: Path) -> None:
    begin(tmp_path / "run", store=postgres.url)
    go_on(tmp_path / "run", budget=50)
    store = Store.read(tmp_path / "run")
    assert store._all("SELECT count(*) FROM checkpoints") == [(1,)]
    [(channels,)] = store._all("SELECT checkpoint->'channel_versions' FROM checkpoints")
    assert store._all("SELECT count(*) FROM checkpoint_blobs")[0][0] <= len(channels)
    store.close()


def test_a_search_that_cannot_start_leaves_nothing(postgres: Server, tmp_path: Path) -> None:
    evaluator = Mortal()
    evaluator.dies_at = 1
    with pytest.raises(Killed):
        begin(tmp_path / "run", evaluator, store=postgres.url)
    assert not (tmp_path / "run").exists()
    backend = PostgresBackend(tmp_path, postgres.url, "mtmc_run_00000000")
    connection = backend.connect()
    query = "SELECT schema_name FROM information_schema.schemata WHERE schema_name LIKE 'mtmc_run_%'"
    before = len(connection.execute(query).fetchall())
    with pytest.raises(Killed):
        evaluator.asked = 0
        begin(tmp_path / "run", evaluator, store=postgres.url)
    assert len(connection.execute(query).fetchall()) == before
    connection.close()


def test_text_with_any_character_comes_back(postgres: Server, tmp_path: Path) -> None:
    text = f"a\0b {ESCAPE} {ESCAPE}0 {ESCAPE}b %s ? \\ é 🙂\n"
    assert unescaped(escaped(text)) == text and unescaped(escaped(text.encode())) == text.encode()
    assert unescaped(escaped(f"{ESCAPE}bQQ==")) == f"{ESCAPE}bQQ=="
    store = Store.create(tmp_path / "run", FAKE_TASK, {}, Attempt(-1, 0, text, text, Cost(), text), postgres.url)
    store.close()
    store = Store.open(tmp_path / "run")
    [attempt] = store.attempts(-1)
    assert (attempt.source, attempt.plan, attempt.error) == (text, text, text)
    store.close()


def test_a_run_of_a_newer_version_is_refused(postgres: Server, tmp_path: Path) -> None:
    store = Store.create(tmp_path / "run", FAKE_TASK, {}, Attempt(-1, 0, "x", None, Cost()), postgres.url)
    store._write("UPDATE meta SET value = ? WHERE key = 'schema'", "99")
    store.close()
    for opened in (Store.open, Store.read):
        with pytest.raises(RunError, match=r"newer version of mtmc \(schema 99"):
            opened(tmp_path / "run")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://me:secret@host/db", "store cannot have a password, it would be recorded: set PGPASSWORD"),
        ("postgresql://me@host/db?password=secret", "store cannot have a password"),
        ("mysql://host/db", "store cannot be 'mysql://host/db': use postgresql://"),
        ("postgresql://host:port/db?nonsense=1", "store cannot be what was given"),
    ],
)
def test_an_address_that_cannot_be_is_refused_before_anything_starts(tmp_path: Path, url: str, said: str) -> None:
    pytest.importorskip("psycopg", reason="mtmc[postgres] is not installed")
    with pytest.raises(ConfigError, match=said) as caught:
        begin(tmp_path / "run", store=url)
    assert "secret" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_server_that_is_not_there_is_one_message(tmp_path: Path) -> None:
    pytest.importorskip("psycopg", reason="mtmc[postgres] is not installed")
    with pytest.raises(RunError, match=r"there is no connection to postgresql://x@/db\?host=/nowhere .*PGPASSWORD"):
        begin(tmp_path / "run", store="postgresql://x@/db?host=/nowhere")
    with pytest.raises(ConfigError, match="store needs the run's folder"):
        search(FAKE_TASK, store="postgresql://x@/db", policy=FakePolicy(), coder=FakeCoder(), evaluator=FakeEvaluator())


def test_without_the_driver_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(RunError, match=r"needs its driver .*pip install 'mtmc\[postgres\]'"):
        checked_url("postgresql://host/db")


def test_no_password_of_the_environment_is_written(
    postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", "hunter2hunter2")
    begin(tmp_path / "run", store=postgres.url, budget=3, dumps=True, model=ModelSettings())
    assert all(
        "hunter2" not in path.read_text(errors="replace") for path in (tmp_path / "run").rglob("*") if path.is_file()
    )


if __name__ == "__main__":
    pausing = Pausing(**asdict(logged(Path(sys.argv[1]))))
    pausing.dies_at = 13
    begin(Path(sys.argv[1]), pausing, store=sys.argv[2])
