"""Layers along the last dimension but one without transpositions, and what is read many times across its rows, in order."""

from __future__ import annotations

import pytest

from mtmc.rewrite.algebra import apply_rules
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.graph import IN_ORDER, Graph
from mtmc.rewrite.plan import graph_of
from mtmc.rewrite.source import print_plan
from mtmc.task import task_from_source
from tests.rewrite.interpreted import apply
from tests.rewrite.interpreting import interpret
from tests.rewrite.references import reference

LAYERS = "self.f, self.g = nn.Linear(n, 24), nn.Linear(24, n, bias=False)"
PLACES = "torch.randn(2, n, m)"
TURNED = {
    "two_layers": reference("x + self.g(F.gelu(self.f(x.transpose(1, 2)))).transpose(1, 2)", PLACES, LAYERS),
    "one_layer_by_names_from_the_end": reference(
        "torch.softmax(self.f(x.mT).transpose(-1, -2), -1)", PLACES, "self.f = nn.Linear(n, 12)"
    ),
    "permuted": reference("x.exp() - self.g(self.f(x.permute(0, 2, 1))).permute(0, 2, 1)", PLACES, LAYERS),
    "of_a_batch_of_batches": reference(
        "x * torch.sigmoid(self.g(F.silu(self.f(x.transpose(2, 3)))).transpose(2, 3))",
        "torch.randn(2, 3, n, k)",
        LAYERS,
    ),
    "in_bfloat16": reference(
        "x + self.g(torch.relu(self.f(x.transpose(1, 2)))).transpose(1, 2)",
        f"{PLACES}.bfloat16()",
        f"{LAYERS}\nself.bfloat16()",
    ),
}
AS_THEY_ARE = {
    "turned_once": reference("self.f(x.transpose(1, 2)) * 2", PLACES, LAYERS),
    "other_dimensions": reference("self.f(x.transpose(0, 2)).transpose(0, 1)", "torch.randn(n, n, n)", LAYERS),
    "needed_between": reference("y = 0", PLACES, LAYERS.replace("24, n, bias=False", "24, 24")).replace(
        "return y = 0", "y = self.f(x.transpose(1, 2))\n        return y.transpose(1, 2) * 2, y.sum()"
    ),
    "no_layer": reference("F.gelu(x.transpose(1, 2)).transpose(1, 2) + x", PLACES),
    "a_softmax_between": reference("torch.softmax(self.f(x.mT), -1).mT * 2", PLACES, LAYERS),
    "two_tensors_between": reference("(self.f(x.mT) * y).mT * 2", f"{PLACES}, torch.randn(24)", LAYERS),
    "the_result_itself": reference("self.f(x.transpose(1, 2)).transpose(1, 2)", PLACES, LAYERS),
}
BIAS = "self.f = nn.Linear(8, 4)"
SHARED = "torch.randn(16, 4, n, n), torch.randn(n, n, 8)"
ORDERED = {
    "a_bias_that_rows_share": reference("torch.softmax(x + self.f(y).permute(2, 0, 1), -1)", SHARED, BIAS),
    "a_copy_that_is_there": reference("x * self.f(y).permute(2, 0, 1).contiguous()", SHARED, BIAS),
    "of_attention": reference(
        "F.scaled_dot_product_attention(x, x, x, attn_mask=self.f(y).permute(2, 0, 1)[None])", SHARED, BIAS
    ),
}
IN_PLACE = {
    "read_once": reference("x + self.f(y).permute(2, 0, 1)", SHARED.replace("16, 4", "1, 4"), BIAS),
    "by_its_rows": reference("x + y[:, None]", "torch.randn(16, 16, n, m), torch.randn(16, n, m)"),
    "small": reference("x + self.f(y).permute(2, 0, 1)", SHARED.replace("n, n", "9, 9"), BIAS),
    "a_weight": reference("x + self.w.t()", "torch.randn(16, 4, n, n)", "self.w = nn.Parameter(torch.randn(n, n))"),
    "the_result_too": reference("y = 0", SHARED, BIAS).replace(
        "return y = 0", "y = self.f(y).permute(2, 0, 1)\n        return x + y, y"
    ),
}


def full(source: str) -> str:
    """A reference as large as what is copied must be; the small shapes stay."""
    return source.replace("n = 64", "n = 128")


def after(source: str, kind: str) -> tuple[Graph, tuple[str, ...]]:
    found = apply_rules(export_graph(task_from_source(source, "turned")), kind)
    return found.graph, found.sentences


@pytest.mark.parametrize("name", TURNED)
def test_no_transposition_is_left(name: str) -> None:
    graph, sentences = after(TURNED[name], "turned")
    assert len(sentences) == 1 and "along the other dimension" in sentences[0]
    assert not [op for op in graph.ops if "transpose" in op.target or "permute" in op.target or "mT" in op.target]


@pytest.mark.parametrize("name", AS_THEY_ARE)
def test_what_is_no_pair_of_transpositions_around_layers_stays(name: str) -> None:
    assert not after(AS_THEY_ARE[name], "turned")[1]


@pytest.mark.parametrize("name", ORDERED)
def test_what_is_read_many_times_across_its_rows_is_copied(name: str) -> None:
    graph, sentences = after(full(ORDERED[name]), "ordered")
    assert len(sentences) == 1 and sentences[0].endswith("is copied in order")
    assert [op.target for op in graph.ops].count(IN_ORDER) == 1
    assert not apply_rules(graph, "ordered").sentences, "once is enough"


@pytest.mark.parametrize("name", IN_PLACE)
def test_what_gains_nothing_by_a_copy_is_not_copied(name: str) -> None:
    assert not after(full(IN_PLACE[name]), "ordered")[1]


def test_no_kernel_takes_the_copy_in_with_what_reads_it() -> None:
    source = full(ORDERED["a_bias_that_rows_share"])
    task = task_from_source(source, "bias")
    for way in (["rewrite by algebra", "fuse"], ["rewrite by algebra", "lower", "fuse"]):
        plan = apply(task, way)
        graph = graph_of(export_graph(task), plan)
        [copy] = [op for op in graph.ops if op.target == IN_ORDER]
        readers = set(graph.readers(copy.outputs[0]))
        assert not any(copy.name in stage.ops and readers & set(stage.ops) for stage in plan.stages)
    alone = apply(task, ["rewrite by algebra"])
    assert ".contiguous()" in print_plan(task, graph_of(export_graph(task), alone), alone).source


def test_both_are_right() -> None:
    ways = [
        ["rewrite by algebra", "fuse all", "lower"],
        ["rewrite by algebra", "fuse", "lower"],
        ["rewrite by algebra", "lower"],
    ]
    sources = {**TURNED, **{name: full(text) for name, text in ORDERED.items()}}
    cases = [{"name": name, "source": text, "ways": ways} for name, text in sources.items()]
    assert interpret(cases) == dict.fromkeys(sources)
