"""convolutions: what rules on convolutions read of their arguments."""

from __future__ import annotations

from typing import Any

CONVOLUTIONS = {"aten.conv1d.default": 1, "aten.conv2d.default": 2, "aten.conv3d.default": 3}
STRIDE_AT, PADDING_AT, DILATION_AT, GROUPS_AT = 3, 4, 5, 6
"""Where these stand among a convolution's arguments."""


def each_of(sizes: Any) -> tuple[Any, ...]:
    """A setting of each dimension of places, of which one number stands for all."""
    return tuple(sizes) if isinstance(sizes, (tuple, list)) else (sizes,)
