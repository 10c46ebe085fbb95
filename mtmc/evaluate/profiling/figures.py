"""figures: what a profile tells of each kernel, whoever made it: names, units, and how launches are added up. Pure.

ms              device time of all its launches in a forward, milliseconds
launches        of a forward
bytes_dram      that reach DRAM, read and written          bytes_l2   that L2 delivers or takes
bytes_read, bytes_written, unique_read     that programs ask for; of the reads each byte once
flops, dot_flops      all of them; of products
registers, spills, shared_memory, programs, occupancy     as the metrics of an outcome, of its largest launch
dram_share, sm_share, tensor_share, l2_hit, l1_hit        0 to 1: of the peak, of the requests
mix_tensor, mix_global, mix_shared, mix_copies, mix_math, mix_integer   0 to 1: of the instructions in its code
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

Figures = Mapping[str, Mapping[str, float]]
"""By the name of the kernel."""

MOST_KERNELS = 12
"""Kernels of a profile that are kept, the longest; what the others take together is "others"."""
OTHERS = "others"
NAME = 60
"""Characters of a kernel's name: those of libraries are longer."""

_SUMMED = (
    *("ms", "launches", "bytes_dram", "bytes_l2", "bytes_read", "bytes_written", "unique_read", "bytes_moved"),
    *("flops", "dot_flops", "alu_flops"),
)
_LARGEST = ("registers", "spills", "shared_memory", "programs")


def added(launches: Iterable[tuple[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """One entry a kernel from one a launch: totals are summed, resources are the largest, shares are means by time."""
    found: dict[str, dict[str, float]] = {}
    weights: dict[tuple[str, str], float] = {}
    for raw, figures in launches:
        name = short(raw)
        own = found.setdefault(name, {"launches": 0.0})
        own["launches"] += figures.get("launches", 1.0)
        weight = max(figures.get("ms", 0.0), 1e-12)
        for metric, value in figures.items():
            if metric == "launches":
                continue
            if metric in _SUMMED:
                own[metric] = own.get(metric, 0.0) + value
            elif metric in _LARGEST:
                own[metric] = max(own.get(metric, value), value)
            else:
                before = weights.get((name, metric), 0.0)
                own[metric] = (own.get(metric, 0.0) * before + value * weight) / (before + weight)
                weights[name, metric] = before + weight
    return found


def longest(figures: Figures, most: int = MOST_KERNELS) -> dict[str, dict[str, float]]:
    """The kernels that take longest, and what the rest takes together as `OTHERS`."""
    ordered = sorted(figures, key=lambda name: (-figures[name].get("ms", 0.0), name))
    kept = {name: dict(figures[name]) for name in ordered[:most]}
    rest = ordered[most:]
    if rest:
        totals = ("ms", "launches")
        kept[OTHERS] = {each: sum(figures[name].get(each, 0.0) for name in rest) for each in totals}
    return kept


def joined(measured: Figures, known: Figures) -> dict[str, dict[str, float]]:
    """What was measured of each kernel, and below it what is known of it besides; only kernels that were measured."""
    return {name: {**known.get(name, {}), **own} for name, own in measured.items()}


_UNNAMED = re.compile(r"(?:\w+::)*(?:<unnamed>|unnamed>|\(anonymous namespace\))::")


def short(name: str) -> str:
    """A kernel's name without what a compiler adds to it, cut: of a function of C++ without its arguments and the space
    without a name that it may stand in."""
    plain = _UNNAMED.sub("", name.strip().removeprefix("void ")).split("(", 1)[0].replace("/", "|") or "unnamed"
    return plain if len(plain) <= NAME else f"{plain[: NAME - 1]}~"
