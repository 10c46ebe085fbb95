"""Large products of fp32 numbers as products of their halves in fp16, three times as long."""

from __future__ import annotations

import pytest

from mtmc.optimizations import Version
from mtmc.optimizations.resources import shared_bytes
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import Stage, root_plan
from mtmc.rewrite.templates.product import analyse, triangle
from mtmc.task import task_from_source
from tests.rewrite.interpreting import interpret
from tests.rewrite.stepping import actions_on, after, version

REFERENCE = """
import torch
from torch import nn
import torch.nn.functional as F

rows, inner, columns = {sizes}
VARIANTS = {{
    "small": {{"rows": 5, "inner": 16, "columns": 24}},
    "odd1": {{"rows": 7, "inner": 21, "columns": 19}},
    "odd2": {{"rows": 3, "inner": 1, "columns": 40}},
}}


class Model(nn.Module):
    def __init__(self, inner, columns):
        super().__init__()
        self.layer = nn.Linear(inner, columns)

    def forward(self, x, y):
        return {forward}


def get_inputs():
    return [torch.randn(rows, inner), torch.randn(inner, columns) / inner**0.5]


def get_init_inputs():
    return [inner, columns]
"""
EVEN, LARGE = "1024, 640, 2048", "2048, 640, 4096"
ODD, FEW, SHORT = "601, 129, 515", "256, 640, 2048", "1024, 12, 2048"
HALVES = "rewrite by algebra: "
IS = "is a product of halves"
SCALES = "torch.exp2(30 - 12 * torch.arange({0}.shape[{1}]) % 61)"
ENDLESS = "x.masked_fill(x > 1.5, float('inf'))"
CUT = {
    "matrices": ("x @ y", EVEN),
    "rows that end within a line": ("x @ y", ODD),
    "work around": ("F.gelu((x + 1) @ y) * 2", EVEN),
    "a layer": ("torch.tanh(self.layer(x))", ODD),
    "all dimensions but one": ("torch.matmul(torch.stack([x, x * 3]), y)", EVEN),
    "a turned left operand": ("torch.mm(y.T, x.T)", EVEN),
    "a turned right operand": ("x @ self.layer.weight.T", ODD),
    "a triangle": ("torch.tril(x @ y)", EVEN),
    "rows and columns of any size": (f"x * {SCALES.format('x', 0)}[:, None] @ (y * {SCALES.format('y', 1)})", EVEN),
    "rows of zeros": ("F.relu(x - 9) @ y", EVEN),
    "what is infinite": (f"torch.nan_to_num({ENDLESS} @ y, 3.0, 2.0, -2.0).clamp(-2.0, 3.0)", EVEN),
    "what is no number": ("torch.nan_to_num(torch.sqrt(x + 2) @ y, 3.0)", EVEN),
}
KEPT = {
    "few rows": ("x @ y", FEW),
    "few terms": ("x @ y", SHORT),
    "a batch": ("torch.bmm(torch.stack([x, -x]), torch.stack([y, y * 2]))", EVEN),
    "narrow numbers": ("(x.half() @ y.half()).float()", EVEN),
    "numbers that were narrow": ("x.half().float() @ y.half().float()", EVEN),
    "a vector": ("x @ y[:, 0]", EVEN),
}


def reference(forward: str, sizes: str) -> str:
    return REFERENCE.format(forward=forward, sizes=sizes)


def root(forward: str, sizes: str) -> Version:
    task = task_from_source(reference(forward, sizes), "cut")
    return version(task, root_plan(export_graph(task)))


def cut(forward: str, sizes: str) -> tuple[Version, Stage]:
    """The version whose product is cut, and the kernel of the product."""
    start = root(forward, sizes)
    sentence = next(action.sentence for action in actions_on(start) if IS in action.sentence)
    made = after(start, sentence)[1]
    return made, next(stage for stage in made.kernels() if stage.template == "matmul")


@pytest.mark.parametrize("name", CUT)
def test_products_of_halves_are_as_exact_as_fp32(name: str) -> None:
    forward, sizes = CUT[name]
    source = reference(forward, sizes)
    sentence = next(action.sentence for action in actions_on(root(forward, sizes)) if IS in action.sentence)
    case = {"name": name.replace(" ", "_"), "source": source, "ways": [[sentence], [sentence, "fuse", "lower"]]}
    assert interpret([case]) == {case["name"]: None}


@pytest.mark.parametrize("name", KEPT)
def test_products_that_gain_nothing_are_left_alone(name: str) -> None:
    assert not [action for action in actions_on(root(*KEPT[name])) if IS in action.sentence]


def test_the_kernel_multiplies_halves_and_its_operands_are_written_once() -> None:
    made, kernel = cut("F.gelu(x @ y + 1)", LARGE)
    body = made.body(kernel)
    assert body is not None
    found = analyse(made.graph, body)
    assert (found.dtype, found.k[0], found.made, found.prologue) == ("float16", 3 * 640, (), ())
    assert [made.graph.values[value].dtype for value in (found.left, found.right)] == ["float16", "float16"]
    assert all(made.graph.values[value].contiguous for value in (found.left, found.right))
    assert len(made.kernels()) == 5  # sizes of rows, halves, of both operands, and the product
    assert shared_bytes(made.graph, kernel) == (3 * (128 + 256) * 64) * 2 + 128 * 256 // 2 * 4


def test_weights_are_cut_once() -> None:
    made, _ = cut("self.layer(x)", EVEN)
    assert made.plan.packed and len(made.kept()) >= 2


def test_rows_of_halves_begin_at_whole_lines() -> None:
    made, kernel = cut("x @ y", ODD)
    body = made.body(kernel)
    assert body is not None
    found = analyse(made.graph, body)
    assert found.k[0] == 392 and kernel.setting("operands") == "descriptors"
    assert "results" not in dict(kernel.schedule)  # rows of 515 numbers do not


@pytest.mark.parametrize(("sizes", "tile"), [("16384, 32, 16384", (128, 128)), ("1024, 32, 1024", (64, 64))])
def test_products_of_few_terms_start_with_large_tiles_where_these_are_many(sizes: str, tile: tuple[int, int]) -> None:
    _, kernel = cut("x @ y", sizes)
    assert (kernel.number("block_m"), kernel.number("block_n")) == tile
    described = dict(kernel.schedule).get("operands") == dict(kernel.schedule).get("results") == "descriptors"
    assert described == (tile == (128, 128))


def test_what_is_cut_off_is_not_multiplied() -> None:
    made, kernel = cut("torch.tril(x @ y)", LARGE)
    body = made.body(kernel)
    assert body is not None and triangle(analyse(made.graph, body))
    assert not dict(kernel.schedule).get("persistent")


def test_numbers_that_were_narrow_are_multiplied_as_such() -> None:
    forward = "torch.relu(x.half().float() @ y.half().float())"
    source = reference(forward, EVEN)
    assert interpret([{"name": "widened", "source": source, "ways": [["fuse", "lower"]]}]) == {"widened": None}
    start = root("x.bfloat16().float() @ self.layer.weight.bfloat16().float().T", EVEN)
    ops = [op.name for op in start.graph.ops if op.name.startswith(("to", "_to", "float"))]
    wide = [name for name in ops if start.graph.values[name].dtype == "float32"]
    product = start.graph.ops[-1].name
    turned = [
        op.name for op in start.graph.ops if "T" in op.target or "transpose" in op.target or "permute" in op.target
    ]
    kernel = start.as_kernel((*wide, *turned, product), {})
    assert kernel is not None
    body = start.body(kernel)
    assert body is not None and analyse(start.graph, body).dtype == "bfloat16"
