"""Values weighted by a sum of two softmaxes, as the sum of what each gives."""

from __future__ import annotations

import pytest

from mtmc.hardware import hardware
from mtmc.optimizations import Version, legal_moves
from mtmc.rewrite.algebra import apply_rules
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import root_plan
from mtmc.task import task_from_source
from tests.breadth import share
from tests.rewrite.interpreting import interpret
from tests.rewrite.references import reference

SIZES = {"n": (64, 12, 19), "m": (32, 8, 7), "k": (3, 2, 1)}
BOTH = "torch.randn(2, 2, k, n, m), torch.randn(2, 2, k, n, m), torch.randn(2, k, n, m)"
HALVES = BOTH.replace(")", ", dtype=torch.bfloat16)")
RATE = "self.rate = nn.Parameter(torch.rand(()))"
LATER = "torch.ones(x.shape[3], x.shape[3], dtype=torch.bool).triu(1)"


def of(weights: str, result: str, inputs: str = BOTH, init: str = RATE) -> str:
    """The text of a reference with weights `w` in its result."""
    return reference(f"(lambda w: {result})({weights})", inputs, init, SIZES)


SOFTMAX = "torch.softmax(x @ y.transpose(-2, -1) * 0.25, dim=-1)"
CAUSAL = f"torch.softmax((x @ y.transpose(3, 4) * 0.25).masked_fill({LATER}, float('-inf')).float(), dim=4)"
SUMS = {
    "sliced": of(SOFTMAX, "(w[:, 0] - self.rate * w[:, 1]) @ z"),
    "causal": of(CAUSAL, "(w[:, 0] - w[:, 1] * self.rate).to(z.dtype) @ z"),
    "in_halves": of(CAUSAL, "(w[:, 0] - w[:, 1] * self.rate.float()).to(z.dtype) @ z", HALVES, f"{RATE}\nself.bfloat16()"),
    "the_second_first": of(SOFTMAX, "(0.5 * w[:, 1] + w[:, 0]) @ z"),
    "slices_of_the_first": of(
        SOFTMAX, "(w[0] - 0.3 * w[1]) @ z", "torch.randn(2, k, n, m), torch.randn(2, k, n, m), torch.randn(k, n, m)"
    ),
    "masked_by_sample": of(
        "torch.softmax((x @ y.transpose(-2, -1)).masked_fill(x[..., :1] > 1, -1e4), dim=-1)",
        "(w[:, 0] - self.rate * w[:, 1]) @ z",
    ),
    "of_two": reference(
        "(torch.softmax(x @ y.mT, -1) - 0.4 * torch.softmax(y @ x.mT, -1)) @ z",
        "torch.randn(2, k, n, m), torch.randn(2, k, n, m), torch.randn(2, k, n, m)",
        sizes=SIZES,
    ),
}  # fmt: skip
OTHERS = {
    "a_rate_for_each_column": of(SOFTMAX, "(w[:, 0] - x[:, 0, :, :, 0, None].mT * w[:, 1]) @ z"),
    "a_product_of_both": of(SOFTMAX, "(w[:, 0] * w[:, 1]) @ z"),
    "that_is_returned": of(SOFTMAX, "(lambda d: (d, d @ z))(w[:, 0] - 0.5 * w[:, 1])"),
    "no_softmax": of("x @ y.transpose(-2, -1)", "(w[:, 0] - 0.5 * w[:, 1]) @ z"),
    "along_the_rows": of("torch.softmax(x @ y.transpose(-2, -1), dim=-2)", "(w[:, 0] - 0.5 * w[:, 1]) @ z"),
}


@pytest.mark.parametrize("name", SUMS)
def test_each_softmax_is_attention_of_its_own(name: str) -> None:
    task = task_from_source(SUMS[name], "sums")
    root = Version.of(task, root_plan(export_graph(task)), hardware("H100"))
    [move] = [move for move in legal_moves(root) if "softmax by itself, and fuse" in move.action.sentence]
    assert move.child is not None
    assert [stage.template for stage in move.child.stages].count("attention") == 2


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay(name: str) -> None:
    assert not apply_rules(export_graph(task_from_source(OTHERS[name], "sums")), "distributed").sentences


def test_all_are_right() -> None:
    taken = "rewrite by algebra: matmul_"
    ways = [[taken, "lower"], ["algebra", "fuse all", "lower"]]
    cases = [{"name": name, "source": text, "ways": ways} for name, text in share(list(SUMS.items()), 2)]
    assert interpret(cases) == {case["name"]: None for case in cases}
