"""plot: sorted speedups of a benchmark, one line a level."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mtmc.bench.row import BETTER, COMPILED, EAGER, Row
from mtmc.export.plots import INK, LINE_COLOURS, new_figure, save_figure, speed_axes


def curves(rows: Sequence[Row], baseline: str = EAGER) -> dict[str, list[float]]:
    """The speedups of each level over a baseline, the greatest first; levels without any are left out."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if (gain := row.speedup(baseline)) is not None:
            found.setdefault(row.level, []).append(gain)
    return {level: sorted(values, reverse=True) for level, values in found.items()}


def speedups_png(rows: Sequence[Row], kind: str, path: Path) -> Path | None:
    """Draw the sorted speedups over eager and, dashed, over the faster torch.compile.

    None, and no file, where none is known. kind: what the runtimes are, for the label of the axis.
    Raises: RunError where the file cannot be written or matplotlib is missing.
    """
    eager, compiled = curves(rows), curves(rows, BETTER)
    if not eager:
        return None
    figure, axes = new_figure(8.6, 4.8)
    modes = {name for row in rows for name in row.baselines_ms if name in COMPILED}
    named = "torch.compile, the faster mode" if len(modes) > 1 else "torch.compile"
    for styled, over in ((eager, "eager"), (compiled, named)):
        for level, values in styled.items():
            colour = LINE_COLOURS[list(eager).index(level) % len(LINE_COLOURS)]
            label = f"{level} over {over} ({len(values)})"
            style = "-" if styled is eager else "--"
            axes.plot(range(1, len(values) + 1), values, style, marker="o", markersize=3.5, color=colour, label=label)
    drawn = [value for some in (eager, compiled) for values in some.values() for value in values]
    speed_axes(axes, drawn, "problems, sorted by speedup", f"speedup ({kind})")
    axes.set_title("Speedup of the version that is handed back", loc="left", fontsize=11, color=INK)
    axes.legend(frameon=False, fontsize=8, labelcolor=INK, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return save_figure(figure, path)
