"""Products of whole numbers of 8 bits: added up in 32, with what makes numbers of them, in one kernel."""

from __future__ import annotations

import pytest

from mtmc.evaluate.lab import LabSettings
from mtmc.protocols import EvaluationRequest
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import graph_of
from mtmc.rewrite.source import print_plan
from mtmc.task import Task, task_from_source
from tests.rewrite.interpreted import apply
from tests.rewrite.interpreting import interpret

REFERENCE = """
import torch
from torch import nn

rows, inner, cols = 256, 512, 256
VARIANTS = {{
    "small": {{"rows": 32, "inner": 128, "cols": 64}},
    "odd1": {{"rows": 19, "inner": 40, "cols": 24}},
    "odd2": {{"rows": 33, "inner": 264, "cols": 88}},
}}


class Model(nn.Module):
    def forward(self, x, weight, scale):
        {work}


def get_inputs():
    weight = torch.randint(-127, 128, ({shape}), dtype=torch.int8)
    return [torch.randint(-127, 128, (rows, inner), dtype=torch.int8), weight, torch.rand(cols) / 64]


def get_init_inputs():
    return []
"""
LINEAR = "torch._int_mm(x, weight.T)"
CASES = {
    # name: forward, the weight's shape, templates of the kernels
    "weights_of_a_layer": (f"return torch.relu({LINEAR}.float() * scale + 1.0).half()", "cols, inner", ["matmul"]),
    "across": ("return torch._int_mm(x, weight).to(torch.float32) * scale", "inner, cols", ["matmul"]),
    "sums_themselves": (f"return {LINEAR}", "cols, inner", ["matmul"]),
    "sums_and_what_is_made_of_them": (f"y = {LINEAR}; return y, y.float() * 0.5", "cols, inner", ["matmul"]),
    "whole_numbers_of_whole_numbers": (f"return ({LINEAR} >> 4).clamp(-128, 127).to(torch.int8)", "cols, inner", ["matmul"]),
    "rows_that_are_reduced": (f"return ({LINEAR}.float() * scale).softmax(-1)", "cols, inner", ["matmul", "rowwise"]),
    "quantized_on_the_way": (
        f"y = (x.float() * 0.5).round().to(torch.int8); return {LINEAR.replace('(x', '(y')}.float() * scale",
        "cols, inner",
        ["pointwise", "matmul"],
    ),
}  # fmt: skip


def task_of(name: str) -> Task:
    work, shape, _ = CASES[name]
    return task_from_source(REFERENCE.format(work=work, shape=shape), name)


@pytest.fixture(scope="module")
def problems() -> dict[str, str | None]:
    ways = [["fuse", "lower"], ["lower"], ["fuse", "lower", "retile"]]
    cases = [
        {
            "name": name,
            "source": REFERENCE.format(work=work, shape=shape),
            "ways": ways,
            "same": name.startswith("sums_t"),
        }
        for name, (work, shape, _) in CASES.items()
    ]
    return interpret(cases)


@pytest.mark.parametrize("name", CASES)
def test_products_of_whole_numbers_are_right(problems: dict[str, str | None], name: str) -> None:
    assert problems[name] is None


@pytest.mark.parametrize("name", CASES)
def test_they_are_products_with_what_follows_each_element(name: str) -> None:
    task = task_of(name)
    plan = apply(task, ["fuse", "lower"])
    assert [stage.template for stage in plan.stages if not stage.is_torch] == CASES[name][2]
    text = print_plan(task, graph_of(export_graph(task), plan), plan).source
    assert "tl.int32)" in text and "other=0.0)\n            _int_mm" not in text


def test_what_tensor_cores_cannot_read_across_is_copied_or_read_as_it_lies() -> None:
    """Slices of 128 bytes, as of 16-bit numbers of 64, and tiles by descriptors; a weight [inner, cols] is transposed."""
    [stage] = [each for each in apply(task_of("weights_of_a_layer"), ["fuse", "lower"]).stages if not each.is_torch]
    assert stage.setting("operands") == "descriptors" and stage.number("block_k") % 64 == 0
    assert stage.number("split_k") == 1


@pytest.mark.parametrize("way", [["lower"], ["fuse", "lower"]])
def test_they_are_built_and_right_in_the_lab(way: list[str]) -> None:
    """Interpretation asks for less than the compiler does."""
    task = task_of("weights_of_a_layer")
    plan = apply(task, way)
    text = print_plan(task, graph_of(export_graph(task), plan), plan).source
    with LabSettings(workers=1).open() as lab:
        [outcome] = lab.evaluate([EvaluationRequest(task, text, 0, "screen")])
    assert outcome.ok, outcome.diagnosis
