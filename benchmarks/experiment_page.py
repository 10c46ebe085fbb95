"""The page of an experiment with strategies: curves over evaluations, seconds and US dollars, and its tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.figures import header, row
from mtmc.export.page import page_html
from mtmc.files import write_whole
from mtmc.rl.comparison import Values, band, values_at, values_within
from mtmc.rl.priced import PricedTree
from mtmc.rl.replays import Curve

POINTS = 48
"""Of a curve at most."""
BANDS = 6
"""Lines of one picture that are shown with their intervals at most."""
AXES = {"evaluations": "evaluations, the root's included", "seconds": "seconds", "usd": "US dollars"}


@dataclass(frozen=True)
class Table:
    """One table of cells that are text."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def markdown(self) -> str:
        """With its title."""
        return "\n".join([f"\n## {self.title}\n", header(*self.head), *(row(*cells) for cells in self.rows)])


@dataclass(frozen=True)
class Line:
    """The searches of one strategy with the priors of one policy. curves: [trees][seeds]."""

    policy: str
    strategy: str
    curves: Sequence[Sequence[Curve]]


@dataclass(frozen=True)
class Experiment:
    """about: which trees these are. priced: the same trees with their times and prices; empty where they have none. title:
    of the page."""

    about: str
    tables: tuple[Table, ...]
    lines: tuple[Line, ...]
    priced: tuple[PricedTree, ...] = ()
    title: str = "Strategies on recorded trees"


Points = list[list[float]]
"""[where, geometric mean, low, high] of each point of a curve."""


def points_of(experiment: Experiment, line: Line) -> dict[str, Points]:
    """The curve of a line over each of `AXES` that the trees have."""
    curves = line.curves
    # All lines go as far as the longest search: one that had nothing left to try keeps what it has.
    longest = max(len(curve.values) for each in experiment.lines for some in each.curves for curve in some)
    found = {"evaluations": _points(_whole_steps(longest), lambda at: values_at(curves, int(at)))}
    for name in ("seconds", "usd"):
        costs = [getattr(each, name) for each in experiment.priced]
        most = max((sum(each) for each in costs), default=0.0)
        if most > 0:
            steps = np.linspace(0.0, most, POINTS + 1)[1:].tolist()
            found[name] = _points(steps, lambda at, costs=costs: values_within(curves, costs, at))  # type: ignore[misc]
    return found


def _whole_steps(most: int) -> list[float]:
    return sorted({float(round(each)) for each in np.linspace(1, most, min(most, POINTS))})


def _points(steps: Sequence[float], values: Callable[[float], Values]) -> Points:
    found = band([values(each) for each in steps], np.random.default_rng(0))
    return [[step, *each] for step, each in zip(steps, found, strict=True)]


def write_page(experiment: Experiment, out: Path) -> list[Path]:
    """Write OUT.html and OUT.png; returns their paths. Raises: RunError where that cannot be done."""
    points = [points_of(experiment, line) for line in experiment.lines]
    data: dict[str, Any] = {
        "about": experiment.about,
        "series": [
            {"policy": line.policy, "name": line.strategy, "points": each}
            for line, each in zip(experiment.lines, points, strict=True)
        ],
        "tables": [{"title": each.title, "head": each.head, "rows": each.rows} for each in experiment.tables],
    }
    page = page_html(experiment.title, data, "experiment.html")
    return [write_whole(Path(f"{out}.html"), page), draw(experiment, points, Path(f"{out}.png"))]


def draw(experiment: Experiment, points: Sequence[dict[str, Points]], path: Path) -> Path:
    """The curves: a row for each policy, a column for each axis."""
    from mtmc.export.plots import INK, line_look, new_figure, save_figure, speed_axes

    policies = list(dict.fromkeys(line.policy for line in experiment.lines))
    names = list(points[0])
    figure, first = new_figure(2.2 + 4.6 * len(names), 0.4 + 3.2 * len(policies))
    first.remove()
    grid = figure.subplots(len(policies), len(names), squeeze=False)
    for cells, policy in zip(grid, policies, strict=True):
        mine = [(line, each) for line, each in zip(experiment.lines, points, strict=True) if line.policy == policy]
        for axes, name in zip(cells, names, strict=True):
            for index, (line, each) in enumerate(mine):
                (style, colour), (xs, means, lows, highs) = line_look(index), zip(*each[name], strict=True)
                if len(mine) <= BANDS:
                    axes.fill_between(xs, lows, highs, step="post", color=colour, alpha=0.14, linewidth=0)
                axes.step(xs, means, style, where="post", color=colour, linewidth=1.6, label=line.strategy)
            speed_axes(axes, [row[1] for _, each in mine for row in each[name]], AXES[name], "speedup over the root")
            axes.set_title(f"priors: {policy}", loc="left", fontsize=10, color=INK)
    grid[0][-1].legend(frameon=False, fontsize=8, labelcolor=INK, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return save_figure(figure, path)
