"""Who writes a result that hangs on all of an input must have seen all of it."""

from __future__ import annotations

from typing import Any

import pytest

from mtmc.evaluate.counting.upstream import everywhere, seen_of, short_of
from mtmc.evaluate.reference.reference import Reference
from mtmc.task import task_from_source

X, PART, OUT, OTHER = range(4)
SIZE = 1000
TEXT = """
import torch

rows, cols = 6, 10


class Model(torch.nn.Module):
    def forward(self, x, y):
        return {}


def get_inputs():
    return [torch.randn(rows, cols), torch.randn(cols)]


def get_init_inputs():
    return []
"""


def launch(
    reads: dict[int, int], writes: dict[int, int], own: int = 10, atomics: int = 0, **more: Any
) -> dict[str, Any]:
    sides = {"reads": [*reads.items()], "writes": [*writes.items()]}
    return {"kernel": "k", **sides, "program_read": own, "atomics": atomics, **more}


def op(reads: dict[int, int], writes: dict[int, int]) -> dict[str, Any]:
    return {"op": "aten.sum", "reads": [*reads.items()], "writes": [*writes.items()]}


WRITES = launch({X: SIZE, PART: 8}, {OUT: SIZE})
SEEN = {
    "two launches": ([launch({X: SIZE}, {PART: 8}), WRITES], SIZE + 10),
    "an op and a launch": ([op({X: SIZE}, {PART: 8}), WRITES], SIZE + 10),
    "a part": ([launch({X: 100}, {PART: 8}), WRITES], 110),
    "all, for nothing": ([launch({X: 100}, {PART: 8}), launch({X: SIZE}, {OTHER: 8}), WRITES], 110),
    "a program for itself": ([launch({X: SIZE}, {OUT: SIZE})], 10),
    "one that waits for others": ([launch({X: SIZE}, {OUT: SIZE}, atomics=64)], SIZE),
    "one that reads all": ([launch({X: SIZE}, {OUT: SIZE}, own=SIZE)], SIZE),
    "an op alone": ([op({X: SIZE}, {OUT: SIZE})], SIZE),
}


@pytest.mark.parametrize("name", SEEN)
def test_what_the_last_launch_has_seen(name: str) -> None:
    records, seen = SEEN[name]
    assert seen_of(X, records, 0.9 * SIZE) == seen
    assert bool(short_of([X], [SIZE], records, SIZE, 0.9)) == (seen < 0.9 * SIZE)


def test_nothing_is_said_of_a_forward_that_writes_no_such_result() -> None:
    assert seen_of(X, [launch({X: 5}, {PART: 8})], 0.9 * SIZE) is None
    assert not short_of([X], [SIZE], [], SIZE, 0.9)


@pytest.mark.parametrize(
    ("forward", "hangs"),
    [
        ("x / x.norm()", [True, False]),
        ("(x - x.amin()) / (x.amax() - x.amin()) * y.sum()", [True, True]),
        ("torch.softmax(x, -1)", [False, False]),
        ("x - x.mean(0)", [False, False]),
        ("(x * y).sum()", [False, False]),
    ],
)
def test_inputs_that_all_of_a_result_hangs_on(forward: str, hangs: list[bool], tmp_path: Any) -> None:
    task = task_from_source(TEXT.format(forward), "hanging")
    assert everywhere(Reference(task, task.full, tmp_path, 0)) == hangs
