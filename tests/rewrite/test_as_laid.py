"""Elementwise kernels write results in the order in memory that the reference's have."""

from __future__ import annotations

import re

import pytest

from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import Plan, graph_of
from mtmc.rewrite.source import print_plan
from mtmc.task import Task, task_from_source
from tests.rewrite.interpreted import apply
from tests.rewrite.interpreting import interpret
from tests.rewrite.references import reference

LAST = "torch.randn(2, n, 5, 3).to(memory_format=torch.channels_last)"
CHANNELS = "self.w = nn.Parameter(torch.randn(n, 1, 1))\nself.b = nn.Parameter(torch.randn(n))"
FLAT = {
    "channels_last": reference("torch.relu(x) * 2", LAST),
    "two_operands": reference("torch.relu(x) + y.exp()", f"{LAST}, {LAST}"),
    "two_results": reference("(x.relu(), x - 1)", LAST),
    "a_weight_of_channels": reference("torch.sigmoid(x * self.w)", LAST, CHANNELS),
    "a_norm_of_channels": reference(
        "F.batch_norm(x, self.m, self.v, self.b)",
        LAST,
        f"{CHANNELS}\nself.register_buffer('m', torch.randn(n))\nself.register_buffer('v', torch.rand(n) + 1)",
    ),
    "one_number": reference("x * y + 3", f"{LAST}, torch.randn(())"),
    "one_map_of_all_channels": reference("x * y", f"{LAST}, torch.randn(2, 1, 5, 3)"),
    "one_operand_in_order": reference("x + y", f"{LAST}, torch.randn(2, n, 5, 3)"),
    "turned_matrices": reference("x.mT.exp() - 1", "torch.randn(3, n, m)"),
    "volumes": reference("x.tanh()", "torch.randn(2, n, 3, 4, 5).to(memory_format=torch.channels_last_3d)"),
    "other_orders": reference("x.permute(2, 0, 3, 1).relu()", "torch.randn(3, n, 4, 5)"),
}
ASKED = {
    "enlarged": reference("F.interpolate(x, scale_factor=2.0, mode='bilinear')", LAST),
    "joined": reference("torch.cat((x, y.relu()), dim=1)", f"{LAST}, {LAST}"),
    "flipped": reference("x.flip(2) + x", LAST),
}
IN_ORDER = {
    "in_order": reference("torch.relu(x)", "torch.randn(2, n, 5, 3)"),
    "in_two_orders": reference("(x.relu(), x.contiguous() - 1)", LAST),
    "every_second": reference("torch.relu(x).contiguous()", LAST),
    "one_place": reference("torch.relu(x)", "torch.randn(2, n, 1, 1)"),
}
BETWEEN = {
    "an_expanded_operand": reference("x.relu() + y", f"{LAST}, torch.randn(1, n, 1, 1).expand(2, n, 5, 3)"),
    "masks": reference("(x > 0) & (y < 0.5)", f"{LAST}, {LAST}"),
    "a_changed_input": reference("x.mul_(2).relu() - 1", LAST),
    "one_row": reference("torch.relu(x) * 2", "torch.randn(2, n, 1, 3).to(memory_format=torch.channels_last)"),
    "every_second_channel": reference("x[:, ::2].relu()", LAST),
    "halves": reference("x.sigmoid() * y", f"{LAST}.bfloat16(), torch.randn(n, 1, 1).bfloat16()"),
    "the_library": reference(
        "self.g(torch.relu(self.f(x)) * 2)", LAST, "self.f, self.g = nn.Conv2d(n, 8, 3), nn.Conv2d(8, 4, 1)"
    ),
    "views_of_layers": reference(
        "self.f(x).mT.unflatten(2, (3, 4)).relu() * y", "torch.randn(2, 12, n), torch.randn(2, 6, 3, 4)",
        "self.f = nn.Linear(n, 6)",
    ),
}  # fmt: skip


def lowered(source: str) -> tuple[Task, Plan]:
    task = task_from_source(source, "laid")
    return task, apply(task, ["fuse all", "fuse", "lower"])


def printed(source: str) -> str:
    task, plan = lowered(source)
    return print_plan(task, graph_of(export_graph(task), plan), plan).source


@pytest.mark.parametrize("name", {**FLAT, **ASKED})
def test_a_result_is_handed_out_as_a_view_of_what_lies_in_order(name: str) -> None:
    text = printed({**FLAT, **ASKED}[name])
    assert re.search(r"^    (\w+) = \1\.permute\(", text, re.MULTILINE)
    assert "tl.store" in text


@pytest.mark.parametrize("name", sorted(set(FLAT) - {"one_operand_in_order"}))
def test_what_lies_alike_is_read_as_it_comes(name: str) -> None:
    kernel = printed(FLAT[name]).split("@triton.jit")[1].split("\ndef launch")[0]
    [wide] = [line for line in kernel.splitlines() if "x_ptr +" in line]
    assert "tl.load(x_ptr + offs, mask=mask" in wide, "no divisions to find the place"


@pytest.mark.parametrize("name", IN_ORDER)
def test_others_are_written_in_the_order_of_their_dimensions(name: str) -> None:
    assert not re.search(r"^    (\w+) = \1\.permute\(", printed(IN_ORDER[name]), re.MULTILINE)


def test_all_are_right_and_lie_as_the_references_do() -> None:
    sources = {**FLAT, **ASKED, **IN_ORDER, **BETWEEN}
    ways = [["fuse all", "fuse", "lower"], ["lower"], ["fuse all", "fuse", "lower", "direct_launch"]]
    laid = {*FLAT, *ASKED}
    cases = [{"name": name, "source": text, "ways": ways, "laid": name in laid} for name, text in sources.items()]
    assert interpret(cases) == dict.fromkeys(sources)
