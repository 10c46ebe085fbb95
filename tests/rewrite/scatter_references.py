"""References of tensors that are changed at places which another tensor holds."""

from __future__ import annotations

from tests.rewrite.special_references import special

ROWS, INDEX = "floats(n, m)", "places(n, m, below=m)"
ONCE = "torch.argsort(torch.rand(n, m), 1)[:, : m // 2]"
"""Places of which no two in a row are the same."""
SMALL = "torch.randint(-4, 5, (n, m)) / 4"
"""Floats whose sums are exact in any order."""

SCATTERS = {
    "scatter": special("x.scatter(1, z, y)", ROWS, ROWS, ONCE),
    "scatter_of_columns": special("x.scatter(0, z, y)", ROWS, ROWS, "torch.argsort(torch.rand(n, m), 0)[: n // 2]"),
    "scatter_numbers": special(
        "x.scatter(1, y, 2.5), z.scatter(1, y, -1)", ROWS, ONCE, "whole(n, m, dtype=torch.int32)"
    ),
    "scatter_into_zeros": special("torch.zeros_like(x).scatter(1, y, x * 2)", ROWS, ONCE),
    "one_hot": special("torch.zeros(x.shape[0], 9).scatter(1, x, 1.0)", "places(n, 3, below=9)"),
    "scatter_masks": special("x.scatter(1, z, y)", "masks(n, m)", "masks(n, m)", ONCE),
    "scatter_bytes": special(
        "x.scatter(1, z, y)", "whole(n, m, dtype=torch.uint8)", "whole(n, m, dtype=torch.uint8)", ONCE
    ),
    "scatter_half": special("x.scatter(1, z, y)", "torch.randn(n, m).half()", "torch.randn(n, m).half()", ONCE),
    "scatter_add": special("x.scatter_add(1, z, y)", ROWS, SMALL, INDEX),
    "scatter_add_of_columns": special("x.scatter_add(0, z, y)", SMALL, ROWS, "places(n, m, below=n)"),
    "scatter_add_half": special("x.scatter_add(1, z, y)", *[f"({SMALL}).bfloat16()"] * 2, INDEX),
    "scatter_add_whole": special("x.scatter_add(1, z, y)", "whole(n, m)", "whole(n, m)", INDEX),
    "scatter_add_of_fewer": special("x.scatter_add(1, z, y)", SMALL, SMALL, "places(n // 2, m // 2, below=m)"),
    "scatter_add_after_work": special("torch.relu(x).scatter_add(1, z, y * w)", SMALL, SMALL, INDEX, "equals(n, m)"),
    "amax": special("x.scatter_reduce(1, z, y, 'amax') + 0.0", ROWS, ROWS, INDEX),
    "amin": special("x.scatter_reduce(1, z, y, 'amin') + 0.0", ROWS, ROWS, INDEX),
    "amax_half": special("x.scatter_reduce(1, z, y, 'amax') + 0.0", *["floats(n, m, dtype=torch.float16)"] * 2, INDEX),
    "amin_whole": special("x.scatter_reduce(1, z, y, 'amin')", "whole(n, m)", "whole(n, m)", INDEX),
    "index_add": special(
        "x.index_add(0, z, y)", SMALL, "torch.randint(-4, 5, (2 * n, m)) / 4", "places(2 * n, below=n)"
    ),
    "index_add_scaled": special("x.index_add(1, z, y, alpha=0.5)", SMALL, SMALL, "places(m, below=m)"),
    "index_copy": special("x.index_copy(1, z, y)", "floats(3, n, k)", "floats(3, 2, k)", "torch.randperm(n)[:2]"),
    "filled_then_selected": special(
        "torch.sin(x.permute(2, 0, 1).index_fill(0, y, 1.0).select(2, -1).select(1, -1))",
        *["torch.randn(n, k, m)", "places(2, below=m)"],
    ),
    "index_fill": special("x.index_fill(1, y, 1.5)", ROWS, "places(3, below=m)"),
    "index_put": special(
        "torch.index_put(x, (y, z), w)", ROWS, "torch.randperm(n)", "places(n, below=m) - m", "floats(n)"
    ),
    "index_put_rows": special("torch.index_put(x, (y,), z)", ROWS, "torch.randperm(n)[:3]", "floats(m)"),
    "index_put_adds": special(
        "torch.index_put(x, (y, z), w, True)", SMALL, "places(n, below=n)", "places(n, below=m)", "equals(n)"
    ),
    "index_put_broadcast": special("torch.index_put(x, (y,), z[:1], True)", SMALL, "places(k, below=n)", SMALL),
    "index_put_mask": special("torch.index_put(x, (y,), z)", ROWS, "masks(n, m)", "torch.tensor(2.0)"),
    "index_put_mask_of_rows": special("torch.index_put(x, (y,), z)", ROWS, "masks(n)", "torch.tensor(2.0)"),
    "assigned": special("(lambda t: (t.__setitem__((slice(None), y), 0.5), t)[1])(x * 2)", ROWS, "places(3, below=m)"),
    "graph": special(
        "torch.zeros_like(x).index_add(0, z, x[y] * 2)", SMALL, "places(3 * n, below=n)", "places(3 * n, below=n)"
    ),
    "at_one_place": special(
        "x.scatter_add(1, torch.zeros_like(x, dtype=torch.int64), x * 2), y.index_add(0, torch.zeros_like(z), y)",
        *[SMALL, "equals(n)", "places(n, below=2)"],
    ),
    "embedding_backward": special(
        "torch.ops.aten.embedding_dense_backward(x, y, 9, 2, False)", f"{SMALL}", "places(n, below=9)"
    ),
    "embedding_backward_of_all": special(
        "torch.ops.aten.embedding_dense_backward(x, y, 9, -1, False)", "equals(n, 3, k)", "places(n, 3, below=9)"
    ),
}
"""Forms by name. Sums are of numbers whose order makes no difference, and what is set is set once."""
