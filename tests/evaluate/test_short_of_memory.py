"""A machine that is short of memory tells nothing of a task: what it makes fail is done again, not left out."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mtmc.errors import TaskError
from mtmc.evaluate.counting import tiling
from mtmc.evaluate.counting.axes import Tiling
from mtmc.evaluate.counting.count import Counted
from mtmc.evaluate.counting.floor import Floor, standing_out
from mtmc.evaluate.counting.refusals import unchecked
from mtmc.evaluate.counting.spots import Found
from mtmc.evaluate.counting.tiling import Tiles, tiles_that_stand_out
from mtmc.evaluate.pool.server import out_of_memory
from mtmc.task import Task, load_task

THREADS, MEMORY = RuntimeError("can't start new thread"), MemoryError()
SHORT = (
    THREADS,
    MEMORY,
    OSError("[Errno 12] Cannot allocate memory"),
    RuntimeError("DefaultCPUAllocator: not enough memory"),
)


def failing(cause: BaseException | None) -> Callable[..., Any]:
    def made(*_: Any) -> Any:
        raise TaskError("the reference fails") from cause

    return made


@pytest.fixture
def drawn() -> tuple[Task, Tiling]:
    task = load_task("linear")
    return task, cast(Tiling, SimpleNamespace(sizes=((64, 8),), variant=task.full, seed=0, distribution="drawn"))


@pytest.mark.parametrize("cause", SHORT, ids=repr)
def test_what_an_error_was_raised_from_counts(cause: BaseException) -> None:
    for depth in range(3):
        error: BaseException = cause
        for _ in range(depth):
            try:
                raise TaskError("the reference fails") from error
            except TaskError as raised:
                error = raised
        assert out_of_memory(error)
    assert not out_of_memory(TaskError("not enough memory"))  # a reference's own words
    assert not out_of_memory(RuntimeError("shapes cannot be multiplied"))


@pytest.mark.parametrize("cause", SHORT, ids=repr)
def test_what_stands_out_is_not_left_out_for_want_of_memory(
    cause: BaseException, drawn: tuple[Task, Tiling], monkeypatch: pytest.MonkeyPatch
) -> None:
    task, of_task = drawn
    monkeypatch.setattr(tiling, "replace", lambda value, **_: value)
    monkeypatch.setattr(tiling, "_made", failing(cause))
    with pytest.raises(TaskError):
        tiles_that_stand_out(task, of_task, 1)
    with pytest.raises(TaskError):  # so the job fails, is done again, and no version passes without it
        standing_out(task, Tiles(of_task, ()), 1)
    monkeypatch.setattr(tiling, "_made", failing(None))
    assert tiles_that_stand_out(task, of_task, 1) == ()  # such values are none that it is made for


def test_whatever_else_fails_is_told(drawn: tuple[Task, Tiling], monkeypatch: pytest.MonkeyPatch) -> None:
    task, of_task = drawn

    def made(*_: Any) -> Any:
        raise AttributeError("'NoneType' object has no attribute 'shape'")

    monkeypatch.setattr(tiling, "replace", lambda value, **_: value)
    monkeypatch.setattr(tiling, "_made", made)
    found = standing_out(task, Tiles(of_task, ()), 1)
    assert found.tiles == () and "only a part counts: AttributeError: 'NoneType'" in found.why_not
    counted = Counted((), (), None, Found(compared=3))
    assert found.why_not in unchecked(counted, Floor(0, 0, ""), found.why_not)
