"""mtmc train gain=NAME: a model learns what actions gain."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mtmc.cli.command import Interrupted


def train_gain(overrides: Sequence[str], dry_run: bool, trainings: Path, answer: dict[str, Any]) -> int:
    """Run the command. trainings: where trainings go that nobody gives a folder. answer: what --json says."""
    from mtmc.conf.gain import compose_gain

    plan = compose_gain(overrides)
    out = Path(plan.out).expanduser() if plan.out else trainings / f"gain-{plan.model}-{plan.settings.seed}"
    if dry_run:
        from omegaconf import OmegaConf

        plain = {"gain": plan.model, **dataclasses.asdict(plan.settings), "out": str(out)}
        answer["settings"] = plain
        print(OmegaConf.to_yaml(OmegaConf.create(plain)), end="")
        return 0
    from mtmc.rl.gain.train import train_gains

    try:
        trained = train_gains(plan.settings, out, lambda text: print(text, file=sys.stderr, flush=True), plan.command)
    except KeyboardInterrupt as stop:
        raise Interrupted("what was learned is lost: fewer folds or trees end sooner") from stop
    answer.update(folder=out, scores=trained.figures, files=trained.files, finished=True)
    print("tasks             error  of no gain  explained  order  lost  by heuristic  within a spread")
    for name, found in trained.figures.items():
        print(
            f"{name:<16} {found.error:>6.3f} {found.nothing:>11.3f} {found.explained:>10.3f} {found.order:>6.3f}"
            f" {found.lost:>5.3f} {found.lost_heuristic:>13.3f} {found.within:>16.3f}"
        )
    for path in trained.files:
        print(f"wrote {path}")
    return 0


def settings_help() -> str:
    """All settings in words."""
    from mtmc.conf.gain import MODELS, flat_types
    from mtmc.conf.schema import in_words

    lines = ["settings with gain=:", f"  gain={{{','.join(MODELS)}}}"]
    return "\n".join([*lines, *(f"  {name}=  {in_words(hint)}" for name, hint in flat_types().items())])
