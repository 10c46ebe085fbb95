"""mtmc train coder=NAME and gain=NAME: what is trained besides a policy. Plan, dry run and ending are alike for all."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtmc.cli.command import Interrupted, print_settings

if TYPE_CHECKING:
    from mtmc.conf.trainee import Trainee, TraineePlan


@dataclass(frozen=True)
class Trained:
    """answer: what --json says besides the folder and the files. table: what is printed. files: what was written."""

    answer: Mapping[str, Any]
    table: Sequence[str]
    files: Sequence[Path]


@dataclass(frozen=True)
class Training:
    """How a trainee is trained. run: takes the plan and the folder. lost: what Ctrl-C means. names: what may be trained,
    in words, for --help."""

    run: Callable[[TraineePlan, Path], Trained]
    lost: str
    names: Callable[[], str]


def run_training(plan: TraineePlan, training: Training, dry_run: bool, trainings: Path, answer: dict[str, Any]) -> int:
    """Run the command. trainings: where trainings go that nobody gives a folder. answer: what --json says."""
    trainee = plan.trainee
    name = plan.name.replace("/", "_")
    out = Path(plan.out).expanduser() if plan.out else trainings / f"{trainee.key}-{name}-{plan.settings.seed}"
    if dry_run:
        answer["settings"] = {**plan.plain(), "out": str(out)}
        print_settings(answer["settings"])
        return 0
    try:
        trained = training.run(plan, out)
    except KeyboardInterrupt as stop:
        raise Interrupted(f"what was learned is lost: {training.lost}") from stop
    answer.update(folder=out, **trained.answer, files=trained.files)
    for line in trained.table:
        print(line)
    for path in trained.files:
        print(f"wrote {path}")
    return 0


def say(text: str) -> None:
    """A line of a training that goes on."""
    print(text, file=sys.stderr, flush=True)


def settings_help(trainee: Trainee, training: Training) -> list[str]:
    """All settings in words."""
    from mtmc import conf
    from mtmc.conf.schema import in_words

    lines = [f"settings with {trainee.key}=:", f"  {trainee.key}={training.names()}"]
    lines += [f"  {name}=  {in_words(hint)}" for name, hint in trainee.flat_types().items()]
    return [*lines, f"  evaluator={{{', '.join(conf.options('evaluator'))}}}"] if trainee.evaluated else lines
