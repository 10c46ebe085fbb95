"""Pictures of a run: its tree, and the best speedup so far against evaluations.

matplotlib is loaded on first use and driven through its object interface only, so that nothing of a caller's own plots
or settings is touched and no display is needed.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mtmc.errors import RunError
from mtmc.export.record import RunRecord, best_path, best_so_far, depths, speedup_kind
from mtmc.export.text import (
    BEST_COLOUR,
    FAST_COLOUR,
    STATUS_COLOURS,
    colour_of,
    factor,
    kind_of,
    one_line,
    result_of,
)
from mtmc.files import write_whole
from mtmc.outcome import Status
from mtmc.tree import NO_PARENT, Tree

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, FAINT, LINE = "#1b2330", "#6b7686", "#c3cad4"
LABEL_LIMIT, LABEL_COLUMNS = 220, 20
"""A tree with more versions or steps is drawn as dots without labels: with them the picture would be too large."""
LINE_COLOURS = ("#0fa47f", "#3b6fe0", "#e0a100", "#d6409f", "#8e4ec6", "#f2711c", "#1f9bb5", "#5f6672")


def line_look(index: int) -> tuple[str, str]:
    """Style and colour of one of many lines: when the colours are used up, they come again dashed, dotted, ..."""
    return ("-", "--", ":", "-.")[index // len(LINE_COLOURS) % 4], LINE_COLOURS[index % len(LINE_COLOURS)]


def tree_png(record: RunRecord, path: Path) -> Path:
    """Draw the tree, root on the left, one column a step, speedups at the nodes, the best path highlighted.

    Raises: RunError where the file cannot be written or matplotlib is missing.
    """
    return save_figure(tree_figure(record), path)


def progress_png(record: RunRecord, path: Path) -> Path:
    """Draw the best speedup so far against evaluations, every evaluation a dot, failures marked.

    Raises: RunError where the file cannot be written or matplotlib is missing.
    """
    return save_figure(progress_figure(record), path)


def sweep_png(curves: Mapping[str, Sequence[Sequence[float]]], kind: str, path: Path) -> Path:
    """Draw one line per combination of settings: the mean of the best speedup so far over its runs, and the span from
    the least to the greatest as a shade.

    curves: per combination, per run, the best speedup after 0, 1, 2, ... evaluations. A run that ended early keeps
        its best to the end of the longest run of its combination: it had nothing more to try.
    kind: what the runtimes are, for the label of the axis.
    Raises: RunError where the file cannot be written or matplotlib is missing.
    """
    figure, axes = new_figure(8.6, 4.8)
    for index, (name, runs) in enumerate(curves.items()):
        length = max(len(run) for run in runs)
        columns = list(zip(*(list(run) + [run[-1]] * (length - len(run)) for run in runs), strict=True))
        xs, (style, colour) = range(length), line_look(index)
        low, high = [min(column) for column in columns], [max(column) for column in columns]
        mean = [sum(column) / len(column) for column in columns]
        axes.fill_between(xs, low, high, step="post", color=colour, alpha=0.14, linewidth=0)
        label = f"{one_line(name, 60)}  ({len(runs)} run{'s' if len(runs) != 1 else ''})"
        axes.step(xs, mean, where="post", color=colour, linewidth=2, linestyle=style, label=label)
    values = [value for runs in curves.values() for run in runs for value in run]
    speed_axes(axes, values, "evaluations", f"speedup over the root ({kind})")
    axes.set_title("Best so far: mean over runs, shade from least to greatest", loc="left", fontsize=11, color=INK)
    axes.legend(frameon=False, fontsize=8, labelcolor=INK, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return save_figure(figure, path)


def tree_figure(record: RunRecord) -> Figure:
    """The figure behind `tree_png`. Raises: RunError where matplotlib is missing."""
    tree = record.tree
    places, path = layout(tree), best_path(tree)
    columns = 1 + max(x for x, _ in places)
    rows = 1 + max(y for _, y in places)
    on_path = set(path)
    if len(tree) <= LABEL_LIMIT and columns <= LABEL_COLUMNS:
        figure, axes = new_figure(1.0 + 1.75 * columns, 1.2 + 0.32 * rows)
        _draw_edges(axes, tree, places, on_path, labelled=True)
        _draw_labels(axes, tree, places, on_path)
    else:
        figure, axes = new_figure(min(24.0, 3.0 + 0.6 * columns), 14.0)
        _draw_edges(axes, tree, places, on_path, labelled=False)
        _draw_dots(axes, tree, places, on_path)
    axes.set_xlim(-0.1, columns - 0.1)
    axes.set_ylim(rows - 0.3, -0.7)
    axes.axis("off")
    title = f"{one_line(tree.task_name, 60)}: {len(tree)} versions, best {result_of(tree, path[-1])}"
    axes.set_title(title, loc="left", fontsize=11, color=INK)
    return figure


def progress_figure(record: RunRecord) -> Figure:
    """The figure behind `progress_png`. Raises: RunError where matplotlib is missing."""
    tree = record.tree
    figure, axes = new_figure(8.0, 4.4)
    curve = best_so_far(record)
    known = [(x, best) for x, best in enumerate(curve, start=1) if best is not None]
    if known:
        axes.step(
            *zip((0, 1.0), *known, strict=True), where="post", color=BEST_COLOUR, linewidth=2.2, label="best so far"
        )
    dots = [(x, gain) for x, node_id in enumerate(record.evaluations, start=1) if (gain := tree.speedup(node_id))]
    axes.scatter(
        [x for x, _ in dots], [gain for _, gain in dots], s=22, color=FAST_COLOUR, label="right version", zorder=3
    )
    kinds = {kind for node_id in record.evaluations if (kind := speedup_kind(tree, node_id))}
    told = " and ".join(sorted(kinds)) or "no runtime"
    speed_axes(axes, [gain for _, gain in dots], "evaluations", f"speedup over the root ({told})")
    _draw_failures(axes, record)
    axes.set_title(f"{one_line(tree.task_name, 60)}: best so far", loc="left", fontsize=11, color=INK)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=8, labelcolor=INK, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def layout(tree: Tree) -> list[tuple[int, float]]:
    """Place of every node by id: (depth, row). Leaves take one row each, in creation order below their parents; a
    parent stands in the middle of its children."""
    depth, rows = depths(tree), [0.0] * len(tree)
    next_row, stack = 0, [(tree.root.id, False)]
    while stack:
        node_id, done = stack.pop()
        children = tree.children(node_id)
        if not children:
            rows[node_id] = next_row
            next_row += 1
        elif done:
            rows[node_id] = (rows[children[0].id] + rows[children[-1].id]) / 2
        else:
            stack.append((node_id, True))
            stack.extend((child.id, False) for child in reversed(children))
    return list(zip(depth, rows, strict=True))


def new_figure(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure of so many inches, with its axes. Raises: RunError where matplotlib is missing."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise RunError(f"pictures need matplotlib, which cannot be loaded ({error}): pip install matplotlib") from error
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="#ffffff")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def save_figure(figure: Figure, path: Path) -> Path:
    """Write a figure as PNG; returns its path. Raises: RunError where it cannot be written."""
    buffer = io.BytesIO()
    # Without its version in the file, equal pictures are equal bytes.
    figure.savefig(buffer, format="png", dpi=160, metadata={"Software": None})
    return write_whole(path, buffer.getvalue())


def _draw_edges(axes: Axes, tree: Tree, places: Sequence[tuple[int, float]], path: set[int], labelled: bool) -> None:
    from matplotlib.collections import PathCollection
    from matplotlib.path import Path as Curve

    curves: dict[bool, list[Curve]] = {False: [], True: []}
    codes = [Curve.MOVETO, Curve.LINETO, Curve.CURVE4, Curve.CURVE4, Curve.CURVE4]
    # Where there are labels, the curve starts behind the parent's.
    gap = 0.62 if labelled else 0.1
    for node in tree:
        if node.parent_id == NO_PARENT:
            continue
        (x0, y0), (x1, y1) = places[node.parent_id], places[node.id]
        bend = (x0 + gap + x1) / 2
        points = [(x0, y0), (x0 + gap, y0), (bend, y0), (bend, y1), (x1, y1)]
        curves[node.id in path].append(Curve(points, codes))
    for best, colour, width in ((False, LINE, 1.0 if labelled else 0.3), (True, BEST_COLOUR, 3.0)):
        lines = PathCollection(curves[best], facecolors="none", edgecolors=colour, linewidths=width, zorder=1 + best)
        axes.add_collection(lines)


def _draw_dots(axes: Axes, tree: Tree, places: Sequence[tuple[int, float]], path: set[int]) -> None:
    """Versions of a tree too large for labels."""
    xs, ys = zip(*places, strict=True)
    sizes = [36 if node.id in path else 5 for node in tree]
    rims = [BEST_COLOUR if node.id in path else "none" for node in tree]
    axes.scatter(xs, ys, s=sizes, c=[colour_of(tree, node.id) for node in tree], edgecolors=rims, zorder=3)


def _draw_labels(axes: Axes, tree: Tree, places: Sequence[tuple[int, float]], path: set[int]) -> None:
    """Versions as labelled pills, filled by speedup; failures as outlines in the colour of their status."""
    for node in tree:
        gain, colour = tree.speedup(node.id), colour_of(tree, node.id)
        result = factor(gain) if gain is not None else node.outcome.status.replace("_", " ")
        rim, width = (BEST_COLOUR, 2.2) if node.id in path else (colour, 0.8)
        axes.annotate(
            f"{kind_of(node)}  {result}",
            places[node.id],
            va="center",
            ha="left",
            fontsize=7.5,
            fontweight="bold" if node.id in path else "normal",
            color="#ffffff" if node.outcome.ok else colour,
            bbox={
                "boxstyle": "round,pad=0.35,rounding_size=0.5",
                "facecolor": colour if node.outcome.ok else "#ffffff",
                "edgecolor": rim,
                "linewidth": width,
            },
            zorder=4,
        )


def _draw_failures(axes: Axes, record: RunRecord) -> None:
    """Failures have no speedup: they stand in a band of their own below the axes, one colour a status."""
    by_status: dict[Status, list[int]] = {}
    for x, node_id in enumerate(record.evaluations, start=1):
        outcome = record.tree[node_id].outcome
        if not outcome.ok:
            by_status.setdefault(outcome.status, []).append(x)
    for status, xs in sorted(by_status.items()):
        axes.scatter(
            xs,
            [0.03] * len(xs),
            s=26,
            marker="x",
            color=STATUS_COLOURS[status],
            label=status.replace("_", " "),
            transform=axes.get_xaxis_transform(),
            zorder=3,
        )


def speed_axes(axes: Axes, values: Iterable[float], xlabel: str, ylabel: str) -> None:
    """Axes for speedups over something that is counted: powers of two, a line at 1. values: all that is drawn."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

    values = [value for value in values if value > 0]
    low, high = min([*values, 1.0]), max([*values, 1.0])
    axes.set_yscale("log", base=2)
    axes.set_ylim(low / 1.35, max(high * 1.15, 1.5))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_minor_locator(NullLocator())
    # Powers of two alone would leave a narrow range with a single tick.
    axes.yaxis.set_major_locator(LogLocator(2.0) if high / low > 6 else MaxNLocator(6))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.axhline(1.0, color=LINE, linewidth=1, zorder=0)
    axes.set_xlabel(xlabel, color=INK, fontsize=9)
    axes.set_ylabel(ylabel, color=INK, fontsize=9)
    axes.tick_params(colors=FAINT, labelsize=8)
    axes.grid(axis="y", color="#eef0f3", linewidth=0.8, zorder=0)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(LINE)
