"""References of what computes where its elements are: grids, gradients of pooling, folds, strides, distances."""

from __future__ import annotations

from tests.rewrite.special_references import special

IMAGE = "torch.randn(2, 3, n % 5 + 6, k % 7 + 5)"
GRID = "3 * torch.rand(2, n % 4 + 3, m % 5 + 2, 2) - 1.5"
FAR_GRID = f"1e6 * ({GRID})"
AVERAGE = "torch.ops.aten.avg_pool2d_backward(F.avg_pool2d(x, {1}), x, {0}, None)"
LARGEST = "torch.ops.aten.max_pool2d_with_indices_backward(y[0] * 2, x, {0}, y[1])"
PLAIN = "[3, 2], [2, 1], [1, 0]"
_MODES = [
    (how, around, corners) for how in ("bilinear", "nearest") for around in ("zeros", "border", "reflection")
    for corners in (True, False)
]  # fmt: skip


def _sampled(how: str, around: str, corners: bool) -> str:
    return f"F.grid_sample(x, y, mode='{how}', padding_mode='{around}', align_corners={corners})"


def _largest(windows: str) -> str:
    found = f"torch.ops.aten.max_pool2d_with_indices(x, {windows})"
    return f"(lambda y: torch.ops.aten.max_pool2d_with_indices_backward(y[0] * 2, x, {windows}, y[1]))({found})"


PIXELS = {
    **{
        f"{how}_{around}_{corners}".lower(): special(_sampled(how, around, corners), IMAGE, GRID)
        for how, around, corners in _MODES
    },
    "grid_far_away": special(_sampled("bilinear", "zeros", False), IMAGE, FAR_GRID),
    "grid_far_beyond_borders": special(_sampled("nearest", "border", True), IMAGE, FAR_GRID),
    "average_backward": special(AVERAGE.format("[3, 2], [2, 1], [1, 0], False, True", "(3, 2), (2, 1), (1, 0)"), IMAGE),
    "average_backward_inside": special(
        AVERAGE.format("[3, 3], [2, 2], [1, 1], True, False", "3, 2, 1, True, False"), IMAGE
    ),
    "average_backward_ceil": special(AVERAGE.format("[3, 3], [2, 2], [1, 1], True, True", "3, 2, 1, True"), IMAGE),
    "average_backward_divisor": special(
        AVERAGE.format("[2, 2], [2, 2], [0, 0], False, True", "2").replace("None)", "5)"), IMAGE
    ),
    "adaptive_backward": special(
        "torch.ops.aten._adaptive_avg_pool2d_backward(F.adaptive_avg_pool2d(x, (4, 3)), x)", IMAGE
    ),
    "largest_backward": special(_largest("[3, 2], [2, 1], [1, 0], [1, 1], False"), IMAGE),
    "largest_backward_dilated": special(_largest("[2, 2], [1, 2], [1, 1], [2, 1], True"), IMAGE),
    "largest_places": special(f"torch.ops.aten.max_pool2d_with_indices(x, {PLAIN})", IMAGE),
    "largest_places_special": special(
        f"torch.ops.aten.max_pool2d_with_indices(x, {PLAIN})[1], F.max_pool2d(y, 2, 2, 1, return_indices=True)",
        *["floats(2, 3, n % 5 + 6, k % 7 + 5)"] * 2,
    ),
    "largest_places_dilated": special(
        "torch.ops.aten.max_pool2d_with_indices(torch.tanh(x), [2, 2], [1, 2], [1, 1], [3, 2], True)", IMAGE
    ),
    "fold": special("F.fold(x, (7, 6), 3, padding=1, stride=2)", "torch.randn(2, 18, 12)"),
    "fold_between": special("F.fold(torch.tanh(x), (x.shape[2], 4), 2, stride=2) * 2", "torch.randn(2, 8, 2 * n)"),
    "fold_dilated": special(
        "F.fold(x, (7, 9), (2, 3), dilation=(2, 1), padding=(1, 0), stride=(1, 2))", "torch.randn(12, 28)"
    ),
    "strided": special("x.as_strided((3, 2, 2), (2, 1, 5)) * 2", "torch.randn(n, m)"),
    "strided_from_a_place": special("(x * 2).as_strided((x.shape[0], 3), (x.shape[1], 2), 1)", "torch.randn(n, m)"),
    "overlapping": special("x.as_strided((x.shape[0], x.shape[1] - 2, 3), (x.shape[1], 1, 1)).sum(-1)", "torch.randn(n, m)"),
    "cdist": special("torch.cdist(x, y)", "torch.randn(2, n % 9 + 3, k)", "torch.randn(2, m % 8 + 2, k)"),
    "cdist_orders": special(
        "torch.cdist(x, y, 1.0), torch.cdist(x, y, float('inf')), torch.cdist(x, y, 0.0), torch.cdist(x, y, 3.0)",
        "torch.randn(n % 9 + 3, k)", "torch.randn(m % 8 + 2, k)",
    ),
    "cdist_special": special("torch.cdist(x, y, 1.0)", "floats(n % 9 + 3, k)", "floats(m % 8 + 2, k)"),
    "pdist": special("torch.pdist(x), torch.pdist(x, 1.0)", "torch.randn(n, k)"),
}  # fmt: skip
"""Forms by name."""
