"""References of elements in order: sorts, places and the first few, in each way that kernels have for them."""

from __future__ import annotations

from tests.rewrite.special_references import special

ROWS = "floats(n, m)"

ORDERS = {
    "sort": special("torch.sort(x, stable=True)", ROWS),
    "sort_falling": special("torch.sort(x, dim=1, descending=True, stable=True)", ROWS),
    "sort_of_columns": special("torch.sort(x, dim=0, stable=True)", ROWS),
    "sort_in_the_middle": special("torch.sort(x, dim=1, descending=True, stable=True)", "floats(3, n, k % 5 + 1)"),
    "sort_half": special("torch.sort(x, stable=True)", "equals(n, m, dtype=torch.bfloat16)"),
    "sort_int32": special(
        "torch.sort(x, stable=True), torch.sort(y, dim=1, descending=True, stable=True)",
        *["whole(n, m, dtype=torch.int32)"] * 2,
    ),
    "sort_falling_int32": special(
        "torch.sort(x, dim=1, descending=True, stable=True)", "whole(n, m, dtype=torch.int32)"
    ),
    "sort_bytes": special("torch.sort(x, dim=0, stable=True)", "whole(n, m, dtype=torch.uint8)"),
    "sort_int8_falling": special("torch.sort(x, stable=True, descending=True)", "whole(n, m, dtype=torch.int8)"),
    "sort_masks": special("torch.sort(x, stable=True)", "masks(n, m)"),
    "sort_int64": special("torch.sort(x, stable=True)", "whole(n, m)"),
    "sort_int64_of_columns": special("torch.sort(x, dim=0, descending=True, stable=True)", "whole(n, m)"),
    "argsort_int64": special("torch.argsort(x.flatten(), stable=True)", "places(n, 3, below=5)"),
    "argsort": special("torch.argsort(x, dim=1, descending=True, stable=True)", "equals(n, m)"),
    "long_rows": special("torch.sort(x, stable=True)", "equals(2, 40 * n)"),
    "msort": special("torch.msort(x) + 0.0", ROWS),
    "of_a_line": special("torch.sort(x.flatten(), stable=True)", "floats(n, 24)"),
    "of_a_transpose": special("torch.sort(x.T, stable=True)", ROWS),
    "around": special("torch.sort(torch.exp(x.clamp(-2, 2)) - 1.0, stable=True)[0] * 2.0 + y", ROWS, ROWS),
    "topk": special("torch.topk(x, 5)", "torch.randn(n, m)"),
    "topk_smallest": special("torch.topk(x, 3, 0, largest=False)", "torch.randn(n, m)"),
    "topk_one": special("torch.topk(x, 1)[0] + 0.0", ROWS),
    "topk_special": special("torch.topk(x, 7)[0] + 0.0, torch.topk(y, 7, largest=False)[0] + 0.0", ROWS, ROWS),
    "topk_whole": special("torch.topk(x, 4)[0]", "whole(n, m)"),
    "topk_all": special("torch.topk(x, m, 1)", "torch.randn(n, m)"),
    "topk_around": special("torch.topk(torch.sigmoid(x), 6)[0] * y", "torch.randn(n, m)", "torch.randn(n, 6)"),
    "topk_half_rounded": special("torch.topk(x * 1.001, 6)[0]", "torch.randn(n, m).bfloat16()"),
    "topk_of_long_rows": special("torch.topk(torch.tanh(x), 9)", "torch.randn(n * n // 15, 30 * m)"),
    "topk_in_the_middle": special("torch.topk(x, 2, 1)", "torch.randn(3, n, k % 5 + 1)"),
}
"""Forms by name.

Where equal elements may be among the first few, or torch sorts as it likes, values alone are compared, without the signs
of zeros.
"""
