"""mtmc train coder=NAME: a language model is trained to make edits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtmc.cli.trainee import Trained, Training, say

if TYPE_CHECKING:
    from mtmc.conf.trainee import TraineePlan

SHOWN = ("loss", "accuracy", "rules", "execution", "asked", "kl", "length")
"""Numbers of a step that are shown while it goes on."""


def _train(plan: TraineePlan, out: Path) -> Trained:
    from mtmc.protocols import EvaluatorSettings
    from mtmc.rl.coder.train import train
    from mtmc.search.components import make

    assert plan.evaluator is not None
    evaluator = make("evaluator", plan.evaluator.name, plan.evaluator.settings)
    evaluator = evaluator.open() if isinstance(evaluator, EvaluatorSettings) else evaluator
    try:
        result = train(plan.name, plan.settings, evaluator, out, _line, say, plan.command)
    finally:
        evaluator.close()
    table = ["samples   rules  execution  all rules kept  right  as asked"]
    table += [
        f"{stage:<8} {found['rules']:>6.2f} {found['execution']:>+10.2f} {found['kept']:>9} of {found['samples']}"
        f" {found['right']:>6} {found['asked']:>9}"
        for stage, found in result.scores.items()
    ]
    return Trained({"scores": result.scores}, table, result.files)


def _line(row: Mapping[str, Any]) -> None:
    numbers = ", ".join(f"{name} {row[name]:.3g}" for name in SHOWN if name in row)
    say(f"[{row['phase']} {row['step']}] {numbers}")


def _names() -> str:
    from mtmc.agents.policies.learned.lm.base import BASES, PACKAGED

    return f"  the base model: {', '.join([PACKAGED, *BASES])}, a folder, a .gguf file or OWNER/NAME"


CODER_TRAINING = Training(_train, "give sft.minutes and grpo.minutes to end in time", _names)
