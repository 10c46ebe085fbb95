"""Trainee: what `mtmc train` trains besides a policy, with coder=NAME or gain=NAME; its settings, and an evaluator's."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mtmc.conf import Part, compose
from mtmc.conf import overrides as parsing
from mtmc.conf.schema import flat, made_settings
from mtmc.errors import ConfigError
from mtmc.rl.coder.settings import CoderSettings
from mtmc.rl.gain.settings import GainSettings

_STAND_IN = "task=softmax"
"""A search has a task; a training takes those of its data."""
OUT, EVALUATOR = "out", "evaluator"


@dataclass(frozen=True)
class Trainee:
    """One kind. key: whose value on the command line chooses it. what: it in words. settings: the class of its settings.
    names: what the value may be; empty: anything, which the training judges. evaluated: whether it takes an evaluator."""

    key: str
    what: str
    settings: type[Any]
    names: tuple[str, ...] = ()
    evaluated: bool = False

    def flat_types(self) -> dict[str, Any]:
        """Dotted name -> type of every setting but the evaluator's."""
        return dict(flat("", self.settings))


GAIN = Trainee("gain", "model of gains", GainSettings, ("boosted",))
CODER = Trainee("coder", "coder", CoderSettings, evaluated=True)
TRAINEES = (GAIN, CODER)


@dataclass(frozen=True)
class TraineePlan:
    """name: the value of the trainee's key. settings: of the trainee's class. evaluator: None where it takes none.
    out: None where no folder is given. command: as it stood on the command line."""

    trainee: Trainee
    name: str
    settings: Any
    evaluator: Part | None
    out: str | None
    command: str

    def plain(self) -> dict[str, Any]:
        """All settings but the folder, as plain data."""
        found: dict[str, Any] = {self.trainee.key: self.name, **dataclasses.asdict(self.settings)}
        if self.evaluator is not None:
            found[EVALUATOR] = {"name": self.evaluator.name, "settings": dict(self.evaluator.settings)}
        return found


def compose_trainee(texts: Sequence[str]) -> TraineePlan | None:
    """A training of a trainee; None where a command line of `mtmc train` is about a policy. texts: overrides as they stand
    there, "coder=smollm2", "sft.steps=5".

    Raises: ConfigError naming the setting, its value and the fix.
    """
    given = parsing.parse(texts)
    named = {parsing.name_of(each) for each in given}
    trainee = next((each for each in TRAINEES if each.key in named), None)
    if trainee is None:
        return None
    types = trainee.flat_types()
    own = [each for each in given if not trainee.evaluated or parsing.name_of(each).split(".")[0] != EVALUATOR]
    parsing.check_keys(own, {**types, trainee.key: str, OUT: str}, {})
    values: dict[str, Any] = {name: value for each in own for name, value in parsing.leaves(each).items()}
    name, out = str(values.pop(trainee.key)), values.pop(OUT, None)
    if trainee.names and name not in trainee.names:
        raise ConfigError(f"there is no {trainee.what} {name!r}: {parsing.nearest(name, trainee.names)}")
    rest = [parsing.text_of(each) for each in given if each not in own]
    evaluator = compose([_STAND_IN, *rest]).evaluator if trainee.evaluated else None
    settings = made_settings(trainee.settings, "", values, types)
    command = " ".join(["mtmc train", *texts])
    return TraineePlan(trainee, name, settings, evaluator, None if out is None else str(out), command)
