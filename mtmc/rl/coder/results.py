"""results: what a training leaves: curves as table and picture, samples, a report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mtmc.rl.coder.samples import Sample, means, samples_text
from mtmc.rl.coder.trainers import Row
from mtmc.rl.curves import Panel, points_of, write_csv, write_png

COLUMNS = (
    *("phase", "step", "loss", "grad_norm", "skipped_steps", "accuracy"),
    *("rules", "execution", "asked", "reward", "kl", "entropy", "length", "clipped_ratio"),
)
"""skipped_steps: those whose gradient was not finite, so far. clipped_ratio: share of replies that reached their limit."""
CURVES = (
    ("sft", "loss", "supervised: loss"),
    ("grpo", "rules", "GRPO: reward by rules (0 to 1)"),
    ("grpo", "execution", "GRPO: reward by execution (-1 to 1.6)"),
    ("sft", "accuracy", "supervised: share of right tokens"),
    ("grpo", "kl", "GRPO: KL from the model before"),
    ("grpo", "asked", "GRPO: share of replies as asked"),
)
_SMOOTHED = 5
"""Steps that the thick line is the mean of."""


def write_table(rows: Sequence[Row], folder: Path) -> Path:
    """curves.csv. Raises: OSError where it cannot be written."""
    table = folder / "curves.csv"
    write_csv(rows, COLUMNS, table)
    return table


def write_curves(rows: Sequence[Row], folder: Path) -> list[Path]:
    """curves.csv and curves.png. Raises: OSError, RunError where they cannot be written."""
    table, picture = write_table(rows, folder), folder / "curves.png"
    panels = [
        Panel(title, points_of((row for row in rows if row["phase"] == phase), "step", name))
        for phase, name, title in CURVES
    ]
    write_png(panels, f"step (thick: mean of the last {_SMOOTHED})", picture, smoothed=_SMOOTHED)
    return [table, picture]


def write_samples(samples: Sequence[Sample], folder: Path) -> list[Path]:
    """samples.md for a reader, samples.jsonl for a program. Raises: OSError where they cannot be written."""
    page, lines = folder / "samples.md", folder / "samples.jsonl"
    page.write_text(samples_text(samples), encoding="utf-8")
    lines.write_text("".join(json.dumps(asdict(each)) + "\n" for each in samples), encoding="utf-8")
    return [page, lines]


def report_text(command: str, about: Mapping[str, Any], rows: Sequence[Row], samples: Sequence[Sample]) -> str:
    """The model card: what was learned, from what, and how good it is. about: plain data, as `train.train` gathers it."""
    lines = [
        f"# A coder on {about['base']}\n",
        f"Made by\n\n    {command}\n\nwith {about['versions']}.\n",
        "## Data\n",
        f"{about['data']}\n",
        "## The same requests of test tasks before and after\n",
        "| stage | samples | rules | execution | all rules kept | right | as asked |",
        "|---|---|---|---|---|---|---|",
    ]
    for stage, each in means(samples).items():
        rewards = f"{each['rules']:.2f} | {each['execution']:+.2f}"
        lines.append(
            f"| {stage} | {each['samples']} | {rewards} | {each['kept']} | {each['right']} | {each['asked']} |"
        )
    lines += [
        "",
        "## Rewards while it was trained by GRPO\n",
        "| steps | rules | execution | asked |",
        "|---|---|---|---|",
    ]
    trained = [row for row in rows if row["phase"] == "grpo" and "rules" in row]
    for name, some in (
        ("first quarter", trained[: _quarter(trained)]),
        ("last quarter", trained[-_quarter(trained) :]),
    ):
        if some:
            mean = {key: sum(row[key] for row in some) / len(some) for key in ("rules", "execution", "asked")}
            lines.append(
                f"| {name} ({len(some)}) | {mean['rules']:.3f} | {mean['execution']:+.3f} | {mean['asked']:.3f} |"
            )
    return "\n".join([*lines, "", "## Settings\n", f"    {json.dumps(about['settings'])}", ""])


def _quarter(rows: Sequence[Row]) -> int:
    return max(1, len(rows) // 4)
