"""One file for few and for many rows: the launcher takes the tile, and all of them are right."""

from __future__ import annotations

from functools import cache

import pytest

from mtmc.errors import CoderError
from mtmc.optimizations import legal_moves
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import merged_ops
from mtmc.rewrite.source import print_plan
from mtmc.task import Task, task_from_source
from tests.rewrite.interpreting import interpret
from tests.rewrite.stepping import version

REFERENCE = """
import torch
from torch import nn

rows, inner, cols = 4096, 512, 192
VARIANTS = {
    "small": {"rows": 16, "inner": 64, "cols": 32},
    "odd1": {"rows": 17, "inner": 72, "cols": 70},
    "odd2": {"rows": 129, "inner": 40, "cols": 24},
}


class Model(nn.Module):
    def forward(self, x, weight):
        return nn.functional.linear(x, weight).relu()


def get_inputs():
    return [torch.randn(rows, inner).half(), torch.randn(cols, inner).half()]


def get_init_inputs():
    return []
"""


@cache
def task() -> Task:
    return task_from_source(REFERENCE, "rows")


def source_of(settings: dict[str, int | str]) -> str:
    graph, root = export_graph(task()), version(task())
    stage = root.as_kernel(merged_ops(graph, root.plan.stages), {})
    assert stage is not None
    return print_plan(task(), graph, root.plan.with_merged(graph, root.plan.stages, stage.scheduled(settings))).source


def test_a_launcher_takes_the_tile_by_the_number_of_rows() -> None:
    """16 rows, 17 and 129 rows: one for each tile."""
    described = {"operands": "descriptors", "results": "descriptors", "persistent": 4, "epilogue": 2}
    ways: dict[str, dict[str, int | str]] = {
        "pointers": {"operands": "pointers", "results": "pointers", "persistent": 0, "epilogue": 1},
        "described": {**described},
    }
    own: dict[str, int | str] = {"block_m": 64, "block_n": 64, "block_k": 32, "dispatch": "rows"}
    texts = {name: source_of({**own, **way}) for name, way in ways.items()}
    cases = [{"name": name, "source": task().source, "candidate": text} for name, text in texts.items()]
    assert interpret(cases) == dict.fromkeys(ways)
    for text in texts.values():
        assert "if (x.shape[0]) <= 16:" in text and "elif (x.shape[0]) <= 128:" in text
        assert "num_warps=warps" in text and "BLOCK_M=tile_m" in text
    assert "[tile_m, tile_n // 2]" in texts["described"]


def test_it_is_offered_and_taken_back() -> None:
    graph, root = export_graph(task()), version(task())
    stage = root.as_kernel(merged_ops(graph, root.plan.stages), {})
    assert stage is not None
    plan = root.plan.with_merged(graph, root.plan.stages, stage)
    for words in ("by the number of rows at run time", "as one for all numbers of rows"):
        [move] = [move for move in legal_moves(version(task(), plan)) if words in move.action.sentence]
        assert move.child is not None
        plan = move.child
    assert "tile_m" not in print_plan(task(), graph, plan).source


def test_a_product_that_is_shared_among_programs_has_one_tile() -> None:
    for other in ({"split_k": 2}, {"swapped": 1}):
        with pytest.raises(CoderError, match="made in another way"):
            source_of({"dispatch": "rows", "results": "pointers", "epilogue": 1, "persistent": 0, **other})
