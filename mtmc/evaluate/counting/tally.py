"""Tallies: what program instances of a kernel do, and what that comes to over a grid."""

from __future__ import annotations

import itertools
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict, final

from mtmc.evaluate.counting.storages import SECTOR

Record = dict[str, Any]
"""An `OpRecord` or a `LaunchRecord` in the making."""
Counts = Mapping[str, Any]
"""Either of them, to be read."""


@final
class OpRecord(TypedDict):
    """What a torch op moves and computes, see `mtmc.evaluate.counting.traffic`."""

    op: str
    bytes_read: int
    bytes_written: int
    strided_read: int
    flops: int
    dot_flops: int
    dtype: str
    elements: int
    priced: bool
    kernels: int
    dims: list[int]
    channels_last: bool
    reads: list[tuple[int, int]]
    writes: list[tuple[int, int]]


@final
class LaunchRecord(TypedDict):
    """What a Triton launch moves and computes, see `mtmc.evaluate.counting.traffic`."""

    kernel: str
    grid: list[int]
    programs: int
    bytes_read: int
    bytes_written: int
    unique_read: int
    unique_written: int
    sector_read: int
    sector_written: int
    hot_read: int
    program_read: int
    window_read: dict[str, float]
    trailing: int
    trailing_read: float
    flops: int
    dot_flops: int
    dots: float
    dots_most: float
    dot_precision: str | None
    dot_dtype: str | None
    dot_shape: list[int]
    kinds: list[tuple[str, str | None]]
    alu_ops: int
    rounds: float
    atomics: int
    constexprs: dict[str, bool | int | float | str | None]
    num_warps: int
    num_stages: int
    arguments: dict[str, str]
    function: str
    sampled: int
    reads: list[tuple[int, int]]
    writes: list[tuple[int, int]]


_HOT = 64 << 10  # bytes of one storage that stay in the first cache of every GPU of the table


_CLOSE = 4
"""Bytes from the first to the last element of a block, over those of its elements, where they lie close together."""
_BLOCKS = 256
"""Of a program, beyond which it is not looked for who reads them too."""
_REMEMBERED = 32
"""Blocks of a storage that a program's later ones are held against."""


@dataclass
class Use:
    """What one program does with one storage: requested bytes, and bytes of blocks it has not asked for before."""

    read: int = 0
    written: int = 0
    unique_read: int = 0
    unique_written: int = 0
    blocks: set[tuple[bool, int, int, int]] = field(default_factory=set)
    first: int | None = None  # lowest address of its first load
    atomic: bool = False
    span: tuple[int, int] = (sys.maxsize, 0)
    begin: int = sys.maxsize  # lowest address that it writes
    dense: list[tuple[int, int, Any]] = field(default_factory=list)

    def again(self, addresses: Any, low: int, high: int, size: int) -> int:
        """How many elements of a block that is read lie in blocks that were read before, as those of a row that is read at
        two offsets do. addresses: of elements of `size` bytes, from `low` to `high`.

        Known of blocks whose elements lie close together, of the first `_REMEMBERED` of them; else 0.
        """
        import numpy as np

        if high - low + size > _CLOSE * addresses.size * size:
            return 0
        flat = addresses.reshape(-1)
        known = [before for start, end, before in self.dense if start <= high and low <= end]
        if len(self.dense) < _REMEMBERED:
            self.dense.append((low, high, flat))
        return int(np.count_nonzero(np.isin(flat, np.concatenate(known)))) if known else 0

    def behind(self, beside: Use) -> int:
        """How many programs before this one the one began that first read what is the last of its own, as far as the next
        program tells: where blocks of both lie equally far apart. 0 where none did. beside: of the next program."""
        step = (beside.first or 0) - (self.first or 0)
        lows = sorted({low for writes, low, _, _ in self.blocks if not writes})
        if step <= 0 or not 1 < len(lows) <= _BLOCKS:
            return 0
        apart = Counter((b - a) // step for a, b in itertools.combinations(lows, 2) if (b - a) % step == 0)
        return int(apart.most_common(1)[0][0]) if apart else 0

    def common(self, other: Use) -> float:
        """Unique bytes of what this program reads that another one reads too, as whole blocks."""
        mine, theirs = ({block for block in use.blocks if not block[0]} for use in (self, other))
        return self.unique_read * len(mine & theirs) / max(1, len(mine))


@dataclass
class Tally:
    """What one program (or, counting exactly, a whole grid) does."""

    uses: defaultdict[int | None, Use] = field(default_factory=lambda: defaultdict(Use))
    sectors_read: int = 0
    sectors_written: int = 0
    flops: float = 0.0
    dot_flops: float = 0.0
    alu: float = 0.0
    atomics: int = 0
    rounds: int = 0
    dots: defaultdict[tuple[str, str, int, int, int], int] = field(default_factory=lambda: defaultdict(int))
    roundings: set[str] = field(default_factory=set)
    work: float = 0.0


def summary(tallies: Sequence[Tally], weights: Sequence[float], sizes: Sequence[int]) -> Record:
    """Totals over a grid of tallies that stand for `weights` programs each; sizes: bytes of each storage."""

    def total(value: Callable[[Tally], float]) -> int:
        return round(sum(w * value(t) for w, t in zip(weights, tallies, strict=True)))

    programs = max(1.0, sum(weights))
    numbers = sorted({n for t in tallies for n in t.uses if n is not None})
    reads = [[n, _unique(tallies, weights, n, "unique_read", sizes[n])] for n in numbers]
    writes = [[n, _unique(tallies, weights, n, "unique_written", sizes[n])] for n in numbers]
    stray = [total(lambda t: t.uses[None].unique_read if None in t.uses else 0)]
    stray.append(total(lambda t: t.uses[None].unique_written if None in t.uses else 0))
    return {
        "bytes_read": total(lambda t: sum(u.read for u in t.uses.values())),
        "bytes_written": total(lambda t: sum(u.written for u in t.uses.values())),
        "unique_read": sum(size for _, size in reads) + stray[0],
        "unique_written": sum(size for _, size in writes) + stray[1],
        "sector_read": SECTOR * total(lambda t: t.sectors_read),
        "sector_written": SECTOR * total(lambda t: t.sectors_written),
        "hot_read": total(lambda t: sum(t.uses[n].read for n, size in reads if size <= _HOT and n in t.uses)),
        "program_read": round(total(lambda t: sum(u.unique_read for u in t.uses.values())) / programs),
        "flops": total(lambda t: t.flops),
        "dot_flops": total(lambda t: t.dot_flops),
        **_dot_fields(tallies, weights),
        "kinds": sorted({(dot[0], dot[1]) for t in tallies for dot in t.dots})
        + sorted((name, "rounded") for name in {name for t in tallies for name in t.roundings}),
        "alu_ops": total(lambda t: t.alu),
        "rounds": round(sum(w * t.rounds for w, t in zip(weights, tallies, strict=True)) / programs, 6),
        "atomics": total(lambda t: t.atomics),
        "reads": [pair for pair in reads if pair[1]],
        "writes": [pair for pair in writes if pair[1]],
    }


def _dot_fields(tallies: Sequence[Tally], weights: Sequence[float]) -> Record:
    """How many tile products a program executes, and the kind of those with most work."""
    dots: defaultdict[tuple[str, str, int, int, int], float] = defaultdict(float)
    for weight, tally in zip(weights, tallies, strict=True):
        for dot, count in tally.dots.items():
            dots[dot] += weight * count
    main = max(dots, key=lambda d: dots[d] * d[2] * d[3] * d[4]) if dots else None
    return {
        "dots": round(sum(dots.values()) / max(1.0, sum(weights)), 6),
        "dots_most": float(max((sum(tally.dots.values()) for tally in tallies), default=0)),
        "dot_precision": main[1] if main else None,
        "dot_dtype": main[0] if main else None,
        "dot_shape": list(main[2:]) if main else [],
    }


def _unique(tallies: Sequence[Tally], weights: Sequence[float], number: int, what: str, size: int) -> int:
    """Bytes of a storage that a grid touches: what its programs touch, never more than there is.

    Where all sampled programs touch the same stretch (a bias, a whole weight matrix), that stretch.
    """
    uses = [t.uses[number] if number in t.uses else Use() for t in tallies]
    each = [getattr(use, what) for use in uses]
    same = len(uses) > 1 and len({(use.span, value) for use, value in zip(uses, each, strict=True)}) == 1
    total = each[0] if same else round(sum(w * value for w, value in zip(weights, each, strict=True)))
    return int(min(total, size))
