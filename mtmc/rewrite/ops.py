"""ops: how an ATen op becomes nodes of a kernel, and which ops cost nothing as torch calls."""

from __future__ import annotations

from mtmc.rewrite.arithmetic import ARITHMETIC
from mtmc.rewrite.attention import ATTENTION
from mtmc.rewrite.body import Expand
from mtmc.rewrite.composites import COMPOSITES
from mtmc.rewrite.decomposed import decomposed
from mtmc.rewrite.division import DIVISION
from mtmc.rewrite.elementwise import POINTWISE, elementwise
from mtmc.rewrite.indexing import INDEXING
from mtmc.rewrite.inverses import INVERSES
from mtmc.rewrite.losses import LOSSES
from mtmc.rewrite.makers import MAKERS
from mtmc.rewrite.native import NATIVE
from mtmc.rewrite.norms import NORMS
from mtmc.rewrite.powers import POWERS
from mtmc.rewrite.products import PRODUCTS
from mtmc.rewrite.reductions import REDUCTIONS
from mtmc.rewrite.scans import SCANS
from mtmc.rewrite.windows import WINDOWS

_VIEWS = (
    "view.default reshape.default flatten.using_ints unsqueeze.default squeeze.dim squeeze.default squeeze.dims "
    "transpose.int permute.default t.default expand.default slice.Tensor select.int split.Tensor "
    "split_with_sizes.default chunk.default unbind.int detach.default alias.default numpy_T.default "
    "movedim.int unflatten.int narrow.default diagonal.default expand_as.default view_as.default "
    "broadcast_tensors.default mT.default adjoint.default swapaxes.default swapdims.default unfold.default"
)
FREE = frozenset(f"aten.{name}" for name in _VIEWS.split())
"""Ops that only make another view: as torch calls they launch no kernel (reshape may copy what it cannot view)."""

_PARTS = (
    ARITHMETIC,
    DIVISION,
    POWERS,
    MAKERS,
    COMPOSITES,
    REDUCTIONS,
    NORMS,
    NATIVE,
    INVERSES,
    LOSSES,
    PRODUCTS,
    WINDOWS,
    SCANS,
    ATTENTION,
    INDEXING,
)
_TABLE: dict[str, Expand] = {target: expand for part in _PARTS for target, expand in part.items()}


def table(target: str) -> Expand | None:
    """How an op becomes nodes of a kernel, or None where no template covers it.

    One that is in no table may be decomposed into others; only its arguments say whether that is so.
    """
    if target in POINTWISE:
        return elementwise(POINTWISE[target])
    return _TABLE.get(target) or (None if target in FREE else decomposed(target, table))
