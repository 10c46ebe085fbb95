"""The floor of a task is what honest work takes, and no more; who stays below it is refused."""

from __future__ import annotations

from typing import Any

import pytest
from evaluate_sources import HONEST, TASK, changed

from mtmc.evaluate import LabEvaluator, LabSettings
from mtmc.evaluate.counting import floor as counting
from mtmc.evaluate.counting.distinct import SHARE, distinct_bytes
from mtmc.evaluate.counting.floor import Floor, least_bits
from mtmc.evaluate.pool.worker import Pool
from mtmc.outcome import Diagnosis
from mtmc.protocols import EvaluationRequest
from mtmc.task import Task, Variant

TEXT = """
import torch
import torch.nn as nn

rows = 512
cols = 1024


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        SETUP

    def forward(self, *inputs):
        return RESULT


def get_inputs():
    return INPUTS


def get_init_inputs():
    return []
"""
PRODUCT = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product(x_ptr, y_ptr, out_ptr, m, n, k, KIND: tl.constexpr, SIZE: tl.constexpr):
    row = (tl.program_id(0) * SIZE + tl.arange(0, SIZE))[:, None]
    col = (tl.program_id(1) * SIZE + tl.arange(0, SIZE))[None, :]
    total = tl.zeros((SIZE, SIZE), dtype=tl.float32)
    for start in range(0, k, SIZE):
        along = start + tl.arange(0, SIZE)
        x = tl.load(x_ptr + row * k + along[None, :], mask=(row < m) & (along[None, :] < k), other=0.0)
        y = tl.load(y_ptr + along[:, None] * n + col, mask=(along[:, None] < k) & (col < n), other=0.0)
        total = tl.dot(x.to(KIND), y.to(KIND), total, input_precision="tf32x3")
    tl.store(out_ptr + row * n + col, total, mask=(row < m) & (col < n))


class ModelNew(nn.Module):
    def forward(self, x, y):
        (m, k), n = x.shape, y.shape[1]
        kind = tl.float16 if FULL else tl.float32
        out = torch.empty((m, n), device=x.device, dtype=x.dtype)
        product[(triton.cdiv(m, 64), triton.cdiv(n, 64))](x, y, out, m, n, k, KIND=kind, SIZE=64)
        return out
"""
PRODUCT_INPUTS = "[torch.randn(rows, cols), torch.randn(cols, rows)]"
FLOAT = 4
WHOLE = 512 * 1024 * FLOAT


def task(result: str, inputs: str = "[torch.randn(rows, cols)]", setup: str = "pass") -> Task:
    source = TEXT.replace("SETUP", setup).replace("RESULT", result).replace("INPUTS", inputs)
    held_out = (Variant("odd1", (("rows", 13), ("cols", 33))),)
    return Task("floor", source, Variant("full"), Variant("small", (("rows", 8), ("cols", 40))), held_out)


def floor(pool: Pool, found: Task) -> Floor:
    result = pool.run(counting.floor, {"task": found})
    assert result.value is not None, result
    return result.value


TWO = "[torch.randn(rows, cols), torch.randn(rows, cols)]"


@pytest.mark.parametrize(
    ("result", "inputs", "setup", "expected"),
    [
        ("inputs[0] + inputs[1]", TWO, "pass", 3 * WHOLE),
        ("inputs[0].relu().sum(-1)", "[torch.randn(rows, cols)]", "pass", WHOLE + 512 * FLOAT),
        ("inputs[0].max(-1).values", "[torch.randn(rows, cols)]", "pass", WHOLE + 512 * FLOAT),
        ("inputs[0].t()", "[torch.randn(rows, cols)]", "pass", 0),
        ("[inputs[0].t(), inputs[0] + 1]", "[torch.randn(rows, cols)]", "pass", 2 * WHOLE),
        ("inputs[0].relu_()", "[torch.randn(rows, cols)]", "pass", WHOLE),
        ("torch.where(inputs[0] > 0, inputs[0], inputs[1])", TWO, "pass", 2 * WHOLE),
        ("inputs[0][:, :8] * 2", "[torch.randn(rows, cols)]", "pass", 512 * 8 * FLOAT),
        ("inputs[0].relu()[:, :8].clone()", "[torch.randn(rows, cols)]", "pass", 512 * 8 * FLOAT),
        ("inputs[0][::2, ::2] * 2", "[torch.randn(rows, cols)]", "pass", WHOLE // 4),
        ("inputs[0] * 2", "[torch.randn(rows, 1).expand(rows, cols)]", "pass", WHOLE + 512 * FLOAT),
        ("(inputs[0] * 2).expand(rows, cols)", "[torch.randn(rows, 1)]", "pass", 2 * 512 * FLOAT),
        ("inputs[0][torch.arange(rows).flip(0)] * 1", "[torch.randn(rows, cols)]", "pass", WHOLE),
        ("inputs[0].tanh()[inputs[1]]", "[torch.randn(rows, cols), torch.arange(8)]", "pass", 8 * 1024 * FLOAT),
        ("inputs[0][inputs[1]] + inputs[0].sum(0)", "[torch.randn(rows, cols), torch.arange(8)]", "pass",
         WHOLE + 8 * 1024 * FLOAT),
        ("inputs[0] * inputs[1]", "[torch.randn(rows, cols), (torch.arange(rows) % 2).float()[:, None]]", "pass",
         WHOLE + 512 * FLOAT),
        ("torch.zeros(rows, cols).index_add(0, inputs[1], inputs[0])",
         "[torch.randn(rows, cols), torch.arange(rows)]", "pass", WHOLE),
        ("inputs[0] @ self.weight", "[torch.randn(rows, cols)]", "self.weight = nn.Parameter(torch.randn(cols, cols))",
         2 * WHOLE),
        ("(inputs[0] + 1, self.weight * 2)", "[torch.randn(rows, cols)]",
         "self.weight = nn.Parameter(torch.randn(cols, cols))", 2 * WHOLE),
        ("(inputs[0] * 2).chunk(2, dim=-1)", "[torch.randn(rows, cols)]", "pass", 2 * WHOLE),
        ("(lambda out: (out, out.t(), out[:3]))(inputs[0] * 2)", "[torch.randn(rows, cols)]", "pass", 2 * WHOLE),
        ("(inputs[0] * 2).unfold(0, 8, 1)", "[torch.randn(rows, cols)]", "pass", 2 * WHOLE),
        ("(inputs[0], inputs[0][:, ::2].exp())", "[torch.randn(rows, cols)]", "pass", WHOLE),
        ("inputs[0] + torch.randn(())", "[torch.randn(rows, cols)]", "pass", 2 * WHOLE),
        ("nn.functional.conv2d(inputs[0], torch.ones(4, 4, 1, 1), stride=2)", "[torch.randn(2, 4, rows, cols)]", "pass",
         2 * WHOLE),
        ("inputs[0] * (2 if inputs[0].sum() > 1 else 3)", "[torch.randn(rows, cols)]", "pass", 0),
    ],
)  # fmt: skip
def test_bytes(check_pool: Pool, result: str, inputs: str, setup: str, expected: int) -> None:
    found = floor(check_pool, task(result, inputs, setup))
    assert found.bytes == expected
    assert bool(found.unknown) == ("if inputs" in result)


def test_bits(check_pool: Pool) -> None:
    assert floor(check_pool, task("inputs[0] + 1")).bits == 24
    assert floor(check_pool, task("inputs[0] + 1", "[torch.randn(rows, cols).bfloat16()]")).bits == 8
    low = "(inputs[0].half() @ inputs[0].half().t()).float()"
    assert floor(check_pool, task(low)).bits == 11


def launch(reads: list[list[int]], writes: list[list[int]], **more: Any) -> dict[str, Any]:
    unique = {"unique_read": sum(n for _, n in reads), "unique_written": sum(n for _, n in writes)}
    return {"kernel": "k", "reads": reads, "writes": writes, "dot_flops": 0, "kinds": [], **unique, **more}


def test_distinct_bytes() -> None:
    records = [launch([[0, 60], [5, 7]], [[3, 10]]), launch([[0, 60], [1, 20]], [[3, 10]])]
    assert (
        distinct_bytes(records, [100, 40]) == 100 + 20 + 10 + 10
    )  # weights (5) do not count, and the first is read once
    gathered = launch([[1, 20]], [[3, 10]], unique_read=90)
    assert distinct_bytes([gathered], [100, 40]) == 20 + 10 + 70
    assert distinct_bytes([launch([], [[3, 10]], unique_written=25)], [100]) == 25
    assert distinct_bytes([], [100]) == 0


def test_least_bits() -> None:
    def dot(dtype: str, precision: str) -> dict[str, Any]:
        return launch([], [], dot_flops=8, kinds=[[dtype, precision]])

    assert least_bits([launch([], [])]) is None
    assert [least_bits([dot("fp32", kind)]) for kind in ("ieee", "tf32x3", "tf32")] == [24, 24, 11]
    assert least_bits([dot("fp32", "ieee"), dot("bf16", "ieee")]) == 8
    assert least_bits([{"op": "aten.mm", "dtype": "float16", "dot_flops": 8}, dot("fp32", "ieee")]) == 11
    small = launch([], [], dot_flops=8, dot_dtype="fp32", kinds=[["fp32", "ieee"], ["fp16", "ieee"]])
    assert least_bits([small]) == 11  # not the main one alone
    assert least_bits([launch([], [], kinds=[["fp32", "ieee"], ["bf16", "rounded"]])]) == 8
    cast = {"op": "aten._to_copy", "dtype": "bfloat16", "dot_flops": 0}
    assert least_bits([cast]) == 8 and least_bits([{**cast, "dtype": "int64"}]) is None


@pytest.fixture(scope="module")
def lab() -> Any:
    with LabSettings(check_variants=1).open() as evaluator:
        yield evaluator


def refused(lab: LabEvaluator, found: Task, source: str, depth: Any = "screen") -> Diagnosis:
    (outcome,) = lab.evaluate([EvaluationRequest(found, source, depth=depth)])
    assert outcome.status == "rejected" and outcome.diagnosis is not None, outcome
    assert outcome.diagnosis.stage == "estimate"
    return outcome.diagnosis


@pytest.mark.parametrize(
    ("old", "new", "moved"),
    [
        ("        out =", "        if x.numel() > 100_000:\n            return torch.empty_like(x)\n        out =", 0),
        ("[(x.shape[0],)]", "[(x.shape[0] if x.shape[0] < 100 else 1,)]", 2 * 4096 * FLOAT),
        ("self.weight, out, x.shape[1]", "self.weight, out, min(x.shape[1], 512)", 2 * 256 * 512 * FLOAT),
        ("        return out\n", "        return out if x.numel() < 100_000 else x.new_zeros(x.shape)\n", None),
    ],
)  # fmt: skip
def test_work_left_out_at_the_full_shapes(lab: LabEvaluator, old: str, new: str, moved: int | None) -> None:
    source = changed(old, new)
    if moved is None:  # launched for nothing, which costs what it costs
        (outcome,) = lab.evaluate([EvaluationRequest(TASK, source)])
        (honest,) = lab.evaluate([EvaluationRequest(TASK, HONEST)])
        assert honest.ok and outcome.ok and (outcome.runtime_ms or 0) > (honest.runtime_ms or 0)
        return
    diagnosis = refused(lab, TASK, source)
    assert diagnosis.kind == "TooLittleWork"
    assert f"moves {moved} bytes" in diagnosis.message and str(2 * 256 * 4096 * FLOAT) in diagnosis.message
    assert moved < SHARE * 2 * 256 * 4096 * FLOAT


def test_a_version_that_launches_nothing_has_no_runtime(lab: LabEvaluator) -> None:
    view = task("inputs[0].t()")
    source = view.source.replace("class Model", "class ModelNew")
    assert refused(lab, view, source).kind == "TooLittleWork"


@pytest.mark.parametrize("depth", ["screen", "verify"])
def test_lower_precision_at_the_full_shapes_only(lab: LabEvaluator, depth: str) -> None:
    both = task("inputs[0] @ inputs[1]", PRODUCT_INPUTS)
    diagnosis = refused(lab, both, PRODUCT.replace("FULL", "m >= 512"), depth)
    assert diagnosis.kind == "LowPrecision" and "11 bits" in diagnosis.message and "24" in diagnosis.message
    library = PRODUCT.replace(
        "        kind =", "        if m >= 512:\n            return (x.half() @ y.half()).float()\n        kind ="
    ).replace("FULL", "False")
    assert refused(lab, both, library, depth).kind == "LowPrecision"


def test_lower_precision_that_the_check_has_let_pass(lab: LabEvaluator) -> None:
    rounded = task("inputs[0].half().float() @ inputs[1].half().float()", PRODUCT_INPUTS)
    (outcome,) = lab.evaluate([EvaluationRequest(rounded, PRODUCT.replace("FULL", "True"))])
    assert outcome.ok, outcome
