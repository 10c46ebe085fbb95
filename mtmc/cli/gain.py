"""mtmc train gain=NAME: a model learns what actions gain."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mtmc.cli.trainee import Trained, Training, say

if TYPE_CHECKING:
    from mtmc.conf.trainee import TraineePlan


def _train(plan: TraineePlan, out: Path) -> Trained:
    from mtmc.rl.gain.train import train_gains

    trained = train_gains(plan.settings, out, say, plan.command)
    table = ["tasks             error  of no gain  explained  order  lost  by heuristic  within a spread"]
    table += [
        f"{name:<16} {found.error:>6.3f} {found.nothing:>11.3f} {found.explained:>10.3f} {found.order:>6.3f}"
        f" {found.lost:>5.3f} {found.lost_heuristic:>13.3f} {found.within:>16.3f}"
        for name, found in trained.figures.items()
    ]
    return Trained({"scores": trained.figures, "finished": True}, table, trained.files)


def _names() -> str:
    from mtmc.conf.trainee import GAIN

    return f"{{{','.join(GAIN.names)}}}"


GAIN_TRAINING = Training(_train, "fewer folds or trees end sooner", _names)
