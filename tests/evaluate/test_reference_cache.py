"""What the oracle keeps of tasks: what it knows of many of them, and models as far as there is room."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mtmc.evaluate.measure import reference_cache as cache_module
from mtmc.evaluate.measure.reference_cache import Memory, ReferenceCache, memory_of

TOTAL = 100


class _Task:
    """A task that takes so many bytes for its models and needs others at work."""

    def __init__(self, models: int, needed: int) -> None:
        self.models = self.size = models
        self.admission: Any = SimpleNamespace(bytes_needed=needed)

    def forget(self) -> None:
        self.models = 0


class _Oracle:
    def __init__(self) -> None:
        self.tasks: dict[str, _Task] = {}
        self.made: list[str] = []
        self.emptied = self.cached = 0
        self.cache: ReferenceCache[_Task] = ReferenceCache(self.memory, self.empty)

    def memory(self) -> Memory:
        return Memory(sum(task.models for task in self.tasks.values()), self.cached, TOTAL)

    def empty(self) -> None:
        self.emptied, self.cached = self.emptied + 1, 0

    def take(self, key: str, models: int = 1, needed: int = 10, shared: int = 0) -> _Task:
        def make() -> _Task:
            self.made.append(key)
            self.tasks[key] = _Task(models, needed)
            return self.tasks[key]

        task = self.cache.take(key, make, shared)
        task.models = task.size  # they are made again when they are needed
        return task


def test_searches_that_take_turns_find_their_tasks_known() -> None:
    oracle = _Oracle()
    for _ in range(3):
        for number in range(10):
            oracle.take(str(number))
    assert oracle.made == [str(number) for number in range(10)]


def test_all_models_go_where_a_task_is_too_large_for_what_is_left() -> None:
    oracle = _Oracle()
    for number in range(3):
        oracle.take(str(number), models=20, needed=20)
    oracle.cache.clear()
    assert [task.models for task in oracle.tasks.values()] == [0, 0, 0] and oracle.emptied
    oracle.take("1")
    assert oracle.made == ["0", "1", "2"]


def test_the_task_used_the_longest_ago_goes_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "KEPT_TASKS", 2)
    oracle = _Oracle()
    for key in ("a", "b", "a", "c", "a", "b"):
        oracle.take(key)
    assert oracle.made == ["a", "b", "c", "b"]


def test_a_new_task_finds_room_and_what_is_known_of_the_others_stays() -> None:
    oracle = _Oracle()
    first, second, third = (oracle.take(key, models=6) for key in "abc")
    assert (first.models, second.models, third.models) == (0, 6, 6)  # c came when a and b took 12
    oracle.take("d")
    assert (first.models, second.models, third.models) == (0, 0, 6)
    oracle.take("a")
    assert oracle.made == ["a", "b", "c", "d"]


def test_a_known_task_takes_from_the_others_only_what_it_needs() -> None:
    oracle = _Oracle()
    small, large = oracle.take("small", models=8, needed=20), oracle.take("large", models=8, needed=70)
    other = oracle.take("other", models=8, needed=20)
    small = oracle.take("small", needed=20)
    assert (small.models, large.models, other.models) == (8, 8, 8)  # 24 of 100 taken, 20 needed
    oracle.take("large")
    assert (small.models, large.models, other.models) == (8, 8, 0)  # 24 and 70 would leave less than a tenth
    oracle.take("other")
    oracle.take("small", shared=50)
    assert (small.models, large.models, other.models) == (8, 0, 8)


def test_what_one_task_left_cached_is_given_back_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    oracle = _Oracle()
    oracle.take("a"), oracle.take("b")
    before, oracle.cached = oracle.emptied, 40
    oracle.take("b")
    assert oracle.emptied == before  # the next candidate of the same task uses it
    oracle.take("a")
    assert oracle.emptied == before + 1


def test_a_task_that_is_refused_is_not_kept() -> None:
    oracle = _Oracle()

    def refuse() -> _Task:
        raise ValueError("it gives NaN")

    for _ in range(2):
        with pytest.raises(ValueError, match="it gives NaN"):
            oracle.cache.take("bad", refuse, 0)
    oracle.take("bad")
    assert oracle.made == ["bad"]


def test_a_host_is_never_crowded() -> None:
    memory = memory_of(torch.device("cpu"))
    assert memory.used == memory.cached == 0 < memory.total
