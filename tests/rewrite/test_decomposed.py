"""Ops that are in no table: their decompositions as kernels, beside torch."""

from __future__ import annotations

import pytest

from mtmc.hardware import hardware
from mtmc.optimizations import Version
from mtmc.rewrite.body import NotCovered
from mtmc.rewrite.expansion import build
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.operators.table import table
from mtmc.rewrite.plan import root_plan
from mtmc.task import task_from_source
from tests.rewrite.interpreting import interpret
from tests.rewrite.references import PAIR, POSITIVE, reference, together

CALLS = {
    "frac": "torch.frac(3 * x)",
    "logaddexp": "torch.logaddexp(x, y)",
    "sinc": "torch.sinc(x)",
    "heaviside": "torch.heaviside(x, y)",
    "copysign": "torch.copysign(x, y)",
    "lerp_tensor": "torch.lerp(x, y, x)",
    "std_mean": "torch.std_mean(x, 1)",
    "gelu_backward": "torch.ops.aten.gelu_backward(x, y)",
    "gelu_tanh_backward": "torch.ops.aten.gelu_backward(x, y, approximate='tanh')",
    "silu_backward": "torch.ops.aten.silu_backward(x, y)",
    "softplus_backward": "torch.ops.aten.softplus_backward(x, y, 1.0, 20.0)",
    "hardswish_backward": "torch.ops.aten.hardswish_backward(x, 3 * y)",
    "log_sigmoid_forward": "torch.ops.aten.log_sigmoid_forward(x)[0]",
    "hinge": "F.hinge_embedding_loss(x, torch.sign(y))",
    "margin": "F.margin_ranking_loss(x, y, torch.sign(x))",
    "tanhshrink": "F.tanhshrink(x)",
    "ndtr": "torch.special.ndtr(x)",
    "aminmax": "torch.aminmax(x, dim=1)",
    "dist": "torch.dist(x, y)",
}
POSITIVE_CALLS = {
    "xlogy": "torch.xlogy(x, x)",
    "entr": "torch.special.entr(x)",
    "logit": "torch.logit(0.5 * x, 1e-6)",
    "poisson": "F.poisson_nll_loss(x, x)",
}
CASES = {
    **together({name: reference(call, PAIR) for name, call in CALLS.items()}, 20),
    **together({name: reference(call, POSITIVE) for name, call in POSITIVE_CALLS.items()}),
}


def test_decompositions_give_what_torch_gives() -> None:
    cases = [{"name": name, "source": text, "ways": [["lower"]], "whole": True} for name, text in CASES.items()]
    assert interpret(cases) == dict.fromkeys(CASES)


def test_an_op_without_a_decomposition_says_so() -> None:
    task = task_from_source(reference("torch.mode(x)[0]"), "mode")
    graph = export_graph(task)
    with pytest.raises(NotCovered, match=r"no kernel template covers aten\.mode"):
        build(graph, [graph.ops[0].name], table)


def test_numbers_of_a_decomposition_may_differ_between_shapes() -> None:
    task = task_from_source(reference("torch.special.ndtr(x / x.shape[1])"), "ndtr")
    graph = export_graph(task)
    version = Version.of(task, root_plan(graph), hardware("H100"))
    stage = version.as_kernel(tuple(op.name for op in graph.ops), {})
    assert stage is not None and stage.template == "pointwise"


def test_what_has_no_kernel_is_named_as_it_was_called() -> None:
    task = task_from_source(reference("torch.fft.rfft(x).real"), "transform")
    graph = export_graph(task)
    with pytest.raises(NotCovered, match=r"covers prims\.fft_r2c\.default, a part of aten\.fft_rfft"):
        build(graph, (graph.ops[0].name,), table)
