"""How far one large tensor is from another: norms in float64 over what is finite, and KernelBench's tolerance.

A block at a time (`mtmc.evaluate.reference.blocks`), with one wait for the device at the end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from mtmc.evaluate.reference.blocks import block_size, blocks

TOLERANCE = {torch.float64: 1e-4, torch.float32: 1e-4}
LOW_PRECISION_TOLERANCE = 1e-2
ROW = 4096
"""Elements whose differences `apart` sums up at a time where it can."""
LARGE = 2**22
"""Elements from which a GPU's memory takes longer than its launches."""


@dataclass(frozen=True)
class Distance:
    """How far a is from b where both are finite. error: |a - b| / |b| in the 2-norm. largest: of |a - b|.
    excess: largest |a - b| - t |b|, for the tolerance t."""

    error: float
    largest: float
    excess: float


def tolerance(dtype: torch.dtype) -> float:
    """KernelBench's, relative and absolute."""
    return TOLERANCE.get(dtype, LOW_PRECISION_TOLERANCE)


def within_tolerance(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether a is b as far as KernelBench's tolerance shows: NaN equals NaN, and what is no float must be equal."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    outside = torch.zeros((), dtype=torch.bool, device=a.device)
    limit = tolerance(a.dtype)
    for index in blocks(a.shape, block_size(a)):
        x, y = a[index], b[index]
        if a.dtype.is_floating_point:
            outside |= ~torch.isclose(x.double(), y.double(), rtol=limit, atol=limit, equal_nan=True).all()
        else:
            outside |= (x != y).any()
    return not bool(outside)


def norm_error(got: torch.Tensor, oracle: torch.Tensor, where: torch.Tensor) -> float:
    """|got - oracle| / |oracle| over the elements `where`, in the 2-norm; the numerator alone if the oracle is zero."""
    return distance(got, oracle, 0.0, where).error


def distance(a: torch.Tensor, b: torch.Tensor, limit: float, where: torch.Tensor | None = None) -> Distance:
    """How far a is from b, in float64, over the elements where both are finite (and of those `where`, a bool tensor).

    limit: t of `Distance.excess`. If b is zero, the error is the 2-norm of a.
    """
    rows = []
    for index in blocks(a.shape, block_size(a)):
        x, y = a[index].double(), b[index].double()
        inside = torch.isfinite(x) & torch.isfinite(y)
        inside = inside if where is None else inside & where[index]
        y = torch.where(inside, y, 0.0)
        off = torch.where(inside, x - y, 0.0).abs_()
        excess = torch.where(inside, off - limit * y.abs(), 0.0)
        rows.append(torch.stack([vector_norm(off), vector_norm(y), off.amax(), excess.amax()]))
    table = torch.stack(rows).cpu()
    norms, peaks = vector_norm(table[:, :2], 0).tolist(), table[:, 2:].amax(0).tolist()
    return Distance(norms[0] / (norms[1] or 1.0), peaks[0], peaks[1])


def apart(a: torch.Tensor, b: torch.Tensor, wide: torch.dtype) -> tuple[float, float, float]:
    """|a - b| and |b| in the 2-norm, and a number that no |a - b| of an element is above. Not finite where they are not.

    wide: what is summed in. On a GPU differences of large tensors are not written to memory, which would take twice the
    time of reading both: the 2-norm of a row of them is no less than the largest.
    """
    if _rows_can_be_read(a, b, wide):
        return _read_once(a, b)
    table = []
    for index in blocks(a.shape, block_size(a)):
        y = b[index].to(wide)
        off = a[index].to(wide) - y
        table.append(torch.stack([vector_norm(off), vector_norm(y), torch.linalg.vector_norm(off, math.inf)]))
        del y, off
    return _summed(table)


def _rows_can_be_read(a: torch.Tensor, b: torch.Tensor, wide: torch.dtype) -> bool:
    plain = a.dtype == b.dtype == wide and a.is_contiguous() and b.is_contiguous()
    return plain and a.device.type == "cuda" and a.numel() >= LARGE


def _read_once(a: torch.Tensor, b: torch.Tensor) -> tuple[float, float, float]:
    """`apart` of contiguous tensors. Distances of rows are one kernel that keeps the differences in registers."""
    x, y = a.detach().reshape(-1), b.detach().reshape(-1)
    whole = x.numel() // ROW * ROW
    rows, others = (part[:whole].view(-1, 1, ROW) for part in (x, y))
    norms = torch.cdist(rows, others, compute_mode="donot_use_mm_for_euclid_dist").reshape(-1)
    rest, zero = vector_norm(x[whole:] - y[whole:]), norms.new_zeros(())  # less than a row is left
    table = [torch.stack([vector_norm(norms), zero, norms.amax()]), torch.stack([rest, zero, rest])]
    table += [torch.stack([zero, vector_norm(part), zero]) for part in y.split(block_size(y))]
    return _summed(table)


def _summed(table: list[torch.Tensor]) -> tuple[float, float, float]:
    """Of rows of two norms and a largest number, those of all of them."""
    parts = torch.stack(table).double().cpu()
    off, scale = vector_norm(parts[:, :2], 0).tolist()
    return off, scale, float(parts[:, 2].amax())


def vector_norm(values: torch.Tensor, dim: int | None = None) -> torch.Tensor:
    """The 2-norm, over all dimensions or one."""
    norm: torch.Tensor = torch.linalg.vector_norm(values, dim=dim)
    return norm
