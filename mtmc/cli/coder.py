"""mtmc train coder=NAME: a language model is trained to make edits."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mtmc.cli.command import Interrupted

SHOWN = ("loss", "accuracy", "rules", "execution", "asked", "kl", "length")
"""Numbers of a step that are shown while it goes on."""


def train_coder(overrides: Sequence[str], dry_run: bool, trainings: Path, answer: dict[str, Any]) -> int:
    """Run the command. trainings: where trainings go that nobody gives a folder. answer: what --json says."""
    from mtmc.conf.coder import compose_coder

    plan = compose_coder(overrides)
    name = plan.base.replace("/", "_")
    out = Path(plan.out).expanduser() if plan.out else trainings / f"coder-{name}-{plan.settings.seed}"
    if dry_run:
        from omegaconf import OmegaConf

        part = {"name": plan.evaluator.name, "settings": dict(plan.evaluator.settings)}
        plain = {"coder": plan.base, **dataclasses.asdict(plan.settings), "evaluator": part, "out": str(out)}
        answer["settings"] = plain
        print(OmegaConf.to_yaml(OmegaConf.create(plain)), end="")
        return 0
    from mtmc.protocols import EvaluatorSettings
    from mtmc.rl.coder.train import train
    from mtmc.search.components import make

    evaluator = make("evaluator", plan.evaluator.name, plan.evaluator.settings)
    evaluator = evaluator.open() if isinstance(evaluator, EvaluatorSettings) else evaluator
    try:
        result = train(plan.base, plan.settings, evaluator, out, _line, _say, plan.command)
    except KeyboardInterrupt as stop:
        raise Interrupted("what was learned is lost: give sft.minutes and grpo.minutes to end in time") from stop
    finally:
        evaluator.close()
    answer.update(folder=out, scores=result.scores, files=result.files)
    print("samples   rules  execution  all rules kept  right  as asked")
    for stage, found in result.scores.items():
        print(
            f"{stage:<8} {found['rules']:>6.2f} {found['execution']:>+10.2f} {found['kept']:>9} of {found['samples']}"
            f" {found['right']:>6} {found['asked']:>9}"
        )
    for path in result.files:
        print(f"wrote {path}")
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _line(row: Mapping[str, Any]) -> None:
    numbers = ", ".join(f"{name} {row[name]:.3g}" for name in SHOWN if name in row)
    _say(f"[{row['phase']} {row['step']}] {numbers}")


def settings_help() -> str:
    """All settings in words."""
    from mtmc import conf
    from mtmc.agents.policies.learned.lm.base import BASES, PACKAGED
    from mtmc.conf.coder import flat_types
    from mtmc.conf.schema import in_words

    names = ", ".join([PACKAGED, *BASES])
    lines = ["settings with coder=:", f"  coder=  the base model: {names}, a folder, a .gguf file or OWNER/NAME"]
    lines += [f"  {name}=  {in_words(hint)}" for name, hint in flat_types().items()]
    return "\n".join([*lines, f"  evaluator={{{', '.join(conf.options('evaluator'))}}}"])
