"""The settings of `mtmc optimize`: those of the searches of a live model's pieces."""

from __future__ import annotations

from collections.abc import Sequence

from mtmc.conf import SearchConfig, compose
from mtmc.conf.overrides import name_in, with_long_names
from mtmc.errors import ConfigError

_STAND_IN = "task=softmax"
"""A search has a task; those of a live model get theirs from its submodules."""


def compose_whole(texts: Sequence[str]) -> SearchConfig:
    """The settings of the searches. texts: overrides as they stand on the command line; "budget=64" is short for
    budget.evaluations=64.

    Raises: ConfigError naming the setting, its value and the fix.
    """
    texts = with_long_names(texts)
    if any(name_in(text) == "task" for text in texts):
        raise ConfigError("mtmc optimize takes a model, not a task: give MODULE:FUNCTION, or use mtmc search task=...")
    return compose([_STAND_IN, *texts])
