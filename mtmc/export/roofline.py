"""A picture of the kernels of profiled versions under the roofs of their GPU.

After Williams, Waterman and Patterson (2009): flops a byte of DRAM against flops a second. A kernel lies below the slanted
roof where memory is its limit, and below a level one where the units are that compute it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mtmc.errors import ConfigError
from mtmc.export.plots import BEST_COLOUR, FAINT, INK, LINE, LINE_COLOURS, new_figure, save_figure
from mtmc.export.record import RunRecord, best_path
from mtmc.export.text import one_line, runtime
from mtmc.hardware import Hardware, hardware
from mtmc.outcome import kernel_figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LABELS = 10
"""Kernels that are named, the longest ones."""


@dataclass(frozen=True)
class Point:
    """One kernel. version: whose it is, in a word. intensity: flops a byte of DRAM. gflops: that it reaches, GFLOP/s.

    ms: its time.
    """

    version: str
    kernel: str
    intensity: float
    gflops: float
    ms: float


def roofline_png(record: RunRecord, path: Path) -> Path | None:
    """Draw the kernels of the versions that were profiled; None, and no file, where none was or the GPU is not known.

    Raises: RunError where the file cannot be written or matplotlib is missing.
    """
    points, gpu = points_of(record), _gpu(record)
    if gpu is None:
        return None
    kind = record.tree.best.outcome.runtime_kind or "of unknown kind"
    title = f"{one_line(record.tree.task_name, 50)} on an {gpu.name} ({kind})"
    return save_figure(roofline_figure(points, gpu, title), path) if points else None


def points_of(record: RunRecord) -> list[Point]:
    """Of the root, and of the version nearest to the best one on the way there that was profiled; none for a GPU that is
    not in the table."""
    found: list[Point] = []
    if _gpu(record) is None:
        return []
    path = [each for each in best_path(record.tree) if kernel_figures(record.tree[each].outcome.metrics)]
    for node_id in dict.fromkeys((*path[:1], *path[-1:])):
        name = "root" if node_id == record.tree.root.id else f"#{node_id}"
        for kernel, own in kernel_figures(record.tree[node_id].outcome.metrics).items():
            moved, flops, ms = own.get("bytes_dram", 0.0), own.get("flops", 0.0), own.get("ms", 0.0)
            if moved > 0 and flops > 0 and ms > 0:
                found.append(Point(name, kernel, flops / moved, flops / ms / 1e6, ms))
    return found


def _gpu(record: RunRecord) -> Hardware | None:
    """The GPU that runtimes are for; None where it is not in the table."""
    try:
        return hardware(str(record.settings.get("hardware", "")))
    except ConfigError:
        return None


def roofline_figure(points: Sequence[Point], gpu: Hardware, title: str) -> Figure:
    """The figure behind `roofline_png`. points: one at least. Raises: RunError where matplotlib is missing."""
    figure, axes = new_figure(9.6, 5.0)
    axes.set_xscale("log")
    axes.set_yscale("log")
    intensities = [point.intensity for point in points]
    ridge = gpu.fp16_tflops * 1e3 / gpu.dram_gbs
    low, high = min([*intensities, 1.0]) / 2.5, max([*intensities, ridge]) * 6
    _draw_roofs(axes, gpu, low, high)
    _draw_kernels(axes, points)
    axes.set_xlim(low, high)
    axes.set_ylim(min(point.gflops for point in points) / 4, gpu.fp16_tflops * 1e3 * 2.5)
    axes.set_xlabel("flops a byte of DRAM", color=INK, fontsize=9)
    axes.set_ylabel("GFLOP/s", color=INK, fontsize=9)
    axes.set_title(f"{title}: kernels under the roofs", loc="left", fontsize=11, color=INK)
    axes.legend(
        frameon=False,
        title_fontsize=8,
        fontsize=8,
        labelcolor=INK,
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        title="size: its time",
    )
    axes.tick_params(colors=FAINT, labelsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(LINE)
    return figure


def _draw_kernels(axes: Axes, points: Sequence[Point]) -> None:
    """Each kernel, coloured by its version; those that take longest have a letter, and their names beside the figure."""
    versions = list(dict.fromkeys(point.version for point in points))
    named = sorted(points, key=lambda each: -each.ms)[:MOST_LABELS]
    longest = max(point.ms for point in points)
    for index, version in enumerate(versions):
        own = [point for point in points if point.version == version]
        axes.scatter(
            [point.intensity for point in own],
            [point.gflops for point in own],
            s=[60 + 200 * point.ms / longest for point in own],
            color=LINE_COLOURS[index % len(LINE_COLOURS)],
            edgecolors=BEST_COLOUR if index == len(versions) - 1 else "#ffffff",
            linewidths=1.6,
            alpha=0.85,
            label=version,
            zorder=4,
        )
    names = []
    for at, point in enumerate(named):
        letter = chr(ord("a") + at)
        place = (point.intensity, point.gflops)
        axes.annotate(letter, place, ha="center", va="center", fontsize=7.5, color="#ffffff", zorder=5)
        names.append(f"{letter}  {one_line(point.kernel, 30)} ({point.version}, {runtime(point.ms)})")
    axes.text(1.02, 0.62, "\n".join(names), transform=axes.transAxes, fontsize=8, color=INK, va="top")


def _draw_roofs(axes: Axes, gpu: Hardware, low: float, high: float) -> None:
    """DRAM's roof up to the highest level one, and each level roof from there on."""
    levels = {"fp16 and bf16": gpu.fp16_tflops, "TF32": gpu.tf32_tflops, "fp32": gpu.fp32_tflops}
    ridge = max(levels.values()) * 1e3 / gpu.dram_gbs
    axes.plot([low, ridge], [low * gpu.dram_gbs, ridge * gpu.dram_gbs], color=INK, linewidth=1.4, zorder=2)
    told = f"DRAM {gpu.dram_gbs:,.0f} GB/s"
    place = (low * 1.4, low * 1.4 * gpu.dram_gbs)
    axes.annotate(told, place, xytext=(2, 8), textcoords="offset points", fontsize=8, color=FAINT, rotation=32)
    for name, tflops in levels.items():
        start = tflops * 1e3 / gpu.dram_gbs
        axes.plot([start, high], [tflops * 1e3] * 2, color=INK, linewidth=1.0, zorder=2)
        place = (high / 1.05, tflops * 1e3)
        label = f"{name} {tflops:,.0f} TFLOP/s"
        axes.annotate(label, place, xytext=(0, 3), textcoords="offset points", fontsize=8, color=FAINT, ha="right")
