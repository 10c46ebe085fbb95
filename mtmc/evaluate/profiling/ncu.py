"""ncu: NVIDIA's Nsight Compute from the command line: how it is called, and its table of counters read. Pure.

`ncu --csv --page raw` writes lines of its own ("==PROF== ...", "==ERROR== ..."), then a header, a row of units, and a row
for each kernel that it profiled. Numbers may have separators of thousands. Versions differ in how they write units (ns,
nsecond), so units are read, and not assumed. What is not there ("n/a", "") is left out.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

REFUSED = "ERR_NVGPUCTRPERM"
"""What ncu says where the driver gives counters to administrators only (NVreg_RestrictProfilingToAdminUsers=1)."""

TIME, READ, WRITTEN = "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"
_ADD, _MUL, _FMA = (f"smsp__sass_thread_inst_executed_op_{name}_pred_on.sum" for name in ("fadd", "fmul", "ffma"))
_REGISTERS, _GRID = "launch__registers_per_thread", "launch__grid_size"
_SHARED = ("launch__shared_mem_per_block_dynamic", "launch__shared_mem_per_block_static")

BASIC = (TIME, READ, WRITTEN, _REGISTERS, _GRID, *_SHARED)
"""Counters that every GPU from Volta on has."""
SHARES: Mapping[str, str] = {
    "dram_share": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm_share": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "tensor_share": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "l2_hit": "lts__t_sector_hit_rate.pct",
    "l1_hit": "l1tex__t_sector_hit_rate.pct",
}
FULL = (*BASIC, "lts__t_bytes.sum", _ADD, _MUL, _FMA, *SHARES.values())
"""Those, and what not every GPU has under the same name."""

_SCALES = {
    **{"": 1.0, "byte": 1.0, "inst": 1.0, "register/thread": 1.0, "byte/block": 1.0, "%": 1.0, "block": 1.0},
    **{"ns": 1.0, "nsecond": 1.0, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9},
}
_PREFIXES = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_NUMBER = re.compile(r"^[+-]?[\d,]*\.?\d+(?:[eE][+-]?\d+)?$")
_NAMES = ("Kernel Name", "Function Name")
MOST_ROWS = 4096
"""Kernels that are read at most."""


@dataclass(frozen=True)
class Counted:
    """One launch. name: of the kernel as ncu writes it. counters: by name, in base units (bytes, nanoseconds, percent)."""

    name: str
    counters: Mapping[str, float]


def command(ncu: str, counters: Sequence[str]) -> list[str]:
    """What stands before the command that is profiled. Clocks are left as they are; the L2 cache is flushed before each
    launch."""
    return [
        *(ncu, "--csv", "--page", "raw", "--print-units", "base", "--profile-from-start", "off"),
        *("--target-processes", "application-only", "--clock-control", "none", "--cache-control", "all"),
        *("--metrics", ",".join(counters)),
    ]


def refusal(text: str) -> str | None:
    """Why ncu counted nothing, from what it printed, in a line; None where it names no reason."""
    errors = [line.removeprefix("==ERROR==").strip() for line in text.splitlines() if line.startswith("==ERROR==")]
    refused = next((line for line in errors if REFUSED in line), None)
    return (refused or (errors[0] if errors else None) or None) and (refused or errors[0])[:300]


def parse(text: str) -> list[Counted]:
    """The table in what ncu printed; no row where there is none. Lines before it and behind it are not read."""
    rows = _rows(text)
    header = next(rows, None)
    if header is None:
        return []
    column = next((header.index(name) for name in _NAMES if name in header), None)
    units = next(rows, None)
    if column is None or units is None:
        return []
    found: list[Counted] = []
    for row in rows:
        if len(row) != len(header) or len(found) >= MOST_ROWS:
            continue
        counters = {
            name: value
            for name, unit, cell in zip(header, units, row, strict=False)
            if "__" in name and (value := _value(cell, unit)) is not None
        }
        found.append(Counted(row[column], counters))
    return found


def figures(counted: Counted) -> dict[str, float]:
    """A launch's figures, see `mtmc.evaluate.profiling.figures`; what was not counted is left out.

    alu_flops: of fp32 outside of the tensor cores: additions, multiplications, and twice the fused ones.
    """
    have = counted.counters
    found: dict[str, float] = {}
    if TIME in have:
        found["ms"] = have[TIME] / 1e6
    if READ in have and WRITTEN in have:
        found["bytes_dram"] = have[READ] + have[WRITTEN]
    if "lts__t_bytes.sum" in have:
        found["bytes_l2"] = have["lts__t_bytes.sum"]
    if _ADD in have and _MUL in have and _FMA in have:
        found["alu_flops"] = have[_ADD] + have[_MUL] + 2 * have[_FMA]
    if _REGISTERS in have:
        found["registers"] = have[_REGISTERS]
    if _GRID in have:
        found["programs"] = have[_GRID]
    if any(name in have for name in _SHARED):
        found["shared_memory"] = sum(have.get(name, 0.0) for name in _SHARED)
    return found | {name: have[counter] / 100 for name, counter in SHARES.items() if counter in have}


def _rows(text: str) -> Iterator[list[str]]:
    """The rows of the table: from the header on, as long as they begin with a quote."""
    lines = text.replace("\r\n", "\n").split("\n")
    start = next((at for at, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return iter(())
    table = [line for line in lines[start:] if line.startswith('"')]
    return iter(csv.reader(table))


def _value(cell: str, unit: str) -> float | None:
    """A cell in base units; None for one that is no number, or in a unit that is not known."""
    cell = cell.strip()
    if not _NUMBER.match(cell):
        return None
    scale = _SCALES.get(unit)
    if scale is None and unit[:1] in _PREFIXES:
        scale = _PREFIXES[unit[0]] * _SCALES.get(unit[1:], math.nan)
    value = float(cell.replace(",", "")) * (math.nan if scale is None else scale)
    return value if math.isfinite(value) else None
