"""Rows in groups, each times a matrix of its own: one kernel, whatever groups there are, empty ones too."""

from __future__ import annotations

import pytest
import torch

from mtmc.errors import MtmcError
from mtmc.evaluate.reference.fp64 import computing_in
from mtmc.rewrite.body import NotCovered
from mtmc.rewrite.expansion import build
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.operators.table import table
from mtmc.rewrite.plan import graph_of, root_plan
from mtmc.rewrite.source import print_plan
from mtmc.rewrite.templates.product import analyse
from mtmc.task import Task, task_from_source
from tests.rewrite.interpreted import apply
from tests.rewrite.interpreting import interpret
from tests.rewrite.stepping import version as stepped
from tests.rewrite.test_plan import version

REFERENCE = """
import torch
from torch import nn
from torch.nn import functional as F

T, K, N, E = 512, 64, 96, 8
VARIANTS = {{
    "small": {{"T": 40, "K": 16, "N": 24, "E": 4}},
    "odd1": {{"T": 37, "K": 24, "N": 40, "E": 5}},
    "odd2": {{"T": 3, "K": 8, "N": 16, "E": 9}},
}}


class Model(nn.Module):
    def forward(self, x, gate, up, across, weights, offs):
        {work}


def get_inputs():
    shapes = ((T, K), (E, K, N), (E, K, N), (E, N, K), (T, 1))
    ends = [0, *(each * each % 3 + each * T // E for each in range(1, E - 2)), T, T]  # empty ones first, last and between
    ends = torch.tensor(ends[:E], dtype=torch.int32).clamp(max=T).cummax(0).values
    ends[-1] = T
    return [*(torch.randn(shape, dtype=torch.bfloat16) for shape in shapes), ends.to(torch.int32)]


def get_init_inputs():
    return []
"""
CASES = {
    "alone": "return F.grouped_mm(x, gate, offs=offs)",
    "gated": "return F.silu(torch._grouped_mm(x, gate, offs)) * torch._grouped_mm(x, up, offs)",
    "across": "return F.grouped_mm(x, across.transpose(1, 2), offs=offs)",
    "weighted": "return F.grouped_mm(x.relu(), up, offs=offs).float() * weights",
    "a_group_for_each": "return F.grouped_mm(x.new_ones(E, 5, 1) * x[:1], gate)",
}


def task_of(work: str) -> Task:
    return task_from_source(REFERENCE.format(work=work), "groups")


def scheduled(work: str, settings: dict[str, int | str], views: bool = False) -> str:
    """views: whether what turns matrices is left to torch, as a search leaves it."""
    task = task_of(work)
    graph = export_graph(task)
    root = version(task, graph, root_plan(graph))
    kernel = root.as_kernel(tuple(op.name for op in graph.ops if not views or op.target not in TURNING), {})
    assert kernel is not None and kernel.template == "matmul"
    merged = [stage for stage in root.plan.stages if set(stage.ops) <= set(kernel.ops)]
    return print_plan(task, graph, root.plan.with_merged(graph, merged, kernel.scheduled(settings))).source


def test_products_of_groups_are_right() -> None:
    cases = [
        {"name": name, "source": task_of(work).source, "ways": [["fuse", "lower"]]} for name, work in CASES.items()
    ]
    tile: dict[str, int | str] = {"block_m": 16, "block_n": 16, "block_k": 16}
    ways = {"tiles": tile, "turns": {**tile, "persistent": 3}, "swapped": {**tile, "swapped": 1, "order": "nm"}}
    for name, settings in ways.items():
        text = scheduled(CASES["gated"], settings)
        cases.append({"name": name, "source": task_of(CASES["gated"]).source, "candidate": text})
    assert interpret(cases) == dict.fromkeys((*CASES, *ways))


DESCRIBED: dict[str, int | str] = {"block_m": 16, "block_n": 16, "block_k": 16, "operands": "descriptors"}
OF_DESCRIPTORS = {
    "alone": CASES["alone"],
    "gated": CASES["gated"],
    "across": "return F.grouped_mm(x, across.mT, offs=offs)",
    "gated_across": "return F.grouped_mm(x, across.mT, offs=offs).relu() * F.grouped_mm(x, across.flip(0).mT, offs=offs)",
    "weighted": CASES["weighted"],
}
"""Forward -> a product of groups whose tiles come through descriptors."""
TURNING = ("aten.mT.default", "aten.flip.default", "aten.slice.Tensor", "aten.repeat.default")


def test_tiles_of_groups_come_through_descriptors() -> None:
    ways: dict[str, dict[str, int | str]] = {"": {}, "turns": {"persistent": 3}, "long": {"block_k": 64, "block_m": 64}}
    texts = {
        f"{name}-{way}": (work, scheduled(work, DESCRIBED | settings, views=True))
        for name, work in OF_DESCRIPTORS.items()
        for way, settings in ways.items()
    }
    assert all("_tiles.load([begin, start])" in text for _, text in texts.values())
    cases = [{"name": name, "source": task_of(work).source, "candidate": text} for name, (work, text) in texts.items()]
    assert interpret(cases) == dict.fromkeys(texts)


@pytest.mark.parametrize(
    ("work", "settings"),
    [
        ("return F.grouped_mm(x, across.mT, offs=offs) * F.grouped_mm(x, up, offs=offs)", {}),
        ("return F.grouped_mm(x, gate.repeat(1, 1, 2)[..., : gate.shape[2]], offs=offs)", {}),
        (CASES["alone"], {"results": "descriptors"}),
        (CASES["alone"], {"operands": "own_descriptors"}),
    ],
)
def test_other_matrices_of_groups_have_no_descriptor(work: str, settings: dict[str, int | str]) -> None:
    with pytest.raises(MtmcError, match="descriptor"):
        scheduled(work, DESCRIBED | settings, views=True)


@pytest.mark.parametrize(("work", "columns", "stages"), [("gated_across", 128, 4), ("across", 256, 4)])
def test_groups_of_many_rows_start_with_descriptors(work: str, columns: int, stages: int) -> None:
    sizes = "T, K, N, E = 4096, 1024, 1024, 16"
    task = task_from_source(task_of(OF_DESCRIPTORS[work]).source.replace("T, K, N, E = 512, 64, 96, 8", sizes), "many")
    at = stepped(task, root_plan(export_graph(task)))
    stage = at.as_kernel(tuple(op.name for op in at.graph.ops if op.target not in TURNING), {})
    assert stage is not None and dict(stage.schedule)["operands"] == "descriptors"
    assert [stage.number(name) for name in ("block_m", "block_n", "num_stages")] == [128, columns, stages]


def test_a_gated_layer_is_one_kernel_with_as_many_rows_as_groups_have() -> None:
    plan = apply(task_of(CASES["gated"]), ["fuse", "lower"])
    [stage] = plan.stages
    assert stage.template == "matmul" and stage.number("block_m") == 64  # 512 rows of 8 groups
    text = print_plan(task_of(CASES["gated"]), graph_of(export_graph(task_of(CASES["gated"])), plan), plan).source
    assert "min(triton.cdiv(x.shape[0], 64) + gate.shape[0] - 1, x.shape[0])" in text


@pytest.mark.parametrize(
    ("work", "why"),
    [
        ("return F.grouped_mm(x.t(), x, offs=offs)", "anything but the rows"),
        ("return F.grouped_mm(x, gate, offs=offs).sum(-1)", "reductions over the columns"),
        ("return F.grouped_mm(x, gate, offs=offs + 0)", "made in the same kernel"),
        (
            "return F.grouped_mm(x, gate, offs=offs) * F.grouped_mm(x, up, offs=offs.flip(0))",
            "products of other groups",
        ),
    ],
)
def test_what_else_is_refused(work: str, why: str) -> None:
    graph = export_graph(task_of(work))
    flips = [op.name for op in graph.ops if "flip" in op.target]
    with pytest.raises(NotCovered, match=why):
        analyse(graph, build(graph, [op.name for op in graph.ops if op.name not in flips], table))


def test_float64_has_grouped_products_too() -> None:
    """By hand: rows 0 to 1 times 2, no row times 3, row 2 times 5."""
    x, ends = torch.ones(3, 8), torch.tensor([2, 2, 3], dtype=torch.int32)
    weights = torch.tensor([2.0, 3.0, 5.0])[:, None, None].expand(3, 8, 8)
    with computing_in(torch.float64):
        rows = torch._grouped_mm(x.double(), weights.double(), ends)
        inner = torch._grouped_mm(x.double().t(), x.double(), ends)
        across = torch._grouped_mm(weights.double(), x.double().t(), ends)
        alone = torch._grouped_mm(weights.double(), weights.double())
    assert rows[:, 0].tolist() == [16.0, 16.0, 40.0] and rows.dtype == torch.float64
    assert inner[:, 0, 0].tolist() == [2.0, 0.0, 1.0]
    assert across[0].tolist() == [16.0, 16.0, 40.0]
    assert alone[:, 0, 0].tolist() == [32.0, 72.0, 200.0]
