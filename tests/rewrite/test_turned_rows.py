"""Rows that are normed and then stand in another order: one kernel, which writes them in that order."""

from __future__ import annotations

import pytest

from tests.rewrite.interpreting import interpret_ways
from tests.rewrite.printing import text_after
from tests.rewrite.references import reference

SIZES = {"b": (16, 2, 3), "h": (8, 4, 5), "s": (512, 12, 7), "d": (64, 16, 9)}
HEADS, GATE = "torch.randn(b, h, s, d)", "torch.randn(b, s, h * d)"
WEIGHT = "self.w, self.v = nn.Parameter(torch.randn({0})), nn.Parameter(torch.randn({0}))"

CASES = {
    # name: result, inputs, layers, kernels
    "a_layer_norm_and_a_gate": (
        "F.layer_norm(x, (x.shape[-1],)).transpose(1, 2).flatten(2) * F.silu(y)",
        f"{HEADS}, {GATE}",
        "",
        1,
    ),
    "a_norm_with_weights": (
        "F.layer_norm(x, (x.shape[-1],), self.w, self.v).permute(0, 2, 1, 3).flatten(2) * y",
        f"{HEADS}, {GATE}",
        WEIGHT.format("SIZE"),
        1,
    ),
    "weights_of_heads": (
        "(F.normalize(x, dim=-1) * self.w[:, None, None]).transpose(1, 2).flatten(2) + y",
        f"{HEADS}, {GATE}",
        WEIGHT.format("HEADS"),
        1,
    ),
    "places_among_the_rows": (
        "(x.softmax(-1) * torch.arange(x.shape[2])[:, None]).transpose(1, 2).flatten(2) + y",
        f"{HEADS}, {GATE}",
        "",
        1,
    ),
    "tokens_first": ("F.rms_norm(x, (x.shape[-1],)).permute(2, 0, 1, 3).flatten(1).tanh()", HEADS, "", 1),
    "a_residual_in_the_new_order": (
        "F.layer_norm(x, (x.shape[-1],)).transpose(1, 2) + y.reshape(y.shape[0], y.shape[1], x.shape[1], -1)",
        f"{HEADS}, {GATE}",
        "",
        1,
    ),
    "rows_that_are_read_as_they_were": (
        "(lambda n: n.transpose(1, 2).flatten(2) * y + n.sum())(F.layer_norm(x, (x.shape[-1],)))",
        f"{HEADS}, {GATE}",
        "",
        0,
    ),
    "another_last_dimension": ("x.softmax(-1).transpose(2, 3).reshape(y.shape) * y", f"{HEADS}, {GATE}", "", 0),
}
WAYS = [["fuse all", "fuse", "lower"], ["fuse all", "fuse", "lower", "loop over"]]


def source_of(name: str) -> str:
    result, inputs, layers, _ = CASES[name]
    text = reference(result, inputs, layers, sizes=SIZES)
    return text.replace("SIZE)", "d)").replace("HEADS)", "h)")


@pytest.fixture(scope="module")
def problems() -> dict[str, str | None]:
    return interpret_ways({name: source_of(name) for name in CASES}, WAYS)


@pytest.mark.parametrize("name", CASES)
def test_rows_in_another_order_are_right(problems: dict[str, str | None], name: str) -> None:
    assert problems[name] is None


@pytest.mark.parametrize("name", CASES)
def test_they_are_one_kernel(name: str) -> None:
    """0: some other number of kernels, as rows in their own order are wanted too, or cannot be read so."""
    text = text_after(source_of(name), WAYS[0])
    assert (text.count("@triton.jit") == 1) == (CASES[name][3] == 1), text
