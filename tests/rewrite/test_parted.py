"""Layers whose halves meet again, as two layers that one kernel makes."""

from __future__ import annotations

import pytest

from mtmc.hardware import hardware
from mtmc.optimizations import Version, legal_moves
from mtmc.rewrite.algebra import apply_rules
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import root_plan
from mtmc.task import task_from_source
from tests.rewrite.interpreting import interpret
from tests.rewrite.references import reference

LAYER = "self.f = nn.Linear(n, 2 * m)"
X = "torch.randn(3, 7, n)"
GATED = {
    "glu": reference("F.glu(self.f(x))", X, LAYER),
    "glu_elsewhere": reference("F.glu(self.f(x).transpose(1, 2), dim=1)", X, LAYER),
    "glu_of_turned_twice": reference("F.glu(self.f(x).permute(2, 0, 1).transpose(1, 2), dim=0)", X, LAYER),
    "chunks": reference("(lambda a, b: a * F.gelu(b))(*self.f(x).chunk(2, dim=-1))", X, LAYER),
    "chunks_the_other_way": reference("(lambda a, b: F.silu(a) * b)(*self.f(x).chunk(2, dim=-1))", X, LAYER),
    "split": reference("(lambda a, b: a.tanh() + b)(*self.f(x).split(m, dim=-1))", X, LAYER),
    "sizes": reference("(lambda a, b: torch.maximum(a, b))(*self.f(x).split([m, m], dim=2))", X, LAYER),
    "without_a_bias": reference("F.glu(self.f(x)) + 1", X, "self.f = nn.Linear(n, 2 * m, bias=False)"),
    "matrix": reference(
        "(lambda a, b: a * b.sigmoid())(*(x @ self.w).chunk(2, dim=1))",
        "torch.randn(9, n)",
        "self.w = nn.Parameter(torch.randn(n, 2 * m) / 8)",
    ),
    "turned_weight": reference(
        "(lambda a, b: a * b.sigmoid())(*(x @ self.w.t()).chunk(2, dim=1))",
        "torch.randn(9, n)",
        "self.w = nn.Parameter(torch.randn(2 * m, n) / 8)",
    ),
}
OTHERS = {
    "three_parts": reference("(lambda a, b, c: a * b + c)(*self.f(x).chunk(3, -1))", X, "self.f = nn.Linear(n, 3 * m)"),
    "that_never_meet": reference("(lambda a, b: (a, b))(*self.f(x).chunk(2, dim=-1))", X, LAYER),
    "uneven": reference("(lambda a, b: a * b.sum(-1, keepdim=True))(*self.f(x).split([m, m], dim=-1))", X, LAYER),
    "along_the_rows": reference("(lambda a, b: a * b)(*self.f(x).chunk(2, dim=0))", "torch.randn(4, 7, n)", LAYER),
    "whole_as_well": reference("(lambda y: F.glu(y).sum() + y)(self.f(x))", X, LAYER),
    "a_weight_that_comes_in": reference("F.glu(x @ y)", "torch.randn(9, n), torch.randn(n, 2 * m)"),
}


def after(source: str) -> tuple[str, ...]:
    return apply_rules(export_graph(task_from_source(source, "halves")), "parted").sentences


@pytest.mark.parametrize("name", GATED)
def test_halves_that_meet_are_layers(name: str) -> None:
    assert "are layers of their own" in after(GATED[name])[0]


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay(name: str) -> None:
    assert not after(OTHERS[name])


@pytest.mark.parametrize("name", ["glu", "glu_elsewhere", "chunks", "matrix", "turned_weight"])
def test_one_kernel_makes_both(name: str) -> None:
    task = task_from_source(GATED[name], "halves")
    root = Version.of(task, root_plan(export_graph(task)), hardware("H100"))
    [move] = [move for move in legal_moves(root) if "layers of their own, and fuse" in move.action.sentence]
    assert move.child is not None
    [kernel] = [stage for stage in move.child.stages if not stage.is_torch]
    assert kernel.template == "matmul" and len([op for op in kernel.ops if "half" in op]) == 2


def test_all_are_right() -> None:
    halves = "rewrite by algebra: the halves of"
    ways = [[halves, "lower"], [halves, "fuse", "lower"], ["algebra", "fuse all", "lower"]]
    cases = [{"name": name, "source": text, "ways": ways} for name, text in GATED.items()]
    assert interpret(cases) == dict.fromkeys(GATED)
