"""history: what a training was like, as a table (CSV), as curves (PNG), and for TensorBoard where that is installed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mtmc.rl.curves import Panel, Row, points_of, write_csv, write_png

COLUMNS = (
    *("unit", "phase", "reward", "speedup", "entropy", "kl", "policy_loss", "value_loss", "clipped"),
    *("score", "evaluations", "greedy", "seconds"),
)
"""Of one epoch of the warm start, or of one iteration. unit: number, from 1; 0 before any training. phase: start, warm or
rl. reward: mean of an episode. speedup: mean log2 of the best version of an episode over the root. score, evaluations,
greedy: see `mtmc.rl.train.validate.Validation`."""
CURVES = {
    "reward": "mean reward of an episode",
    "entropy": "entropy (nats)",
    "kl": "KL from the reference (nats)",
    "value_loss": "value loss",
    "score": "validation score",
    "evaluations": "validation: evaluations to 95%",
}


def write_table(rows: Sequence[Row], path: Path) -> None:
    """The whole table. Raises: OSError where it cannot be written."""
    write_csv(rows, COLUMNS, path)


def write_picture(rows: Sequence[Row], path: Path) -> None:
    """One panel for each of `CURVES`. Raises: RunError where it cannot be written or matplotlib is missing."""
    warm = max((row["unit"] for row in rows if row["phase"] == "warm"), default=0)
    panels = [Panel(title, points_of(rows, "unit", name)) for name, title in CURVES.items()]
    if 0 < warm < rows[-1]["unit"]:
        write_png(panels, "epoch of the warm start, then (right of the dashed line) iteration", path, border=warm)
    else:
        write_png(panels, "epoch of the warm start" if warm else "iteration", path)


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
