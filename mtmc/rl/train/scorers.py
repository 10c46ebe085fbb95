"""scorers: the networks that can be trained, by the name of the policy that they become."""

from __future__ import annotations

import importlib

from mtmc.errors import ConfigError
from mtmc.rl.scorer import ScorerSettings

SCORERS: dict[str, tuple[str, str]] = {
    "compact": ("mtmc.rl.train.compact_scorer", "CompactSettings"),
    "lm": ("mtmc.rl.train.lm_scorer", "LmSettings"),
}
"""Policy -> module and class of its settings (`ScorerSettings`), imported when it is asked for: a network needs torch."""


def scorer_settings(policy: str) -> type[ScorerSettings]:
    """The settings class of a policy's network. Raises: ConfigError for a policy that cannot be trained."""
    if policy not in SCORERS:
        raise ConfigError(f"the policy {policy!r} cannot be trained: use one of {', '.join(SCORERS)}")
    module, name = SCORERS[policy]
    found: type[ScorerSettings] = getattr(importlib.import_module(module), name)
    return found
