"""mtmc train: a policy learns from recorded trees; with coder= or gain=, see `mtmc.cli.trainee`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtmc.cli.coder import CODER_TRAINING
from mtmc.cli.command import Command, Interrupted, add_dry_run, print_settings
from mtmc.cli.gain import GAIN_TRAINING
from mtmc.cli.trainee import run_training, say, settings_help
from mtmc.search.display import terminal_bars

if TYPE_CHECKING:
    from mtmc.rl.train.run import Trained
    from mtmc.rl.train.trainer import Watcher

TRAININGS = Path("trainings")
"""Where trainings go that nobody gives a folder."""
SHOWN = ("reward", "entropy", "kl", "value_loss", "score", "evaluations", "greedy")
"""Numbers of a row that are shown while it goes on."""
OTHERS = {"coder": CODER_TRAINING, "gain": GAIN_TRAINING}
"""What is trained besides a policy, by the key that chooses it."""


def _train(arguments: argparse.Namespace, overrides: Sequence[str]) -> int:
    from mtmc.conf.train import compose_train
    from mtmc.conf.trainee import compose_trainee

    other = compose_trainee(overrides)
    if other is not None:
        return run_training(other, OTHERS[other.trainee.key], arguments.dry_run, TRAININGS, arguments.answer)
    plan, given = compose_train(overrides)
    out = Path(given).expanduser() if given else TRAININGS / f"{plan.policy}-{plan.algorithm}-{plan.settings.seed}"
    if arguments.dry_run:
        arguments.answer["settings"] = {**plan.plain(), "out": out}
        print_settings({**plan.plain(), "out": str(out)})
        return 0
    from mtmc.rl.train.run import train

    try:
        with _display() as watch:
            trained = train(plan, out, watch, say)
    except KeyboardInterrupt as stop:
        raise Interrupted(f"go on with the same command and out={out}") from stop
    arguments.answer.update(folder=out, scores=trained.scores, files=trained.files, finished=trained.result.finished)
    _print(trained, out)
    return 0


def _print(trained: Trained, out: Path) -> None:
    print("priors      score  evaluations to 95%  greedy      (validation trees)")
    for name, found in trained.scores.items():
        print(f"{name:<10} {found.score:>6.3f}  {found.evaluations:>18.2f}  {found.greedy:>6.3f}")
    for path in trained.files:
        print(f"wrote {path}")
    print(f"curves and checkpoint in {out}")
    if not trained.result.finished:
        print("the time is up: the same command goes on")


@contextmanager
def _display() -> Iterator[Watcher]:
    """A bar on a terminal, else a line for each validation, on stderr."""
    if not sys.stderr.isatty():
        yield _line
        return
    with terminal_bars("{task.fields[told]}", remaining=True) as bar:
        task = bar.add_task("training", total=None, told="")
        shown: dict[str, float] = {}

        def watch(unit: int, units: int, row: Mapping[str, Any]) -> None:
            shown.update({name: row[name] for name in SHOWN if name in row})
            bar.update(task, completed=unit, total=units, description=row["phase"], told=_numbers(shown))

        yield watch


def _line(unit: int, units: int, row: Mapping[str, Any]) -> None:
    if "score" in row:
        say(f"[{unit}/{units}] {row['phase']}: {_numbers(row)}")


def _numbers(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {row[name]:.3g}" for name in SHOWN if name in row)


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_dry_run(parser)


def _settings_help() -> str:
    from mtmc.conf.schema import in_words
    from mtmc.conf.train import flat_types
    from mtmc.conf.trainee import CODER, GAIN
    from mtmc.rl.train.algorithms import ALGORITHMS
    from mtmc.rl.train.scorers import SCORERS

    lines = ["settings:", f"  policy={{{','.join(SCORERS)}}}", f"  algorithm={{{','.join(ALGORITHMS)}}}"]
    lines += ["  out=  the folder of the training"]
    lines += [f"  {name}=  {in_words(hint)}" for name, hint in flat_types("compact", "ppo").items()]
    for trainee in (CODER, GAIN):
        lines += ["", *settings_help(trainee, OTHERS[trainee.key])]
    return "\n".join(lines)


TRAIN = Command(
    run=_train,
    arguments=_arguments,
    summary="train a policy on recorded trees",
    usage="[--dry-run] data=FOLDER [policy=NAME] [algorithm=NAME] [out=FOLDER] [SETTING=VALUE ...]",
    description="Train a policy on recorded trees: by what they say of each action (pretraining.*), then by trying.\n\n"
    "  mtmc train data=trees/h100 policy=compact algorithm=ppo out=trainings/compact\n"
    "  mtmc train data=[trees/h100,trees/h200] algorithm=grpo pretraining.epochs=0 iterations=300\n"
    "  mtmc train data=trees/h100 policy=lm policy.base=smollm2 out=trainings/lm\n"
    "  mtmc train data=trees/h100 coder=smollm2 evaluator=gpu out=trainings/coder\n"
    "  mtmc train data=trees/h100 gain=boosted out=trainings/gain\n\n"
    "The folder gets best/ (weights and model card), curves.csv, curves.png and a checkpoint, from which the same command\n"
    "goes on. A search takes the weights with policy=compact policy.weights=FOLDER/best/weights.npz.",
    epilog=_settings_help,
    overrides=True,
)
