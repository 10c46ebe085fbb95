"""ops: how an ATen op becomes nodes of a kernel, and which ops cost nothing as torch calls."""

from __future__ import annotations

from mtmc.rewrite.builder import Expand
from mtmc.rewrite.operators.arithmetic import ARITHMETIC
from mtmc.rewrite.operators.attention import ATTENTION
from mtmc.rewrite.operators.bags import BAGS
from mtmc.rewrite.operators.composites import COMPOSITES
from mtmc.rewrite.operators.decomposed import decomposed
from mtmc.rewrite.operators.distances import DISTANCES
from mtmc.rewrite.operators.division import DIVISION
from mtmc.rewrite.operators.elementwise import POINTWISE, elementwise
from mtmc.rewrite.operators.fourier import FOURIER_OPS
from mtmc.rewrite.operators.indexing import INDEXING
from mtmc.rewrite.operators.inverses import INVERSES
from mtmc.rewrite.operators.lookups import LOOKUPS
from mtmc.rewrite.operators.losses import LOSSES
from mtmc.rewrite.operators.makers import MAKERS
from mtmc.rewrite.operators.native import NATIVE
from mtmc.rewrite.operators.norms import NORMS
from mtmc.rewrite.operators.orders import ORDERS
from mtmc.rewrite.operators.pool_places import POOL_PLACES
from mtmc.rewrite.operators.powers import POWERS
from mtmc.rewrite.operators.products import PRODUCTS
from mtmc.rewrite.operators.reductions import REDUCTIONS
from mtmc.rewrite.operators.sampling import SAMPLING
from mtmc.rewrite.operators.scans import SCANS
from mtmc.rewrite.operators.scatters import SCATTERS
from mtmc.rewrite.operators.strides import STRIDES
from mtmc.rewrite.operators.unpooling import UNPOOLING
from mtmc.rewrite.operators.windows import WINDOWS

_VIEWS = (
    "view.default reshape.default flatten.using_ints unsqueeze.default squeeze.dim squeeze.default squeeze.dims "
    "transpose.int permute.default t.default expand.default slice.Tensor select.int split.Tensor "
    "split_with_sizes.default chunk.default unbind.int detach.default alias.default numpy_T.default "
    "movedim.int unflatten.int narrow.default diagonal.default expand_as.default view_as.default "
    "view_as_real.default view_as_complex.default "
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
    FOURIER_OPS,
    WINDOWS,
    SCANS,
    ORDERS,
    ATTENTION,
    INDEXING,
    LOOKUPS,
    BAGS,
    SCATTERS,
    DISTANCES,
    SAMPLING,
    STRIDES,
    UNPOOLING,
    POOL_PLACES,
)
_TABLE: dict[str, Expand] = {target: expand for part in _PARTS for target, expand in part.items()}


def table(target: str) -> Expand | None:
    """How an op becomes nodes of a kernel, or None where no template covers it.

    One that is in no table may be decomposed into others; only its arguments say whether that is so.
    """
    if target in POINTWISE:
        return elementwise(POINTWISE[target])
    return _TABLE.get(target) or (None if target in FREE else decomposed(target, table))
