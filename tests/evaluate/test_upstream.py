"""Who writes a result that hangs on all of an input must have seen all of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mtmc.evaluate.counting.floor import floor
from mtmc.evaluate.counting.upstream import everywhere, seen_of, short_of, unreached
from mtmc.evaluate.reference.reference import Reference
from mtmc.task import task_from_source
from tests.exploits.catalogue import task

X, PART, OUT, OTHER = range(4)
SIZE = 1000
TEXT = """
import torch

rows, cols = 12, 20


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


def _record(
    reads: list[tuple[int, int]], writes: list[tuple[int, int]], kernel: bool = True, more: int = 0
) -> dict[str, Any]:
    found: dict[str, Any] = {"reads": reads, "writes": writes}
    totals = {"unique_read": sum(n for _, n in reads) + more, "unique_written": sum(n for _, n in writes)}
    return {**found, **({"kernel": "k", **totals} if kernel else {"op": "aten.relu"})}


@pytest.mark.parametrize(
    ("records", "left"),
    [
        ([_record([(0, 8)], [(1, 8)]), _record([(1, 8)], [(2, 4)], kernel=False)], ""),
        ([_record([(0, 8)], [(1, 8)])], "output 1"),  # nobody writes it
        ([_record([(0, 8)], [(1, 8)]), _record([], [(2, 4)], kernel=False)], "output 1"),  # it is filled
        ([_record([(0, 8)], [(1, 8)]), _record([(3, 8)], [(2, 4)])], "output 1"),  # of a weight
        ([_record([(0, 8)], [(1, 8)]), _record([(0, 0)], [(2, 4)])], "output 1"),
        ([_record([(0, 8)], [(1, 8)]), _record([(3, 8)], [(2, 4)], more=4)], ""),  # at addresses from memory
        ([_record([(4, 8)], [(2, 4)]), _record([(0, 8)], [(1, 8), (4, 8)])], ""),  # what a graph replays may come first
    ],
)
def test_each_output_is_written_by_what_has_read_an_input(records: list[dict[str, Any]], left: str) -> None:
    assert unreached((True, True), (), (1, 2), {}, 1, records) == left
    assert unreached((True, False), (), (1, 2), {}, 1, records) == ""
    said = unreached((True,), ("norm.mean",), (1,), {"norm.mean": 2}, 1, records)
    assert said == ("buffer 'norm.mean'" if left else "")
    assert unreached((), ("gone",), (1, 2), {}, 1, records) == "buffer 'gone'"


@pytest.mark.parametrize(
    ("name", "outputs", "state"),
    [("peaks", (True,), ("peaks",)), ("clipped_and_logsum", (True, True), ()), ("kept_layers", (False,), ("average",))],
)
def test_the_floor_knows_which_outputs_and_buffers_hang_on_inputs(
    name: str, outputs: tuple[bool, ...], state: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = floor(task(name))
    assert (found.outputs, found.state) == (outputs, state)
