"""Products of one left operand share its tiles; what cannot share them stays apart."""

from __future__ import annotations

import pytest

from mtmc.hardware import hardware
from mtmc.optimizations import Version, legal_moves
from mtmc.optimizations.resources import elements_a_thread, shared_bytes
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import root_plan
from mtmc.task import task_from_source
from tests.rewrite.interpreted import apply
from tests.rewrite.references import reference

LAYERS = "self.f = nn.Linear(k, m, bias=False)\nself.g = nn.Linear(k, {}, bias=False)"
GATED = reference("F.silu(self.f(x)) * self.g(x)", "torch.randn(n, k)", LAYERS.format("m"))


def version(source: str, *way: str) -> Version:
    task = task_from_source(source, "products")
    plan = apply(task, list(way)) if way else root_plan(export_graph(task))
    return Version.of(task, plan, hardware("H100"))


def sentences(found: Version) -> list[str]:
    return [move.action.sentence for move in legal_moves(found)]


def test_a_gated_layer_becomes_one_kernel() -> None:
    (stage,) = version(GATED, "fuse").plan.stages
    assert stage.template == "matmul"
    assert set(stage.ops) == {"linear", "silu", "linear_1", "mul"}


def test_two_products_and_what_takes_both_are_one_action() -> None:
    found = sentences(version(GATED, "fuse silu and mul"))
    assert any(sentence.startswith("fuse linear, linear_1 and silu_mul") for sentence in found)


def test_both_right_tiles_and_both_results_count() -> None:
    found = version(GATED, "fuse")
    (stage,) = found.plan.stages
    stage = stage.scheduled({"block_m": 64, "block_n": 32, "block_k": 16, "num_stages": 2, "num_warps": 4})
    assert shared_bytes(found.graph, stage) == 2 * (64 * 16 + 2 * 16 * 32) * 4
    assert elements_a_thread(found.graph, stage) == 2 * 64 * 32 / 128


@pytest.mark.parametrize(
    "source",
    [
        reference("(self.f(x), self.g(x))", "torch.randn(n, k)", LAYERS.format("2 * m")),
        reference("(self.f(x), self.f(x + 1.0))", "torch.randn(n, k)", LAYERS.format("m")),
        reference("(self.f(x), x @ self.g.weight)", "torch.randn(n, k)", LAYERS.format("k").replace("k, m", "k, k")),
    ],
    ids=["other columns", "another left operand", "lies another way"],
)
def test_what_has_no_tile_in_common_stays_apart(source: str) -> None:
    assert not [each for each in sentences(version(source)) if each.startswith("fuse linear and")]


def test_several_products_are_not_split_among_programs() -> None:
    found = sentences(version(GATED, "fuse"))
    assert not [each for each in found if "split the inner dimension" in each or "stream-K" in each]
    assert [each for each in found if "precision" in each or "tile" in each]
