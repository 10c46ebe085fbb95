"""How many flops the products in a torch op are: by torch's own formulas, by some more, or unknown.

Most ops look at each of their elements a few times, so their bytes say what they take. Those that multiply matrices in some
way do not. Torch's ops are a finite list: the words below occur in the names of all that do, and one of them without a
formula here is unknown, and so is any op that is not torch's own. A version may use such an op only if its reference does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

_WORDS = """
    mm addmm bmm baddbmm addbmm smm hspmm sspaddmm mv addmv dot vdot vecdot inner matmul linear bilinear trilinear einsum
    tensordot cdist pdist euclidean linalg conv conv1d conv2d conv3d convolution transpose1d transpose2d attention
    transformer lstm gru rnn solve cholesky inverse pinverse svd eig qr lu ldl det slogdet logdet matrix orgqr ormqr geqrf
    householder nuclear kron spsolve int4pack int8pack spatial quantized combination multi"""
_PRODUCTS = frozenset(_WORDS.split())
_CHEAP = (
    "upsample_",
    "_upsample_",
    "_thnn_fused_",
    "multi_margin_loss",
    "linalg_vector_norm",
    "linalg_cross",
    "linalg_diag",
)
"""Beginnings of names that hold such a word by chance."""


def product_flops(func: Any, args: Sequence[Any], kwargs: Any, result: Any) -> int | None:
    """Flops of the products in an op; 0 for one that multiplies no matrices, None for one of which it is not known."""
    from torch.utils.flop_counter import flop_registry

    formula = flop_registry.get(func._overloadpacket)
    if formula is not None:
        return int(formula(*args, **kwargs, out_val=result))
    space, _, name = str(func._schema.name).partition("::")
    base = name.rstrip("_")
    if space not in ("aten", "prims"):
        return None
    if name.startswith(_CHEAP) or not _PRODUCTS & set(base.split("_")):
        return 0
    own = _FORMULAS.get(base)
    return None if own is None else int(own(args, result))


def _trilinear(args: Sequence[Any], result: Any) -> int:
    """Of all that the three tensors are, side by side in the dimensions that each is expanded by."""
    shapes = []
    for tensor, expanded in zip(args[:3], args[3:6], strict=True):
        shape = list(tensor.shape)
        for dim in sorted(expanded):
            shape.insert(dim, 1)
        shapes.append(shape)
    return 2 * math.prod(max(sizes) for sizes in zip(*shapes, strict=True))


def _attention(args: Sequence[Any], result: Any) -> int:
    query, key, value = args[:3]
    return 2 * math.prod(query.shape[:-1]) * int(key.shape[-2]) * (int(query.shape[-1]) + int(value.shape[-1]))


_FORMULAS: dict[str, Callable[[Sequence[Any], Any], int]] = {
    "addbmm": lambda args, result: 2 * math.prod(args[1].shape) * args[2].shape[-1],
    "_int_mm": lambda args, result: 2 * math.prod(args[0].shape) * args[1].shape[-1],
    "_addmm_activation": lambda args, result: 2 * math.prod(args[1].shape) * args[2].shape[-1],
    "mv": lambda args, result: 2 * math.prod(args[0].shape),
    "addmv": lambda args, result: 2 * math.prod(args[1].shape),
    "dot": lambda args, result: 2 * math.prod(args[0].shape),
    "vdot": lambda args, result: 2 * math.prod(args[0].shape),
    "_cdist_forward": lambda args, result: 3 * math.prod(result.shape) * args[0].shape[-1],
    "_trilinear": _trilinear,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
}
