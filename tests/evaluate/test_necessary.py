"""What any version must read and write, as a reference's call tells, and which times are refused for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

from mtmc.evaluate.measure.clock import Overhead, OverheadTable, floor_ms
from mtmc.evaluate.measure.conversation import Failed
from mtmc.evaluate.measure.host_backend import HostBackend
from mtmc.evaluate.measure.reference_state import ReferenceState, Work
from mtmc.evaluate.measure.samples import Samples
from mtmc.evaluate.measure.timing_validation import FLOOR_SHARE, runtime, validate
from mtmc.evaluate.reference.necessary import necessary
from mtmc.evaluate.reference.pieces import Piece, distinct_bytes
from mtmc.hardware import HARDWARE
from mtmc.task import task_from_source
from mtmc.task.tensors import flat_tensors

ROWS, COLS = 64, 48
X = ROWS * COLS * 4
"""Bytes of each large input."""
UNCACHED = dataclasses.replace(HARDWARE["H100"], l2_bytes=0)
NO_OVERHEAD = OverheadTable(Overhead(((0, 0.0), (1, 0.0))), Overhead(((0, 0.0), (1, 0.0))), 0.0)
Forward = Callable[[torch.Tensor, torch.Tensor], Any]
WEIGHT = torch.randn(COLS, COLS)
PLACES = torch.tensor([3, 1, 4, 1, 5])

AS_IT_IS: dict[str, tuple[Forward, int, int]] = {
    "a dictionary of views": (
        lambda x, y: {"input": x, "means": x.mean(-1, keepdim=True).expand(x.shape), "result": x.softmax(-1)},
        X,
        X + ROWS * 4,
    ),
    "an input beside a reduction of the other": (lambda x, y: (x, y.sum(-1)), X, ROWS * 4),
    "a slice beside work on another one": (lambda x, y: (x[:32], x[32:] * 2), X // 2, X // 2),
    "columns beside work on others": (lambda x, y: (x[:, :12], x[:, 12:24].exp()), X // 4, X // 4),
    "an expanded view": (lambda x, y: (y[:1].cos().expand(ROWS, COLS), x), COLS * 4, COLS * 4),
    "an input twice": (lambda x, y: (x, x, y + 1), X, X),
    "a view of another output": (lambda x, y: (out := x * y, out.t(), out[:7]), 2 * X, X),
    "three parts of one buffer": (lambda x, y: (x * y).chunk(3, dim=-1), 2 * X, X),
    "parts of a buffer that overlap": (lambda x, y: [(out := x * y)[:, :24], out[:, 16:40]], 2 * X, X * 40 // 48),
    "windows over an output": (lambda x, y: x.flatten().cos().unfold(0, 9, 1), X, X),
    "nothing but views": (lambda x, y: (x.t(), y.view(-1)), 0, 0),
    "what the model keeps": (lambda x, y: (WEIGHT, WEIGHT.t(), x + 1), X, X),
    "what is made of weights alone": (lambda x, y: (WEIGHT * 2, x + 1), X, X),
    "a table that rows are taken from": (lambda x, y: x[PLACES], 0, 5 * COLS * 4),
    "zeros like an input": (lambda x, y: (torch.zeros_like(x), y + 1), X, X),
    "a step of a cache": (lambda x, y: (x[5].copy_(y[0]), x), COLS * 4, COLS * 4),
}
"""References that hand out what nobody has to read, or to write twice: with the bytes to be read and written."""
MADE: dict[str, tuple[Forward, int, int]] = {
    "a copy of an input": (lambda x, y: x.clone(), X, X),
    "an input and its copy": (lambda x, y: (x, x.clone()), X, X),
    "copies of one input twice": (lambda x, y: (x.clone(), x.clone()), X, 2 * X),
    "a copy of an expanded view": (lambda x, y: y[:1].expand(ROWS, COLS).contiguous(), COLS * 4, X),
    "two outputs of equal numbers": (lambda x, y: (x * 2, x * 2), X, 2 * X),
    "a transposed copy": (lambda x, y: x.t().contiguous(), X, X),
    "an input that is changed": (lambda x, y: x.add_(1), X, X),
    "a view of an input that is changed": (lambda x, y: (x.mul_(y), x)[1][:3], 2 * X, X),
    "another input's numbers": (lambda x, y: x.copy_(y), X, X),
    "what Python was told": (lambda x, y: torch.full((9, 9), x.sum().item()), 0, 9 * 9 * 4),
    "rows that each have been read": (lambda x, y: torch.stack([row.exp() for row in x]), X, X),
    "a buffer that is filled bit by bit": (
        lambda x, y: (out := torch.empty_like(x), out[:9].copy_(x[:9]), out[9:].copy_(y[9:]))[0],
        X,
        X,
    ),
    "numbers that were sparse between": (lambda x, y: x.to_sparse().to_dense() + y, 2 * X, X),
    "ragged rows between": (
        lambda x, y: torch.nested.nested_tensor([x[:9], x[9:]], layout=torch.jagged).sin().values(),
        X,
        X,
    ),
    "an operator of operators": (
        lambda x, y: torch.ops.higher_order.out_dtype(
            torch.ops.aten.mm.default, torch.int32, x.t().to(torch.int8), y.to(torch.int8)
        ),
        2 * X,
        COLS * COLS * 4,
    ),
    "an output by its name": (lambda x, y: torch.add(x, y, out=torch.empty(ROWS, COLS)), 2 * X, X),
}
"""References that really make what they return."""


def drawn() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(ROWS, COLS), torch.randn(ROWS, COLS)


def work_of(forward: Forward) -> tuple[Work, int]:
    """What a reference has to do, and the bytes of its outputs and of what it leaves in its inputs, each written out."""
    trial, given = drawn(), drawn()
    before = [tensor.clone() for tensor in trial]
    outputs = flat_tensors(forward(*trial))
    changed = [at for at in range(2) if not torch.equal(before[at], trial[at])]
    found = necessary(given, [WEIGHT], [given[at] for at in changed], lambda: flat_tensors(forward(*given)))
    written = sum(tensor.numel() * tensor.element_size() for tensor in [*outputs, *(trial[at] for at in changed)])
    return Work(found.read, 0, found.written), written


@pytest.mark.parametrize("name", [*AS_IT_IS, *MADE])
def test_necessary_bytes(name: str) -> None:
    forward, read, written = (AS_IT_IS | MADE)[name]
    work, _ = work_of(forward)
    assert (work.input_bytes, work.output_bytes) == (read, written)


def verdict(work: Work, written: int, stated: float) -> None:
    """Raises: Failed for a time that cannot be, of a reference that takes long itself."""
    samples = Samples([stated] * 12, [stated] * 12, [0.0] * 12, True, written, 1, input_bytes=2 * X, lates=[0.0] * 12)
    found = runtime(samples, [1e9], work, NO_OVERHEAD, UNCACHED)
    validate(samples, found, NO_OVERHEAD, UNCACHED, work, lambda: work.input_bytes)


@pytest.mark.parametrize("name", AS_IT_IS)
def test_a_version_that_moves_no_more_than_it_must_is_taken(name: str) -> None:
    forward, read, moved = AS_IT_IS[name]
    verdict(*work_of(forward), stated=floor_ms(read, moved, 0, UNCACHED.dram_gbs))


@pytest.mark.parametrize("name", [name for name, (_, read, moved) in (AS_IT_IS | MADE).items() if read + moved])
def test_a_version_that_leaves_a_part_of_it_out_is_refused(name: str) -> None:
    forward, read, moved = (AS_IT_IS | MADE)[name]
    stated = 0.99 * FLOOR_SHARE * floor_ms(read, moved, 0, UNCACHED.dram_gbs)
    with pytest.raises(Failed, match="some of it was not done") as caught:
        verdict(*work_of(forward), stated=stated)
    assert caught.value.diagnosis.kind == "FasterThanMemory"


TASK_TEXT = """
import torch
from torch import nn

rows, cols = 64, 48
VARIANTS = {"small": {"rows": 6, "cols": 20}, "odd1": {"rows": 5, "cols": 33}}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        SETUP

    def forward(self, x, y):
        RESULT


def get_inputs():
    return [torch.randn(rows, cols), torch.randn(rows, cols)]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("setup", "result", "read", "written"),
    [
        ("pass", "return {'as it is': x, 'again': x, 'sums': y.sum(-1)}", X, ROWS * 4),
        ("pass", "return x[:, :12], x[:, 12:24].exp()", X // 4, X // 4),
        ("pass", "out = x * y; return out, out.t(), out[:3]", 2 * X, X),
        ("pass", "x[4] += y[4]; return x, y.sum(-1)", X + COLS * 4, COLS * 4 + ROWS * 4),
        (
            "self.register_buffer('kept', torch.zeros(99, 7))",
            "self.kept[0] += y.sum(); return self.kept, x + 1",
            2 * X,
            X + 28,
        ),
        ("pass", "return x.clone(), y", X, X),
    ],
)
def test_the_work_of_a_task(setup: str, result: str, read: int, written: int, tmp_path: Path) -> None:
    task = task_from_source(TASK_TEXT.replace("SETUP", setup).replace("RESULT", result), "views")
    seeds: Iterator[int] = iter(range(100))
    work = ReferenceState(task, HostBackend(), tmp_path, lambda: next(seeds)).work
    assert (work.input_bytes, work.output_bytes) == (read, written)


@pytest.mark.parametrize(
    "views",
    [
        lambda m: [m[:40], m[40:60], m[70:]],
        lambda m: [m[:40], m[30:60], m[10:20]],
        lambda m: [m[::2]],
        lambda m: [m[::2], m[1::2]],
        lambda m: [m[::3], m[:30]],
        lambda m: [m.view(10, 12)[:, :5], m.view(10, 12)[:, 3:9], m.view(12, 10)[2:4]],
        lambda m: [torch.as_strided(m, (10, 3), (4, 2))],
        lambda m: [m[5:6].expand(9), m[5]],
        lambda m: [m.view(10, 12).t(), m[:0]],
        lambda m: [m.view(torch.int16)[3:9], m[::5], m.view(torch.int64)[7:9]],
    ],
)
def test_distinct_bytes_are_those_that_are_there(views: Callable[[torch.Tensor], list[torch.Tensor]]) -> None:
    memory = torch.zeros(120 * 4, dtype=torch.uint8)
    found = views(memory.view(torch.int32))
    pieces = [piece for tensor in found if (piece := Piece.of(tensor)) is not None]
    memory.zero_()
    for tensor in found:
        for place in product(*map(range, tensor.shape)):
            tensor[place] = -1
    assert distinct_bytes(pieces) == int((memory != 0).sum())
