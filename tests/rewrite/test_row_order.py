"""Rows of matrices that indices pick: programs of one place in all of them come one behind the other."""

from __future__ import annotations

import pytest

from mtmc.optimizations import Version
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import Stage, root_plan
from mtmc.rewrite.source import print_plan
from mtmc.task import task_from_source
from tests.rewrite.interpreting import interpret
from tests.rewrite.stepping import actions_on, version

REFERENCE = """
import torch
from torch import nn

tokens, chosen, width, experts, hidden = {sizes}
VARIANTS = {{
    "small": {{"tokens": 3, "chosen": 2, "width": 32, "experts": 8, "hidden": 24}},
    "odd1": {{"tokens": 2, "chosen": 3, "width": 21, "experts": 5, "hidden": 19}},
    "odd2": {{"tokens": 5, "chosen": 1, "width": 13, "experts": 9, "hidden": 12}},
}}


class Model(nn.Module):
    def __init__(self, experts, width, hidden):
        super().__init__()
        self.weights = nn.Parameter(torch.randn(experts, hidden, width))

    def forward(self, x, routes):
        return {forward}


def get_inputs():
    return [torch.randn(tokens, width), torch.randint(0, experts, (tokens, chosen))]


def get_init_inputs():
    return [experts, width, hidden]
"""
LARGE, MANY, SMALL = "4, 4, 1024, 32, 2048", "1024, 4, 1024, 32, 2048", "4, 4, 64, 32, 96"
PRODUCT = 'torch.einsum("beck,bk->bec", self.weights[routes], x)'
ROWS = "reorder the"


def kernel(forward: str, sizes: str) -> tuple[Version, Stage]:
    """A version with one kernel for all of forward."""
    task = task_from_source(REFERENCE.format(forward=forward, sizes=sizes), "looked_up")
    at = version(task, root_plan(export_graph(task)))
    stage = at.as_kernel(tuple(op.name for op in at.graph.ops), {})
    assert stage is not None
    return at, stage


ZERO_BEYOND = "tl.where(mask"
"""What a sum of products needs not: all that is loaded is 0 where no column is."""
OF_MATRICES = {
    PRODUCT: False,
    "self.weights[routes].abs().amax(-1)": True,
    "(self.weights[routes] * x[:, None, None]).sum(-1)": False,
    "(self.weights[routes].square() - x.abs()[:, None, None]).sum(-1)": False,
    "(self.weights[routes] * x.exp()[:, None, None]).sum(-1) + 1.0": True,
    "(self.weights[-routes] + 1.0).sum(-1)": True,
}
"""Forward -> whether columns that are none are left out element by element."""


@pytest.mark.parametrize("forward", OF_MATRICES)
def test_all_rows_are_made_in_whatever_order(forward: str) -> None:
    source = REFERENCE.format(forward=forward, sizes=LARGE)
    ways = [["fuse", "lower"], ["fuse", "lower", f"{ROWS} index"], ["fuse", "lower", "vectorize"]]
    assert interpret([{"name": "looked_up", "source": source, "ways": ways}]) == {"looked_up": None}


@pytest.mark.parametrize("forward", OF_MATRICES)
def test_what_all_rows_of_a_program_have_in_common_is_there_once(forward: str) -> None:
    at, stage = kernel(forward, LARGE)
    child = version(at.task, at.plan.with_merged(at.graph, at.plan.stages, stage))
    text = print_plan(child.task, child.graph, child.plan).source
    assert "routes_at = tl.load(routes_ptr + outer)" in text
    assert (ZERO_BEYOND in text) == OF_MATRICES[forward]
    assert 'other=tl.where(inside, 0.0, float("nan"))' in text and "tl.where(inside, weights" not in text


@pytest.mark.parametrize(
    ("dtype", "sizes", "rows"),
    [
        ("bfloat16", LARGE, 16),
        ("float32", LARGE, 8),
        ("bfloat16", "4, 4, 2880, 32, 5760", 4),
        ("bfloat16", "1, 2, 1024, 8, 96", 1),
    ],
)
def test_a_program_has_what_four_warps_load_at_once(dtype: str, sizes: str, rows: int) -> None:
    task = task_from_source(
        REFERENCE.format(forward=PRODUCT, sizes=sizes).replace("width)", f"width, dtype=torch.{dtype})"), "looked_up"
    )
    at = version(task, root_plan(export_graph(task)))
    stage = at.as_kernel(tuple(op.name for op in at.graph.ops), {})
    assert stage is not None and (stage.number("block_rows"), stage.number("num_warps")) == (rows, 4)


def test_columns_that_are_none_look_nothing_up() -> None:
    """What an index is made of is 0 there, and the index itself may be out of range."""
    source = REFERENCE.format(forward="x[:, width + 1 - which].sum(-1)", sizes=LARGE)
    source = source.replace("(self, x, routes)", "(self, x, which)")
    source = source.replace("torch.randint(0, experts, (tokens, chosen))", "torch.randint(2, width, (width - 4,))")
    assert interpret([{"name": "far", "source": source, "ways": [["fuse", "lower"]]}]) == {"far": None}


def test_an_index_out_of_range_makes_nan_of_its_rows_alone() -> None:
    """For which torch raises: they read nothing, and columns that are none do not hide it."""
    at, stage = kernel(f"{PRODUCT}.isnan()", LARGE)
    child = version(at.task, at.plan.with_merged(at.graph, at.plan.stages, stage))
    text = print_plan(child.task, child.graph, child.plan).source
    outside = "((routes < -experts) | (routes >= experts))[..., None].expand(-1, -1, self.weights.shape[1]).clone()"
    source = REFERENCE.format(forward=outside, sizes=LARGE).replace(
        "randint(0, experts", "randint(-2 * experts, 2 * experts"
    )
    assert interpret([{"name": "nan", "source": source, "candidate": text}]) == {"nan": None}


def test_rows_of_large_matrices_start_place_by_place() -> None:
    at, stage = kernel(PRODUCT, LARGE)
    assert dict(stage.schedule)["order"] == "looked_up"
    child = version(at.task, at.plan.with_merged(at.graph, at.plan.stages, stage))
    [action] = [each for each in actions_on(child) if "looked up" in each.sentence]
    assert dict(action.params)["order"] == "rows"


@pytest.mark.parametrize(
    ("forward", "sizes"),
    [(PRODUCT, MANY), (PRODUCT, SMALL), ("self.weights.sum(-1)", LARGE), ("self.weights[routes].sum(2)", LARGE)],
)
def test_other_rows_come_as_they_lie(forward: str, sizes: str) -> None:
    _, stage = kernel(forward, sizes)
    assert "order" not in dict(stage.schedule)
