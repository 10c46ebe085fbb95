"""What the settings of evaluators have in common: numbers that must lie in a range."""

from __future__ import annotations

from collections.abc import Sequence

from mtmc.errors import ConfigError


def require_numbers(settings: object, above_zero: Sequence[str], not_below_zero: Sequence[str]) -> None:
    """Raises: ConfigError naming the first of these settings that is too small, and its value."""
    for name in above_zero:
        if getattr(settings, name) <= 0:
            raise ConfigError(f"evaluator.{name} must be above 0, got {getattr(settings, name)}")
    for name in not_below_zero:
        if getattr(settings, name) < 0:
            raise ConfigError(f"evaluator.{name} must be at least 0, got {getattr(settings, name)}")
