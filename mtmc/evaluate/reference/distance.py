"""How far one large tensor is from another: norms in float64 over what is finite, and a task's tolerance.

A block at a time (`mtmc.evaluate.reference.blocks`), with one wait for the device at the end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from mtmc.evaluate.reference.blocks import block_size, blocks
from mtmc.evaluate.reference.side_by_side import side_by_side
from mtmc.task.quantized import is_fp8, readable, steps_apart
from mtmc.task.tolerance import DEFAULT, Tolerance

ROW = 4096
"""Elements whose differences `apart` sums up at a time where it can."""
LARGE = 2**22
"""Elements from which a GPU's memory takes longer than its launches."""


@dataclass(frozen=True)
class Distance:
    """How far a is from b where both are finite. error: |a - b| / |b| in the 2-norm. largest: of |a - b|.
    excess: largest |a - b| - t |b|, for the relative tolerance t."""

    error: float
    largest: float
    excess: float

    def at_least(self, error: float) -> Distance:
        """As of an a of that norm-wise error, where this one's is smaller, and off by the largest difference anywhere."""
        largest = self.largest * max(1.0, error / self.error) if self.error else 0.0
        return Distance(max(self.error, error), largest, largest)


@dataclass(frozen=True)
class Limits:
    """A task's tolerance for one dtype. absolute, relative: of floating numbers of more than 8 bits. steps: of others."""

    absolute: float
    relative: float
    steps: int

    @classmethod
    def of(cls, dtype: torch.dtype, tolerance: Tolerance = DEFAULT) -> Limits:
        """The limits of a contract for a dtype."""
        name = str(dtype).removeprefix("torch.")
        return cls(tolerance.absolute(name), tolerance.relative(name), tolerance.steps_of(name))


def in_steps(dtype: torch.dtype) -> bool:
    """Whether values of a dtype are compared by the steps between them."""
    return is_fp8(dtype) or not (dtype.is_floating_point or dtype.is_complex)


def within_tolerance(a: torch.Tensor, b: torch.Tensor, tolerance: Tolerance = DEFAULT) -> bool:
    """Whether a is b as far as a task's tolerance shows: NaN equals NaN."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    outside = torch.zeros((), dtype=torch.bool, device=a.device)
    limits = Limits.of(a.dtype, tolerance)
    for index in blocks(a.shape, block_size(a)):
        x, y = a[index], b[index]
        if in_steps(x.dtype):
            outside |= apart_in_steps(x, y, limits.steps).any()
        elif x.dtype.is_complex:
            outside |= (x != y).any()
        else:
            near = torch.isclose(x.double(), y.double(), limits.relative, limits.absolute, equal_nan=True)
            outside |= ~near.all()
    return not bool(outside)


def apart_in_steps(a: torch.Tensor, b: torch.Tensor, steps: int) -> torch.Tensor:
    """Which elements are more than so many steps apart; fp8 NaN and infinities are so from all but their like."""
    if not is_fp8(a.dtype):
        return a != b if steps == 0 else steps_apart(a, b) > steps
    x, y = readable(a), readable(b)
    finite = torch.isfinite(x) & torch.isfinite(y)
    same = (x == y) | (torch.isnan(x) & torch.isnan(y))
    return torch.where(finite, steps_apart(a, b) > steps, ~same)


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


def distances(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]], limit: float) -> list[Distance]:
    """`distance` of each pair; of small ones that are alike, together, with one wait for the device."""
    found, tables = dict[int, Distance](), list[tuple[list[int], torch.Tensor]]()
    for positions, (a, b) in side_by_side(pairs):
        x, y = a.double(), b.double()
        inside = torch.isfinite(x) & torch.isfinite(y)
        y = torch.where(inside, y, 0.0)
        off = torch.where(inside, x - y, 0.0).abs_()
        excess = torch.where(inside, off - limit * y.abs(), 0.0)
        table = torch.stack([vector_norm(off, 1), vector_norm(y, 1), off.amax(1), excess.amax(1)], 1)
        tables.append((positions, table))
    for positions, rows in read(tables):
        for at, (off_norm, scale, largest, most) in zip(positions, rows, strict=True):
            found[at] = Distance(off_norm / (scale or 1.0), largest, most)
    return [found[at] if at in found else distance(*pair, limit) for at, pair in enumerate(pairs)]


def read(tables: Sequence[tuple[list[int], torch.Tensor]]) -> list[tuple[list[int], list[list[float]]]]:
    """Rows of numbers that are known of the items at some positions, off the device. Tables have as many columns each."""
    if not tables:
        return []
    rows: list[list[float]] = torch.cat([table.to(tables[0][1].device) for _, table in tables]).tolist()
    ends = [0]
    for positions, _ in tables:
        ends.append(ends[-1] + len(positions))
    spans = zip(tables, ends, ends[1:], strict=False)
    return [(positions, rows[begin:end]) for (positions, _), begin, end in spans]


def peaks_of(tensors: Sequence[torch.Tensor]) -> list[float]:
    """`peak_of` of each; of small ones that are alike, together."""
    tables = []
    for positions, [rows] in side_by_side([(each,) for each in tensors]):
        sizes = rows.abs()
        tables.append((positions, torch.where(torch.isfinite(sizes), sizes, 0.0).amax(1, keepdim=True).double()))
    found = {at: row[0] for positions, rows in read(tables) for at, row in zip(positions, rows, strict=True)}
    return [found[at] if at in found else peak_of(each) for at, each in enumerate(tensors)]


def all_finite(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether every number is; fp8 is read."""
    items, left, flags = [(each,) for each in tensors], set(range(len(tensors))), list[torch.Tensor]()
    for positions, [rows] in side_by_side(items):
        left.difference_update(positions)
        flags.append(torch.isfinite(readable(rows)).all())
    flags += [torch.isfinite(readable(tensors[at])).all() for at in sorted(left)]
    return not flags or bool(torch.stack([each.to(flags[0].device) for each in flags]).all())


def peak_of(a: torch.Tensor) -> float:
    """The largest size of a finite number of a tensor, 0 where there is none."""
    peaks = []
    for index in blocks(a.shape, block_size(a)):
        part = a[index].abs()
        peaks.append(torch.where(torch.isfinite(part), part, 0.0).amax())
    return float(torch.stack(peaks).amax()) if peaks else 0.0


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
