"""Rows that lie side by side: those of a program have one outer index, and share what is read by it and a column."""

from __future__ import annotations

import pytest

from tests.rewrite.interpreting import interpret_ways
from tests.rewrite.printing import text_after
from tests.rewrite.references import reference

SIZES = {"a": (16, 2, 3), "b": (256, 6, 5), "c": (8, 5, 4), "d": (32, 16, 32)}
"""Rows of 32 neighbours: the small ones are 2 x 80 and share no index of d, the odd ones 3 x 128 and do."""
LEFT = {**SIZES, "c": (9, 3, 5), "d": (33, 33, 11)}
"""297 neighbours, which is no multiple of 32."""
FEW = {**SIZES, "c": (1, 1, 1), "d": (33, 33, 11)}
LONG = {**SIZES, "a": (4, 2, 3), "b": (65536, 6, 5), "c": (1, 5, 4)}
IMAGE, WEIGHTS = "torch.randn(a, b, c, d)", "torch.randn(a, b, c)"

SHARED = {
    # name: result, inputs, sizes, what the kernel has to hold
    "weights_of_heads": ("(x[..., None] * y).sum(1)", f"{WEIGHTS}, {IMAGE}", SIZES, ("ALIKE",)),
    "weights_of_images": ("x.softmax(1) * y[:, None, None, None]", f"{IMAGE}, torch.randn(a)", SIZES, ("first_row",)),
    "weights_of_columns": ("(x * y[:, :, None, None]).sum(1)", f"{IMAGE}, torch.randn(a, b)", SIZES, ("first_row",)),
    "of_a_lookup": (
        "(y[z] * x[:, :, None, None]).sum(1)",
        "torch.randn(a, b), torch.randn(a, c, d), torch.randint(a, (a, b))",
        SIZES,
        ("first_row", "mask=col_mask, other=0)"),
    ),
    "of_heads_behind": (
        "x.softmax(1) * y[..., None] + z[:, None, :, None]",
        f"{IMAGE}, {WEIGHTS}, torch.randn(a, c)",
        SIZES,
        ("ALIKE",),
    ),
    "places": ("x.argmax(1)", IMAGE, SIZES, ("first_row",)),
    "variances": ("x.var(1) + y", f"{IMAGE}, torch.randn(a, 1, 1)", SIZES, ("first_row",)),
    "totals": ("(x.sum(1) * y[:, None, None]).sum()", f"{IMAGE}, torch.randn(a)", SIZES, ()),
    "a_last_block_of_few": ("(x[..., None] * y).sum(1)", f"{WEIGHTS}, {IMAGE}", LEFT, ("ALIKE",)),
    "shares_of_columns": ("x.sum(1) + y[..., None]", f"{IMAGE}, torch.randn(a, c)", LONG, ("first_row", "SPLIT")),
    "shares_used_again": (
        "x / (x.exp().sum(1, keepdim=True) + y[:, None, :, None].abs())",
        f"{IMAGE}, torch.randn(a, c)",
        LONG,
        ("first_row", "SPLIT"),
    ),
    "norm_of_places": ("F.batch_norm(x.transpose(1, 2), None, None, training=True)", IMAGE, SIZES, ()),
}
WAYS = [["lower", "fuse"], ["lower", "fuse", "loop over"], ["lower", "fuse", "hold each"]]


def source_of(name: str) -> str:
    result, inputs, sizes, _ = SHARED[name]
    return reference(result, inputs, sizes=sizes)


@pytest.fixture(scope="module")
def problems() -> dict[str, str | None]:
    return interpret_ways({name: source_of(name) for name in SHARED}, WAYS)


@pytest.mark.parametrize("name", SHARED)
def test_rows_of_one_outer_index_are_right(problems: dict[str, str | None], name: str) -> None:
    assert problems[name] is None


@pytest.mark.parametrize("name", SHARED)
def test_what_a_program_shares_is_loaded_once(name: str) -> None:
    text = text_after(source_of(name), WAYS[0])
    assert all(each in text for each in SHARED[name][3]), text


def test_few_neighbours_go_by_any_rows() -> None:
    """33 neighbours in blocks of 32 would leave half of the programs with one row."""
    assert "first_row" not in text_after(reference("x.softmax(1)", IMAGE, sizes=FEW), WAYS[0])


def test_columns_count_far_where_all_rows_lie_side_by_side() -> None:
    """A sum over the first dimension: offsets begin with the column, so that has to be wide where they reach far."""
    text = text_after(reference("x.sum(0)", IMAGE, sizes=SIZES), WAYS[0])
    assert "cols = cols.to(tl.int64)" in text and "first_row" not in text
