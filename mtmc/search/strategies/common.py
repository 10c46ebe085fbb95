"""What every strategy needs: trial ids with an idempotent end, derived seeds, and checks of settings."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field

from mtmc.errors import ConfigError, RunError
from mtmc.protocols import Trial
from mtmc.reward import VALUE_FLOOR


@dataclass
class Flights:
    """Trials that were asked and not yet told, with ids in order of asking from 0."""

    asked: int = 0
    flying: dict[int, Trial] = field(default_factory=dict)

    def start(self, node_id: int, action_index: int) -> Trial:
        """A new trial."""
        trial = Trial(self.asked, node_id, action_index)
        self.asked += 1
        self.flying[trial.id] = trial
        return trial

    def land(self, trial_id: int) -> Trial | None:
        """The trial that ends now, or None if it ended before. Raises: RunError if it was never asked."""
        if not 0 <= trial_id < self.asked:
            raise RunError(f"trial {trial_id} was never asked: this strategy has asked for {self.asked} so far")
        return self.flying.pop(trial_id, None)


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


def check_setting(holds: bool, name: str, value: object, mend: str) -> None:
    """Raises: ConfigError naming the setting, its value and the mend, unless `holds`."""
    if not holds:
        raise ConfigError(f"{name} cannot be {value!r}: {mend}")
