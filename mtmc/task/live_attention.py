"""Masks of attention as a GPU takes them. A CPU takes more, and a printed module has to mean the same on both.

On CUDA (torch 2.11, H200) a floating mask of another dtype than the query's is read as if it were of the query's, which
gives wrong numbers without an error, and a mask that is one for all keys (last size 1) is a misaligned address.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

ATTENTION = "aten.scaled_dot_product_attention.default"
_KEY, _MASK = 1, 3


def mask_for_gpus(node: torch.fx.Node, args: Sequence[str]) -> list[str]:
    """The arguments of a call of attention, as text, with a mask of the query's dtype that has a value for each key.

    The least number of a wider dtype becomes the least of the query's, so that rows without any key stay finite.
    """
    found = list(args)
    query, mask = node.args[0], node.args[_MASK] if len(node.args) > _MASK else None
    if not isinstance(query, torch.fx.Node) or not isinstance(mask, torch.fx.Node):
        return found
    dtype, value = query.meta["val"].dtype, mask.meta["val"]
    if value.dim() and isinstance(value.shape[-1], int) and value.shape[-1] == 1:
        text = found[_MASK]
        found[_MASK] = f"{text}.expand(*{text}.shape[:-1], {found[_KEY]}.size(-2)).contiguous()"
    if value.is_floating_point() and value.dtype != dtype:
        found[_MASK] = f"{found[_MASK]}.clamp(min=torch.finfo({dtype}).min).to({dtype})"
    return found
