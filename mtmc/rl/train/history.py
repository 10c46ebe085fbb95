"""history: what a training was like, as a table (CSV), as curves (PNG), and for TensorBoard where that is installed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mtmc.rl.curves import Panel, Row, points_of, write_csv, write_png

COLUMNS = (
    *("unit", "phase", "reward", "speedup", "entropy", "kl", "policy_loss", "value_loss", "clip_fraction"),
    *("score", "evaluations", "greedy", "seconds"),
)
"""Of one epoch of the pretraining, or of one iteration. unit: number, from 1; 0 before any training. phase: start,
pretraining or rl. reward: mean of an episode. speedup: mean log2 of the best version of an episode over the root.
clip_fraction: share of the steps whose ratio was outside of the clip. score, evaluations, greedy: see
`mtmc.rl.train.validate.Validation`."""
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
    last = max((row["unit"] for row in rows if row["phase"] == "pretraining"), default=0)
    panels = [Panel(title, points_of(rows, "unit", name)) for name, title in CURVES.items()]
    if 0 < last < rows[-1]["unit"]:
        write_png(panels, "epoch of the pretraining, then (right of the dashed line) iteration", path, border=last)
    else:
        write_png(panels, "epoch of the pretraining" if last else "iteration", path)


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
