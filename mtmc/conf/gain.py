"""The settings of `mtmc train gain=NAME`, see `mtmc.rl.gain.settings.GainSettings`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mtmc.conf import overrides as parsing
from mtmc.conf.schema import flat, made_settings
from mtmc.errors import ConfigError
from mtmc.rl.gain.settings import GainSettings

GAIN, OUT = "gain", "out"
MODELS = ("boosted",)
"""What a model of gains may be."""


@dataclass(frozen=True)
class GainPlan:
    """model: one of `MODELS`. out: None where no folder is given. command: as it stood on the command line."""

    model: str
    settings: GainSettings
    out: str | None
    command: str


def is_gain(texts: Sequence[str]) -> bool:
    """Whether a command line of `mtmc train` is about gains."""
    return any(parsing.name_of(each) == GAIN for each in parsing.parse(texts))


def compose_gain(texts: Sequence[str]) -> GainPlan:
    """A training of a model of gains. texts: overrides as they stand on the command line, one of them "gain=NAME".

    Raises: ConfigError naming the setting, its value and the fix.
    """
    types: dict[str, Any] = flat_types()
    given = parsing.parse(texts)
    parsing.check_keys(given, {**types, GAIN: str, OUT: str}, {})
    values: dict[str, Any] = {name: value for each in given for name, value in parsing.leaves(each).items()}
    model, out = str(values.pop(GAIN)), values.pop(OUT, None)
    if model not in MODELS:
        raise ConfigError(f"there is no model of gains {model!r}: {parsing.nearest(model, MODELS)}")
    settings: GainSettings = made_settings(GainSettings, "", values, types)
    return GainPlan(model, settings, None if out is None else str(out), " ".join(["mtmc train", *texts]))


def flat_types() -> dict[str, Any]:
    """Dotted name -> type of every setting."""
    return dict(flat("", GainSettings))
