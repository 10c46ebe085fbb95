"""The settings of a benchmark: its own (`mtmc.bench.settings.BenchSettings`) and those of its searches, read together."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from mtmc.bench.settings import BenchSettings
from mtmc.conf import SearchConfig, compose
from mtmc.conf import overrides as parsing
from mtmc.conf.schema import made_settings, setting_fields
from mtmc.errors import ConfigError
from mtmc.renamed import refuse_old

_TASK = "task"
_STAND_IN = f"{_TASK}=softmax"
"""A search has a task; those of a benchmark get theirs from the suite."""


def compose_bench(texts: Sequence[str]) -> tuple[BenchSettings, SearchConfig]:
    """The settings of a benchmark and of its searches. texts: overrides as they stand on the command line.

    Besides what a search takes there is "budget=48", short for budget.evaluations, and "levels=1" for a list of one. The
    trees of single searches are not dumped unless that is asked for (`mtmc export` does it later).

    Raises: ConfigError naming the setting, its value and the fix.
    """
    texts = parsing.with_long_names(texts)
    types = setting_fields(BenchSettings)
    own = [text for text in texts if parsing.name_in(text) in types]
    rest = [text for text in texts if parsing.name_in(text) not in types]
    for text in rest:
        _check_name(parsing.name_in(text), types)
    settings = _settings(own, types)
    return settings, compose([_STAND_IN, "dumps=false", *rest])


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
    values = {parsing.name_of(each): each.value() for each in parsing.parse(texts)}
    made: BenchSettings = made_settings(BenchSettings, "", values, types)
    return made


def as_plain(settings: BenchSettings, config: SearchConfig) -> dict[str, Any]:
    """All settings of a benchmark as plain data, for people to look at."""
    search = {name: value for name, value in dataclasses.asdict(config).items() if name != _TASK}
    return {**dataclasses.asdict(settings), **search}
