"""Tensors that forward makes of numbers, as values inside the kernels that read them."""

from __future__ import annotations

import re

import pytest

from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import root_plan
from mtmc.rewrite.source import print_plan
from mtmc.task import Task, task_from_source
from tests.rewrite.interpreting import interpret
from tests.rewrite.references import reference
from tests.rewrite.stepping import after, version

CASES = {
    "places": reference("torch.where(torch.arange(x.shape[1]) % 3 == 0, x, -torch.inf).softmax(-1)"),
    "places_of_floats": reference("x * torch.arange(x.shape[1], dtype=torch.float32)"),
    "lower_triangle_of_ones": reference("x.masked_fill(torch.tril(torch.ones(x.shape[0], x.shape[1])) == 0, -9.0)"),
    "mask_of_places": reference("torch.where(torch.arange(x.shape[1]) < 5, x, 0.0), x + 1"),
    "wide_and_narrow": reference("x + torch.full((x.shape[1],), 2.5) * torch.zeros_like(x).fill_(3.0)"),
    "places_of_rows": reference("x * torch.arange(x.shape[0])[:, None], x.exp()"),
    "places_twice": reference(
        "((p := (torch.arange(x.shape[0]) - 2)[:, None]) * x).sum(-1), (x * torch.ones(x.shape[0])[:, None] + p).amax(-1)"
    ),
    "places_apart": reference(
        "x[:, None] * (torch.arange(x.shape[0])[:, None, None] * 3 - torch.arange(x.shape[1])).to(x.dtype)"
    ),
    "powers_by_size": reference("x.abs() ** (x.shape[1] / 10), x % (x.shape[1] / 10), (x > x.shape[0] / 9).sum(-1)"),
}


def test_kernels_give_what_torch_gives() -> None:
    cases = [{"name": name, "source": text, "ways": [["lower"]]} for name, text in CASES.items()]
    assert interpret(cases) == dict.fromkeys(CASES)


def lowered(task: Task, op: str) -> str:
    """The source after one call became a kernel."""
    start = version(task, root_plan(export_graph(task)))
    _, found = after(start, f"lower {op} ")
    return print_plan(task, found.graph, found.plan).source


@pytest.mark.parametrize("name", ["places", "lower_triangle_of_ones", "mask_of_places", "places_of_rows"])
def test_what_a_kernel_makes_itself_is_called_no_more(name: str) -> None:
    reads = {"lower_triangle_of_ones": "masked_fill", "places_of_rows": "mul"}.get(name, "where")
    source = lowered(task_from_source(CASES[name], name), reads)
    forward = source[source.index("def forward") :]
    assert "_kernel" in source and not re.search(r"arange|ones|remainder|tril|aten\.(eq|lt)", forward)


def test_what_something_else_reads_is_called() -> None:
    task = task_from_source(reference("(t := torch.arange(x.shape[1])), torch.where(t < 5, x, 0.0)"), "both")
    forward = lowered(task, "where")
    assert "arange = torch" in forward[forward.index("def forward") :]
