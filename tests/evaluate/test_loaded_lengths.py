"""Work that hangs on loaded numbers, of a task no small draw stands for: lengths and tables are those of the full shapes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mtmc.errors import TaskError
from mtmc.evaluate import LabEvaluator, LabSettings
from mtmc.evaluate.counting import whole_numbers
from mtmc.evaluate.counting.compared import Found
from mtmc.evaluate.counting.count import Counted
from mtmc.evaluate.counting.demanded import Writers
from mtmc.evaluate.counting.floor import Floor
from mtmc.evaluate.counting.redrawn import draw_redrawn
from mtmc.evaluate.counting.refusals import unchecked
from mtmc.evaluate.counting.whole_numbers import LARGE, with_whole_numbers
from mtmc.protocols import EvaluationRequest
from mtmc.task import Task, task_from_source
from mtmc.task.tensors import flat_tensors

TEXT = """
import torch
from torch import nn

batch = 48
pages = 128
page = 16
width = 128
VARIANTS = {
    "small": {"batch": 2, "pages": 3, "page": 8, "width": 16},
    "odd1": {"batch": 3, "pages": 2, "page": 5, "width": 33},
}


class Model(nn.Module):
    def forward(self, pool, table, lengths):
        rows = pool[table].flatten(1, 2)
        held = torch.arange(rows.shape[1], device=rows.device) < lengths[:, None]
        return torch.softmax(torch.where(held[:, :, None], rows, 0.0).sum(1) / 64, -1)


def get_inputs():
    table = torch.randperm(batch * pages).view(batch, pages)
    lengths = torch.randint(pages * page // 2, pages * page + 1, (batch,))
    return [torch.randn(batch * pages, page, width), table, lengths]


def get_init_inputs():
    return []
"""
VERSION = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def sum_pages(pool_ptr, table_ptr, lengths_ptr, out_ptr, pages, page, width, ROWS: tl.constexpr, COLS: tl.constexpr):
    batch = tl.program_id(0)
    rows, cols = tl.arange(0, ROWS), tl.arange(0, COLS)
    end = tl.load(lengths_ptr + batch).to(tl.int32)
    total = tl.zeros((ROWS, COLS), tl.float32)
    for at in range(0, tl.cdiv(end, page)):
        which = tl.load(table_ptr + batch * pages + at)
        inside = ((rows < page) & (at * page + rows < end))[:, None] & (cols < width)[None, :]
        place = pool_ptr + (which * page + rows[:, None]) * width + cols[None, :]
        total += tl.load(place, mask=inside, other=0.0)
    found = tl.where(cols < width, tl.sum(total, 0) / 64, float("-inf"))
    found = tl.exp(found - tl.max(found, 0))
    tl.store(out_ptr + batch * width + cols, found / tl.sum(found, 0), mask=cols < width)


class ModelNew(nn.Module):
    def forward(self, pool, table, lengths):
        batch, pages = table.shape
        page, width = pool.shape[1:]
        out = pool.new_empty(batch, width)
        sizes = (triton.next_power_of_2(page), triton.next_power_of_2(width))
        sum_pages[(batch,)](pool, table, lengths, out, pages, page, width, *sizes)
        return out
"""
READ = 48 * 128 * 16 * 128 * 4
"""Bytes of the pool, of which lengths leave three quarters."""


@pytest.fixture(scope="module")
def paged() -> Task:
    return task_from_source(TEXT, "paged")


@pytest.fixture(scope="module")
def evaluator() -> Iterator[LabEvaluator]:
    with LabSettings(check_variants=1, workers=1).open() as opened:
        yield opened


def test_loops_end_where_the_lengths_of_the_full_shapes_say(evaluator: LabEvaluator, paged: Task) -> None:
    outcome = evaluator.evaluate([EvaluationRequest(paged, VERSION)])[0]
    assert outcome.ok, outcome.diagnosis
    assert outcome.metrics["compared_at_full"] == 0.0  # no small draw stands for it
    assert 0.6 * READ < outcome.metrics["bytes_moved"] < 0.95 * READ


def test_integers_are_those_of_the_full_shapes_and_large_floating_tensors_are_not_drawn(
    paged: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    drawn = flat_tensors(draw_redrawn(paged, paged.small, 3, ()))
    (pool, table, lengths), told = with_whole_numbers(paged, drawn, 3)
    assert not told
    assert pool is drawn[0] and table.shape == (48, 128) and lengths.shape == (48,)
    assert torch.equal(table.flatten().sort()[0], torch.arange(48 * 128))
    assert int(lengths.min()) >= 1024 and LARGE < READ // 4
    monkeypatch.setattr(whole_numbers, "draw_redrawn", refuse)
    same, told = with_whole_numbers(paged, drawn, 3)
    assert same is drawn and "fails: no such draw" in told
    monkeypatch.setattr(whole_numbers, "draw_redrawn", lambda *_: drawn[:1])
    assert "another number of inputs" in with_whole_numbers(paged, drawn, 3)[1]


OUT = [
    MemoryError(),
    RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    pytest.param(TaskError("get_inputs() failed"), id="of the task's own code"),
]


@pytest.mark.parametrize("error", OUT)
def test_memory_that_is_not_there_is_told_of(error: Exception, paged: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    def without(*_: Any) -> Any:
        raise error from (MemoryError() if isinstance(error, TaskError) else None)

    monkeypatch.setattr(whole_numbers, "draw_redrawn", without)
    given = [torch.arange(3)]
    same, told = with_whole_numbers(paged, given, 3)
    assert same is given and "evaluator.memory_mib" in told
    assert with_whole_numbers(paged, [torch.ones(3)], 3)[1] == "", "there are no integers"


def test_more_integers_than_are_drawn_are_told_of(paged: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    drawn = flat_tensors(draw_redrawn(paged, paged.small, 3, ()))
    monkeypatch.setattr(whole_numbers, "MOST_WHOLE", 4)
    assert "are more than 4" in with_whole_numbers(paged, drawn, 3)[1]


def refuse(*_: Any) -> Any:
    raise TaskError("no such draw")


def test_what_is_left_out_is_in_the_outcome() -> None:
    told = unchecked(Counted((), (), left_out=("integers are small",), found=Found(unsummed=True)), Floor(0, 0))
    assert told.startswith("integers are small; what atomics add up to takes too much work")
    assert unchecked(Counted((), ()), Floor(0, 0)) == ""


@pytest.mark.parametrize(("budget", "told"), [(0.0, True), (1.0, False)])
def test_sums_that_take_too_much_work_are_told_of(budget: float, told: bool) -> None:
    storages = SimpleNamespace(sizes=[])
    launches = SimpleNamespace(before=(), log=(), storages=storages)
    writers = Writers(launches, {}, budget)  # type: ignore[arg-type]
    assert writers.atomics(SimpleNamespace(record={}), 0) is None  # type: ignore[arg-type]
    assert writers.unsummed is told
