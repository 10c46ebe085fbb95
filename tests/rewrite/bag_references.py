"""References of bags of embeddings and of numbers that go where a mask holds."""

from __future__ import annotations

from tests.rewrite.special_references import special

TABLE, INDICES = "floats(m, 19)", "places(3 * n, below=m)"
OFFSETS = "torch.cat((torch.zeros(2), torch.randint(0, 3 * n + 1, (n - 2,)).sort()[0])).long()"
"""Bags of any length; the first has none, and others may have none."""
WITH_LAST = f"torch.cat(({OFFSETS}, torch.tensor([3 * n])))"
PLAIN = "torch.randn(m, 19)"


def bag(mode: str, table: str = "x", more: str = "") -> str:
    """A bag of rows of a table at y from z on."""
    return f"F.embedding_bag(y, {table}, z, mode='{mode}'{more})"


MASK, ROWS = "masks(n, m)", "floats(n, m)"

BAGS = {
    **{mode: special(bag(mode), TABLE, INDICES, OFFSETS) for mode in ("sum", "mean", "max")},
    **{
        f"{mode}_padded": special(bag(mode, more=", padding_idx=2"), "floats(5, 33)", "places(3 * n, below=5)", OFFSETS)
        for mode in ("sum", "mean", "max")
    },
    "all_padding": special(bag("mean", more=", padding_idx=0"), TABLE, "places(3 * n, below=1)", OFFSETS),
    "max_all_padding": special(bag("max", more=", padding_idx=0"), TABLE, "places(3 * n, below=1)", OFFSETS),
    "last_offset": special(bag("sum", more=", include_last_offset=True"), TABLE, INDICES, WITH_LAST),
    "last_offset_max": special(bag("max", more=", include_last_offset=True"), TABLE, INDICES, WITH_LAST),
    "scaled": special(
        bag("sum", more=", per_sample_weights=w, padding_idx=3"), PLAIN, INDICES, OFFSETS, "torch.randn(3 * n)"
    ),
    "one_bag": special(bag("mean"), PLAIN, INDICES, "torch.zeros(1).long()"),
    "of_32_bits": special(bag("sum"), PLAIN, f"{INDICES}.int()", f"({OFFSETS}).int()"),
    "half": special(bag("mean"), f"{PLAIN}.half()", INDICES, OFFSETS),
    "bfloat": special(bag("max"), f"{PLAIN}.bfloat16()", INDICES, OFFSETS),
    "wide": special(bag("sum"), "torch.randn(m, 300)", INDICES, OFFSETS),
    "not_in_order": special(bag("sum", "x.t()"), "torch.randn(19, m)", "places(3 * n, 2, below=m)[:, 0]", OFFSETS),
    "before_work": special(f"torch.relu({bag('sum')}) * w", PLAIN, INDICES, OFFSETS, "torch.randn(n, 19)"),
    "of_work": special(f"{bag('max', 'torch.tanh(x)')} + 1.0", PLAIN, INDICES, OFFSETS),
}
MASKED = {
    "masked": special("x.masked_scatter(y, z)", ROWS, MASK, ROWS),
    "masked_rows": special("x.masked_scatter(y, z)", ROWS, "masks(n, 1)", "floats(2 * n, m)"),
    "masked_tokens": special("x.masked_scatter((y == 1)[..., None].expand_as(x), z)", "floats(2, n, m)",
                             "places(2, n, below=3)", "floats(3 * n, m)"),
    "masked_in_columns": special("x.masked_scatter(y, z)", ROWS, "masks(1, m)", ROWS),
    "masked_spread": special("x.masked_scatter(y, z)", "floats(m)", MASK, ROWS),
    "masked_whole": special("x.masked_scatter(y, z)", "whole(n, m)", MASK, "whole(n, m)"),
    "masked_masks": special("x.masked_scatter(y, z)", MASK, MASK, MASK),
    "masked_half": special("x.masked_scatter(y, z) * 2", *["torch.randn(n, m).half()", MASK, "torch.randn(n, m).half()"]),
    "masked_not_in_order": special("x.t().masked_scatter(y, z.t())", ROWS, "masks(m, n)", ROWS),
    "masked_of_work": special("(x * 0.5).masked_scatter(y > 0, torch.relu(z) + 1) * w", ROWS, "equals(n, m)", ROWS, ROWS),
    "masked_none": special("x.masked_scatter(y, z)", ROWS, "torch.zeros(n, m).bool()", ROWS),
    "masked_all": special("x.masked_scatter(y, z)", ROWS, "torch.ones(n, m).bool()", ROWS),
    "masked_many": special("x.masked_scatter(y, z)", "floats(n, m, k)", "masks(n, m, k)", "floats(n, m, k)"),
    "masked_and_counted": special("x.masked_scatter(y, z), (y.flatten().long().cumsum(0) * 2)", ROWS, MASK, ROWS),
}  # fmt: skip
