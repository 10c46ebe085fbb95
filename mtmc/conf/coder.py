"""The settings of `mtmc train coder=NAME`: its own (`mtmc.rl.coder.settings.CoderSettings`), and its evaluator's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mtmc.conf import Part, compose
from mtmc.conf import overrides as parsing
from mtmc.conf.schema import flat, made_settings
from mtmc.rl.coder.settings import CoderSettings

_STAND_IN = "task=softmax"
"""A search has a task; a training takes those of its data."""
CODER, OUT, EVALUATOR = "coder", "out", "evaluator"


@dataclass(frozen=True)
class CoderPlan:
    """base: the model that is trained. out: None where no folder is given. command: as it stood on the command line."""

    base: str
    settings: CoderSettings
    evaluator: Part
    out: str | None
    command: str


def is_coder(texts: Sequence[str]) -> bool:
    """Whether a command line of `mtmc train` is about a coder."""
    return any(parsing.name_of(each) == CODER for each in parsing.parse(texts))


def compose_coder(texts: Sequence[str]) -> CoderPlan:
    """A training of a coder. texts: overrides as they stand on the command line, one of them "coder=NAME".

    Raises: ConfigError naming the setting, its value and the fix.
    """
    types = flat_types()
    given = parsing.parse(texts)
    own = [each for each in given if parsing.name_of(each).split(".")[0] != EVALUATOR]
    parsing.check_keys(own, {**types, CODER: str, OUT: str}, {})
    values: dict[str, Any] = {name: value for each in own for name, value in parsing.leaves(each).items()}
    base, out = str(values.pop(CODER)), values.pop(OUT, None)
    rest = [parsing.text_of(each) for each in given if each not in own]
    evaluator = compose([_STAND_IN, *rest]).evaluator
    settings: CoderSettings = made_settings(CoderSettings, "", values, types)
    return CoderPlan(base, settings, evaluator, None if out is None else str(out), " ".join(["mtmc train", *texts]))


def flat_types() -> dict[str, Any]:
    """Dotted name -> type of every setting but the evaluator's."""
    return dict(flat("", CoderSettings))
