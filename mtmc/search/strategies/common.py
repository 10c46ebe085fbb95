"""What strategies share besides their base: derived seeds, what a failure is worth, and checks of settings."""

from __future__ import annotations

import hashlib
import random

from mtmc.errors import ConfigError
from mtmc.reward import VALUE_FLOOR


def derive_seed(seed: int, *path: int | str) -> int:
    """A seed of its own for each `path` under `seed`: the same on every machine, 0 to 2**63 - 1."""
    text = ":".join(str(part) for part in (seed, *path))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def derived_random(seed: int, *path: int | str) -> random.Random:
    """A generator of its own for each `path` under `seed`, see `derive_seed`."""
    return random.Random(derive_seed(seed, *path))


def is_failure(value: float) -> bool:
    """Whether a value is that of a failed version (`reward.log_speedup` gives those the floor)."""
    return value <= VALUE_FLOOR


def check_setting(holds: bool, name: str, value: object, hint: str) -> None:
    """Raises: ConfigError naming the setting, its value and what to do, unless `holds`."""
    if not holds:
        raise ConfigError(f"{name} cannot be {value!r}: {hint}")
