"""Runs killed after each of their records in turn: not one evaluation more than the budget, wherever it was."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from mtmc.fakes import FAKE_TASK, FakeCoder, FakeEvaluator, FakePolicy, _actions
from mtmc.outcome import Outcome
from mtmc.protocols import Edit, EditRequest
from mtmc.search import SearchResult, graph, load, resume, search
from mtmc.search.canonical import canonical_json
from mtmc.search.strategies.common import derive_seed
from mtmc.store import STORE_NAME, Batch, Store, attempts, database, evaluations
from tests.breadth import share

BUDGET = 14


class Overtaking:
    """A flight whose trials do all their work when they begin, and end in an order of its own: a trial that begins later and
    writes the same source makes it a node first."""

    def __init__(self, at_once: int, work: Callable[[int], None]) -> None:
        self.work = work
        self.waiting: list[int] = []

    def start(self, batch: Batch) -> None:
        for row in batch.trials:
            self.work(row.trial.id)
        self.waiting.append(batch.id)

    def wait(self) -> list[int]:
        chosen = min(self.waiting, key=lambda batch_id: derive_seed(1, "order", batch_id))
        self.waiting.remove(chosen)
        return [chosen]

    def close(self) -> None:
        self.waiting.clear()


@dataclass(frozen=True)
class Colliding(FakeCoder):
    """Writes the same version for each three actions of a node, so that trials under way often share one."""

    def edit(self, request: EditRequest) -> Edit:
        number = int(request.action.region.name.removeprefix("op"))
        first = next(each for each in _actions(self.width) if each.region.name == f"op{number // 3 * 3}")
        return super().edit(replace(request, action=first))


@dataclass(frozen=True)
class Drafting(Colliding):
    """Has drafts of its own evaluated before it hands back an edit, and the edit itself."""

    drafts: int = 2
    told: list[Outcome | None] = field(default_factory=list, compare=False)

    def edit(self, request: EditRequest) -> Edit:
        edit = super().edit(request)
        assert request.context is not None
        for number in range(self.drafts):
            self.told.append(request.context.evaluate(f"{edit.source}# draft {number}\n"))
        return edit


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Path]:
    """A copy of the run after each of its records, as a killed process would have left it."""
    copies: list[Path] = []
    writing = Store._writing

    @contextmanager
    def kept(store: Store) -> Iterator[sqlite3.Connection]:
        with writing(store) as connection:
            yield connection
        if store.folder.name != "run" or not (store.folder / STORE_NAME).exists():
            return
        copy = tmp_path / f"copy{len(copies)}"
        copy.mkdir()
        with closing(sqlite3.connect(copy / STORE_NAME)) as connection:
            store._connection.backup(connection)
        copies.append(copy)

    for module in (database, evaluations, attempts):
        monkeypatch.setattr(module, "CHEAP_SECONDS", 0.0)  # each record by itself
    monkeypatch.setattr(Store, "_writing", kept)
    monkeypatch.setattr(graph, "ThreadedFlight", Overtaking)
    return copies


def parts(coder: FakeCoder) -> dict[str, Any]:
    return {"policy": FakePolicy(), "coder": coder, "evaluator": FakeEvaluator(failing=0.4)}


def ended(result: SearchResult) -> tuple[int, int]:
    """(Evaluations that the store has, those that its trials are charged with and the root's)."""
    store = Store.read(result.run_dir)
    charged = sum(row.end.evaluations for batch in store.batches() for row in batch.trials if row.end is not None)
    store.close()
    return result.evaluations, charged + 1


@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize("drafts", [0, 2])
def test_no_kill_costs_an_evaluation(copied: list[Path], tmp_path: Path, drafts: int, asynchronous: bool) -> None:
    coder = Drafting(drafts=drafts, width=4, refuses=0.0) if drafts else Colliding(width=9, refuses=0.0)
    given: dict[str, Any] = {"budget": BUDGET, "seed": 6, "batch": 4, "asynchronous": asynchronous, "dumps": False}
    whole = search(FAKE_TASK, out=tmp_path / "run", strategy="random", **given, **parts(coder))
    assert ended(whole) == (BUDGET, BUDGET)
    copies = list(copied)
    assert len(copies) > BUDGET
    for number, folder in share(list(enumerate(copies)), 8):
        again = resume(folder, dumps=False, **parts(coder))
        assert ended(again) == (BUDGET, BUDGET), f"killed after record {number} of {len(copies)}"
        assert dict(load(folder).annotations) == dict(again.annotations)
        assert asynchronous or canonical_json(again) == canonical_json(whole)
        shutil.rmtree(folder)
