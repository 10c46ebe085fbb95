"""The flops of a forward's products, by torch's counter, with attention whose queries share heads of keys and values.

torch's own formulas refuse fewer heads of keys than of queries (grouped-query attention).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.utils.flop_counter import FlopCounterMode

_FORWARD = (
    *("_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention"),
    *("_scaled_dot_product_cudnn_attention", "_scaled_dot_product_flash_attention_for_cpu"),
)
_BACKWARD = tuple(f"{name}_backward" for name in _FORWARD)


def attention_flops(query: Sequence[int], key: Sequence[int], value: Sequence[int], *_: Any, **__: Any) -> int:
    """Of scores and their product with the values: 2 B H M N (D + E).

    query: [B, H, M, D]; key: [B, any number of heads, N, D]; value: [B, as many, N, E].
    """
    batch, heads, rows, depth = query
    return 2 * batch * heads * rows * key[2] * (depth + value[3])


def attention_backward_flops(
    grad_out: Sequence[int], query: Sequence[int], key: Sequence[int], value: Sequence[int], *_: Any, **__: Any
) -> int:
    """Of the scores again, their gradient, and those of query, key and value: 2 B H M N (3 D + 2 E)."""
    batch, heads, rows, depth = query
    return 2 * batch * heads * rows * key[2] * (3 * depth + 2 * value[3])


def flop_counter() -> FlopCounterMode:
    """torch's counter, for the forwards that run while it is open; `get_total_flops` has their sum."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    mapping: dict[Any, Callable[..., int]] = {}
    for names, formula in ((_FORWARD, attention_flops), (_BACKWARD, attention_backward_flops)):
        mapping |= {getattr(torch.ops.aten, name): formula for name in names if hasattr(torch.ops.aten, name)}
    return FlopCounterMode(display=False, custom_mapping=mapping)


def tf32_flops(counted: FlopCounterMode, dtype: str) -> int:
    """Of the flops that were counted, those of convolutions that torch's flags allow in TF32. dtype: of their factors."""
    import torch

    if dtype != "float32" or not torch.backends.cudnn.allow_tf32:
        return 0
    by_op = counted.get_flop_counts().get("Global", {})
    return int(sum(flops for op, flops in by_op.items() if "conv" in str(op)))
