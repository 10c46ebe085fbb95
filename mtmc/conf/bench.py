"""The settings of a benchmark: its own (`mtmc.bench.settings.BenchSettings`) and those of its searches, read together."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any, cast, get_origin

from mtmc.bench.settings import BenchSettings
from mtmc.conf import SearchConfig, compose
from mtmc.conf import overrides as parsing
from mtmc.conf.schema import allowed, in_words, setting_fields, structured, typed
from mtmc.errors import ConfigError
from mtmc.renamed import refuse_old

_TASK = "task"
_STAND_IN = f"{_TASK}=softmax"
"""A search has a task; those of a benchmark get theirs from the suite."""
_SHORT_BUDGET = re.compile(r"budget=(\d+)")


def compose_bench(texts: Sequence[str]) -> tuple[BenchSettings, SearchConfig]:
    """The settings of a benchmark and of its searches. texts: overrides as they stand on the command line.

    Besides what a search takes there is "budget=48", short for budget.evaluations, and "levels=1" for a list of one. The
    trees of single searches are not dumped unless that is asked for (`mtmc export` does it later).

    Raises: ConfigError naming the setting, its value and the mend.
    """
    texts = [f"budget.evaluations={short[1]}" if (short := _SHORT_BUDGET.fullmatch(text)) else text for text in texts]
    types = setting_fields(BenchSettings)
    own = [text for text in texts if _name(text) in types]
    rest = [text for text in texts if _name(text) not in types]
    for text in rest:
        _check_name(_name(text), types)
    settings = _settings(own, types)
    return settings, compose([_STAND_IN, "dumps=false", *rest])


def _name(text: str) -> str:
    return text.partition("=")[0].lstrip("+~")


def _check_name(name: str, types: dict[str, Any]) -> None:
    """Raises: ConfigError for a setting that neither a benchmark nor a search has, or that only a single search has."""
    if name == _TASK:
        raise ConfigError("a benchmark takes its tasks from its suite: choose them with suite=, levels= and problems=")
    groups = setting_fields(SearchConfig)
    if name.split(".")[0] not in groups:
        refuse_old(name)
        known = [*types, *(each for each in groups if each != _TASK)]
        raise ConfigError(f"there is no setting {name!r}: {parsing.nearest(name, known)}")


def _settings(texts: Sequence[str], types: dict[str, Any]) -> BenchSettings:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    values = OmegaConf.create(structured(cast(Any, BenchSettings))())
    for override in parsing.parse(texts):
        name, value = parsing.name_of(override), override.value()
        listed = get_origin(types[name]) is tuple and not isinstance(value, list)
        problem = ConfigError(f"{name} cannot be {parsing.typed_value(override)!r}: use {in_words(types[name])}")
        try:
            OmegaConf.update(values, name, [value] if listed else value)
        except OmegaConfBaseException as error:
            raise problem from error
        if not allowed(value, types[name]):
            raise problem
    plain: Any = OmegaConf.to_container(values, resolve=True)
    return BenchSettings(**{name: typed(plain[name], hint) for name, hint in types.items()})


def as_plain(settings: BenchSettings, config: SearchConfig) -> dict[str, Any]:
    """All settings of a benchmark as plain data, for people to look at."""
    search = {name: value for name, value in dataclasses.asdict(config).items() if name != _TASK}
    return {**dataclasses.asdict(settings), **search}
