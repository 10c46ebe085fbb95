"""The settings of `mtmc collect`: its own (`mtmc.rl.settings.CollectSettings`) and those of its evaluator, read together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mtmc.conf import Part, compose
from mtmc.conf import overrides as parsing
from mtmc.conf.schema import made_settings, setting_fields
from mtmc.errors import ConfigError
from mtmc.renamed import refuse_old
from mtmc.rl.settings import CollectSettings

_STAND_IN = "task=softmax"
"""A search has a task; those of a collection are generated, or a suite's."""
OUT, EVALUATOR = "out", "evaluator"


def compose_collect(texts: Sequence[str]) -> tuple[CollectSettings, Part, str | None]:
    """The settings of a collection, its evaluator, and its folder (None where none is given).

    texts: overrides as they stand on the command line, "tasks=300", "evaluator=gpu", "evaluator.reuse=32".

    Raises: ConfigError naming the setting, its value and the fix.
    """
    types = setting_fields(CollectSettings)
    own = [text for text in texts if parsing.name_in(text) in types]
    rest = [text for text in texts if parsing.name_in(text) not in types]
    for name in map(parsing.name_in, rest):
        if name.split(".")[0] not in (OUT, EVALUATOR):
            refuse_old(name)
            raise ConfigError(f"there is no setting {name!r}: {parsing.nearest(name, [*types, OUT, EVALUATOR])}")
    config = compose([_STAND_IN, *rest])
    return _settings(own, types), config.evaluator, config.out


def _settings(texts: Sequence[str], types: dict[str, Any]) -> CollectSettings:
    values = {parsing.name_of(each): each.value() for each in parsing.parse(texts)}
    made: CollectSettings = made_settings(CollectSettings, "", values, types)
    return made
