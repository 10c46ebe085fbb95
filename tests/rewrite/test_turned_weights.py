"""Kernels of convolutions whose weights do not lie in the order of their dimensions."""

from __future__ import annotations

from tests.rewrite.interpreting import interpret
from tests.rewrite.references import reference

SIZES = {"n": (32, 8, 5), "m": (24, 6, 7), "k": (5, 3, 3)}


def held(*shape: str) -> str:
    return f"self.w = nn.Parameter(torch.randn({', '.join(shape)}) / 4)"


IMAGES, ROWS = "torch.randn(2, n, 9, 8)", "torch.randn(2, n, 12)"
TURNED = {
    "each_channel_by_itself": reference(
        "F.conv2d(x, self.w.permute(3, 2, 0, 1), padding=1, groups=x.shape[1])", IMAGES, held("3", "3", "1", "n"), SIZES
    ),
    "rows_by_themselves": reference(
        "F.conv1d(x, self.w.permute(2, 1, 0), groups=x.shape[1]).relu()", ROWS, held("k", "1", "n"), SIZES
    ),
    "of_rows": reference("F.conv1d(x, self.w.permute(2, 1, 0)) + 1", ROWS, held("k", "n", "m"), SIZES),
    "every_second": reference(
        "F.conv1d(x, self.w[:, :, ::2], groups=x.shape[1])", ROWS, held("n", "1", "2 * k"), SIZES
    ),
}  # fmt: skip


def test_all_are_right() -> None:
    cases = [{"name": name, "source": text, "ways": [["lower"], ["fuse", "lower"]]} for name, text in TURNED.items()]
    assert interpret(cases) == dict.fromkeys(TURNED)
