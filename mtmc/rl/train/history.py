"""history: what a training was like, as a table (CSV), as curves (PNG), and for TensorBoard where that is installed."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]
"""Numbers of one epoch of the warm start, or of one iteration; those that it does not have are left out."""

COLUMNS = (
    *("unit", "phase", "reward", "speedup", "entropy", "kl", "policy_loss", "value_loss", "clipped"),
    *("score", "evaluations", "greedy", "seconds"),
)
"""unit: number, from 1; 0 before any training. phase: start, warm or rl. reward: mean of an episode. speedup: mean log2 of
the best version of an episode over the root. score, evaluations, greedy: see `mtmc.rl.train.validate.Validation`."""
CURVES = {
    "reward": "mean reward of an episode",
    "entropy": "entropy (nats)",
    "kl": "KL from the reference (nats)",
    "value_loss": "value loss",
    "score": "validation score",
    "evaluations": "validation: evaluations to 95%",
}


def write_csv(rows: Sequence[Row], path: Path) -> None:
    """The whole table. Raises: OSError where it cannot be written."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="", extrasaction="ignore")
        writer.writeheader()
        writer.writerows({name: _short(value) for name, value in row.items()} for row in rows)


def write_png(rows: Sequence[Row], path: Path) -> None:
    """One panel for each of `CURVES`. Raises: RunError where it cannot be written or matplotlib is missing."""
    from matplotlib.figure import Figure

    from mtmc.export.plots import INK, LINE_COLOURS, save_figure

    figure = Figure(figsize=(11.0, 5.6), layout="constrained")
    warm = max((row["unit"] for row in rows if row["phase"] == "warm"), default=0)
    both = 0 < warm < rows[-1]["unit"]
    for axes, (name, label) in zip(figure.subplots(2, 3).flat, CURVES.items(), strict=True):
        points = [(row["unit"], row[name]) for row in rows if row.get(name) is not None]
        if points:
            axes.plot(*zip(*points, strict=True), color=LINE_COLOURS[0], linewidth=1.3)
        if both:
            axes.axvline(warm, color="#bbbbbb", linewidth=0.8, linestyle="--")
        axes.set_title(label, loc="left", fontsize=9, color=INK)
        axes.tick_params(labelsize=8, colors=INK)
        axes.spines[["top", "right"]].set_visible(False)
    figure.supxlabel(
        "epoch of the warm start, then (right of the dashed line) iteration"
        if both
        else ("epoch of the warm start" if warm else "iteration"),
        fontsize=8,
        color=INK,
    )
    save_figure(figure, path)


def write_tensorboard(rows: Sequence[Row], folder: Path) -> bool:
    """Scalars for TensorBoard; False, and nothing written, where it is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return False
    with SummaryWriter(str(folder)) as writer:
        for row in rows:
            for name in COLUMNS[2:]:
                if row.get(name) is not None:
                    writer.add_scalar(name, row[name], row["unit"])
    return True


def _short(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value
