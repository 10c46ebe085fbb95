"""A norm before layers with few rows becomes part of their kernel; with many it stays apart."""

from __future__ import annotations

import pytest

from mtmc.hardware import hardware
from mtmc.optimizations import Version, legal_moves
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import merged_ops, root_plan
from mtmc.rewrite.source import print_plan
from mtmc.task import task_from_source
from tests.breadth import share
from tests.rewrite.interpreted import apply
from tests.rewrite.interpreting import interpret
from tests.rewrite.references import reference

TWO = "\nself.f, self.g = nn.Linear(k, m), nn.Linear(k, m)"
RMS = "self.norm = nn.RMSNorm(k, eps=1e-5); nn.init.uniform_(self.norm.weight)"
LAYER = "self.norm = nn.LayerNorm(k); nn.init.uniform_(self.norm.weight); nn.init.uniform_(self.norm.bias)"
ROWS = "torch.randn(2, n // 2, k) + 3"
NORMED = {
    "rms_norm": reference("F.gelu(self.f(self.norm(x)))", ROWS, RMS + TWO),
    "layer_norm_of_two_layers": reference("y = self.norm(x), self.f(y)", ROWS, LAYER + TWO).replace(
        "return y = self.norm(x), self.f(y)", "y = self.norm(x)\n        return self.f(y) * torch.sigmoid(self.g(y))"
    ),
    "norm_by_hand": reference(
        "(x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * (1 + y)) @ z",
        "torch.randn(n, k), torch.randn(k), torch.randn(k, m)",
    ),
    "softmax": reference("torch.softmax(x, -1) @ y", "torch.randn(n, k), torch.randn(k, m)"),
    "largest": reference("(x / x.abs().amax(-1, keepdim=True)) @ y", "torch.randn(n, k), torch.randn(k, m)"),
    "in_bfloat16": reference(
        "self.f(self.norm(x))",
        "torch.randn(n, k).bfloat16()",
        "self.norm = nn.RMSNorm(k, eps=1e-5).bfloat16()\nself.f = nn.Linear(k, m).bfloat16()",
    ),
    "in_float16": reference(
        "F.silu(self.f(self.norm(x)))",
        "torch.randn(n, k).half()",
        "self.norm = nn.LayerNorm(k).half()\nself.f = nn.Linear(k, m).half()",
    ),
    "a_sum_of_two": reference(
        "F.linear(F.layer_norm(x + y, x.shape[-1:]), z)", "torch.randn(n, k), torch.randn(n, k), torch.randn(m, k)"
    ),
}


def _many(source: str, sizes: str) -> str:
    """The same of 320 rows at the full shapes, with other sizes of the weights."""
    return source.replace("n = 64\nm = 96\nk = 48", f"n = 320\n{sizes}")


APART = {
    "many rows before wide weights": _many(NORMED["rms_norm"], "m = 1024\nk = 512"),
    "the norm is needed elsewhere": reference("y = 0", ROWS, RMS + TWO).replace(
        "return y = 0", "y = self.norm(x)\n        return self.f(y), y"
    ),
    "rows of a batch": reference("torch.softmax(x, -1) @ y", "torch.randn(3, n, k), torch.randn(3, k, m)"),
    "columns": reference("torch.softmax(x, 0) @ y", "torch.randn(n, k), torch.randn(k, m)"),
}


def test_each_is_one_kernel_and_right() -> None:
    ways = [["fuse"], ["fuse", "tile", "precision", "columns first"], ["fuse", "split"], ["fuse", "persist"]]
    cases = [
        {"name": name, "source": source, "ways": ways, "whole": True} for name, source in share([*NORMED.items()], 2)
    ]
    assert interpret(cases) == {case["name"]: None for case in cases}
    for name, source in NORMED.items():
        (stage,) = apply(task_from_source(source, "normed"), ["fuse"]).stages
        assert stage.template == "matmul", name


@pytest.mark.parametrize(("factor", "apart"), [("* 0.125", True), ("+ 1", False)])
def test_a_scaled_softmax_before_a_product_rounds_what_it_takes_the_largest_from(factor: str, apart: bool) -> None:
    """See `less_own_maximum`: in one step, products of 1e9 leave their largest some tens instead of 0."""
    source = reference(f"torch.softmax(x {factor}, -1) @ y", "torch.randn(n, k), torch.randn(k, m)")
    task = task_from_source(source, "scaled")
    plan = apply(task, ["fuse"])
    (stage,) = plan.stages
    assert stage.template == "matmul"
    assert ("enable_fp_fusion=False" in print_plan(task, export_graph(task), plan).source) == apart


@pytest.mark.parametrize("name", APART)
def test_what_would_not_pay_stays_apart(name: str) -> None:
    task = task_from_source(APART[name], "apart")
    version = Version.of(task, root_plan(export_graph(task)), hardware("H100"))
    found = [move.action.sentence for move in legal_moves(version) if move.action.kind == "fuse"]
    assert not [each for each in found if "norm and" in each or "softmax and" in each], found


def test_squares_that_another_kernel_has_made_are_read() -> None:
    """The first kernel makes the sum and its squares, the second the mean of these and the product of the scaled sum."""
    expression = "((x + y) * torch.rsqrt((x + y).pow(2).mean(-1, keepdim=True) + 1e-6)) @ z"
    task = task_from_source(reference(expression, "torch.randn(n, k), torch.randn(n, k), torch.randn(k, m)"), "squares")
    graph = export_graph(task)
    version = Version.of(task, root_plan(graph), hardware("H100"))
    squares = next(at for at, stage in enumerate(version.plan.stages) if "pow" in stage.ops[0]) + 1
    plan = version.plan
    for stages in (plan.stages[:squares], plan.stages[squares:]):
        kernel = version.as_kernel(merged_ops(graph, stages), {})
        assert kernel is not None
        plan = plan.with_merged(graph, stages, kernel)
    text = print_plan(task, graph, plan).source
    [squared] = [op.outputs[0] for op in graph.ops if "pow" in op.target]
    assert f"{squared}_ptr + rows * n_k + ks[None, :]" in text
    assert interpret([{"name": "squares", "source": task.source, "candidate": text}]) == {"squares": None}


MANY = {
    "pairs_to_heads": _many(NORMED["in_bfloat16"].replace("RMSNorm", "LayerNorm"), "m = 8\nk = 128"),
    "router": _many(NORMED["rms_norm"], "m = 60\nk = 2000"),
    "softmax": _many(NORMED["softmax"], "m = 200\nk = 96"),
}


def test_a_product_that_memory_limits_takes_the_norm_of_many_rows() -> None:
    cases = [{"name": name, "source": text, "ways": [["fuse"]], "whole": True} for name, text in MANY.items()]
    assert interpret(cases) == dict.fromkeys(MANY)
    (stage,) = apply(task_from_source(MANY["pairs_to_heads"], "pairs"), ["fuse"]).stages
    assert {key: stage.number(key) for key in ("block_n", "block_k")} == {"block_n": 16, "block_k": 128}
