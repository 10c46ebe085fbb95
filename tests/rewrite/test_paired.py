"""Einstein sums of several tensors, as sums of two at a time, and what kernels make of those."""

from __future__ import annotations

import pytest

from mtmc.hardware import hardware
from mtmc.optimizations import Version, legal_moves
from mtmc.rewrite.algebra import apply_rules
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.graph import Graph
from mtmc.rewrite.plan import root_plan
from mtmc.task import task_from_source
from tests.rewrite.interpreting import interpret
from tests.rewrite.references import reference

SIZES = {"b": (16, 2, 1), "c": (3, 3, 2), "t": (32, 6, 9), "h": (4, 2, 3), "n": (16, 4, 5), "p": (32, 4, 7)}
KEYS, VALUES = "torch.randn(b, c, t, h, n)", "torch.randn(b, c, t, h, p)"
MASKED = "(-(z.cumsum(-1)[..., :, None] - z.cumsum(-1)[..., None, :]).abs()).exp().tril()"
RATES = "torch.rand(b, h, c, t)"


def of(result: str, *inputs: str) -> str:
    return reference(result, ", ".join(inputs), sizes=SIZES)


DECAYED = of(
    f"(lambda w: torch.einsum('bclhn,bcshn,bhcls,bcshp->bclhp', x, x.tanh(), w, y).reshape(b, c * t, h, p))({MASKED})",
    KEYS, VALUES, RATES,
)  # fmt: skip
SUMS = {
    "queries_and_keys_decayed": DECAYED,
    "states": of("torch.einsum('bclhn,bhcl,bclhp->bchpn', x, z.exp(), y)", KEYS, VALUES, RATES),
    "of_batches_of_three": of("torch.einsum('bclhn,bclhp->bchnp', x, y) + 1", KEYS, VALUES),
    "read_by_decayed_states": of(
        "torch.einsum('bclhn,bchpn,bhcl->bclhp', x, y, z.exp())", KEYS, "torch.randn(b, c, h, p, n)", RATES
    ),
    "handed_on": of(
        "torch.einsum('bhzc,bchpn->bzhpn', x.exp(), torch.cat([torch.zeros_like(y[:, :1]), y], 1))[:, :-1]",
        "torch.randn(b, h, c + 1, c + 1)", "torch.randn(b, c, h, p, n)",
    ),
    "of_five": of(
        "torch.einsum('bln,bn,bsn,bls,bsp->blp', x, x[:, 0], x.sin(), x @ x.mT, y)",
        "torch.randn(b, t, n)", "torch.randn(b, t, p)",
    ),
}  # fmt: skip


def graph_of(source: str) -> Graph:
    return export_graph(task_from_source(source, "sums"))


def test_the_cheapest_way_comes_first() -> None:
    found = apply_rules(graph_of(DECAYED), "einsums")
    assert found.sentences[0] == "einsum is a sum of two tensors at a time"
    products = [op for op in found.graph.ops if op.target == "aten.matmul.default"]
    # queries by keys, weights, then values: the sum over n first, as the products of four tensors are never made
    assert len(products) == 2 and not any(op.target == "aten.einsum.default" for op in found.graph.ops)
    assert all(len(found.graph.values[op.outputs[0]].shape) == 5 for op in products)


def test_a_decay_goes_into_the_product_that_it_weights() -> None:
    task = task_from_source(DECAYED, "sums")
    root = Version.of(task, root_plan(export_graph(task)), hardware("H100"))
    [move] = [
        move for move in legal_moves(root) if "at a time" in move.action.sentence and "and fuse" in move.action.sentence
    ]
    assert move.child is not None
    kernels = [stage for stage in move.child.stages if stage.template == "matmul"]
    weighted = [stage for stage in kernels if any("exp" in name for name in stage.ops)]
    assert len(kernels) == 2 and len(weighted) == 1, "nothing but what is decayed is written between the products"


def test_a_few_terms_of_a_few_rows_are_no_product() -> None:
    graph = graph_of(SUMS["handed_on"])
    assert not apply_rules(graph, "einsums").sentences
    task = task_from_source(SUMS["handed_on"], "sums")
    sentences = [move.action.sentence for move in legal_moves(Version.of(task, root_plan(graph), hardware("H100")))]
    assert any(each.startswith("fuse the") and "einsum" in each for each in sentences)


@pytest.mark.parametrize("equation", ["bln,bsn->bls", "bln,bsn,bls->bls"])
def test_sums_of_two_and_a_factor_stay_with_other_rules(equation: str) -> None:
    others = {2: "x, x", 3: "x, x, x @ x.mT"}[equation.count(",") + 1]
    source = of(f"torch.einsum('{equation}', {others})", "torch.randn(b, t, n)")
    assert not any("at a time" in each for each in apply_rules(graph_of(source), "einsums").sentences)


def test_they_are_right() -> None:
    ways = [["rewrite by algebra: einsum", "fuse all", "lower"], ["fuse all", "lower"]]
    cases = [{"name": name, "source": source, "ways": ways} for name, source in SUMS.items()]
    assert interpret(cases) == dict.fromkeys(SUMS)
