"""curves: what a training was like, step by step: a table (CSV) and one picture with a panel for each number (PNG)."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]
"""Numbers of one step; those that it does not have are left out."""

_DIGITS = 6
_ACROSS = 3
"""Panels side by side."""


@dataclass(frozen=True)
class Panel:
    """title: of the number, with its unit. points: (step, value) in order; a panel without any is left out."""

    title: str
    points: Sequence[tuple[float, float]]


def points_of(rows: Iterable[Row], step: str, name: str) -> list[tuple[float, float]]:
    """A number of the rows that have it, for a `Panel`. step: name of what is counted."""
    return [(row[step], row[name]) for row in rows if row.get(name) is not None]


def write_csv(rows: Sequence[Row], columns: Sequence[str], path: Path) -> None:
    """The whole table; what is in no column is left out. Raises: OSError where it cannot be written."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, restval="", extrasaction="ignore")
        writer.writeheader()
        writer.writerows({name: _short(value) for name, value in row.items()} for row in rows)


def write_png(panels: Sequence[Panel], below: str, path: Path, border: float | None = None, smoothed: int = 1) -> None:
    """below: what the steps are. border: a step with a dashed line. smoothed: steps that the thick line is the mean of; with
    more than one the values themselves are a thin line.

    Raises: RunError where it cannot be written or matplotlib is missing.
    """
    from matplotlib.figure import Figure

    from mtmc.export.plots import INK, LINE_COLOURS, save_figure

    shown = [panel for panel in panels if panel.points]
    down = max(1, -(-len(shown) // _ACROSS))
    figure = Figure(figsize=(11.0, 2.8 * down), layout="constrained")
    grid = figure.subplots(down, _ACROSS, squeeze=False)
    for axes in list(grid.flat)[len(shown) :]:
        axes.set_visible(False)
    for axes, panel in zip(grid.flat, shown, strict=False):
        steps, values = zip(*panel.points, strict=True)
        if smoothed > 1:
            axes.plot(steps, values, color=LINE_COLOURS[0], linewidth=0.8, alpha=0.5)
        axes.plot(steps, _means(values, smoothed), color=LINE_COLOURS[0], linewidth=1.6 if smoothed > 1 else 1.3)
        if border is not None:
            axes.axvline(border, color="#bbbbbb", linewidth=0.8, linestyle="--")
        axes.set_title(panel.title, loc="left", fontsize=9, color=INK)
        axes.tick_params(labelsize=8, colors=INK)
        axes.spines[["top", "right"]].set_visible(False)
    figure.supxlabel(below, fontsize=8, color=INK)
    save_figure(figure, path)


def _means(values: Sequence[float], count: int) -> list[float]:
    """The mean of each value and those before it, `count` at most."""
    parts = [values[max(0, at + 1 - count) : at + 1] for at in range(len(values))]
    return [sum(part) / len(part) for part in parts]


def _short(value: Any) -> Any:
    return f"{value:.{_DIGITS}g}" if isinstance(value, float) else value
