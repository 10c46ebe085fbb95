"""bounds: what a number among the settings may be, refused in the same words everywhere.

prefix: of the settings' names as a user types them, "algorithm.".
"""

from __future__ import annotations

from mtmc.errors import ConfigError


def at_least(settings: object, prefix: str = "", **least: float) -> None:
    """Raises: ConfigError for a setting below its bound. least: setting -> bound."""
    for name, bound in least.items():
        value = getattr(settings, name)
        _check(value >= bound, f"{prefix}{name}", value, f"{bound:g} or more")


def above_zero(settings: object, *names: str, prefix: str = "") -> None:
    """Raises: ConfigError for a setting that is 0 or less; None is no number."""
    for name in names:
        value = getattr(settings, name)
        _check(value is None or value > 0, f"{prefix}{name}", value, "a number above 0")


def from_0_to_1(settings: object, *names: str, prefix: str = "") -> None:
    """Raises: ConfigError for a share that is none."""
    for name in names:
        value = getattr(settings, name)
        _check(0 <= value <= 1, f"{prefix}{name}", value, "a number from 0 to 1")


def _check(holds: bool, name: str, value: float, allowed: str) -> None:
    if not holds:
        raise ConfigError(f"{name} cannot be {value:g}: use {allowed}")
