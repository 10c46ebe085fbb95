"""shortest: a policy that prefers what is said in few words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mtmc.action import Action
from mtmc.protocols import Observation, Policy


@dataclass(frozen=True)
class Shortest(Policy):
    """power: how much it prefers them; 0: not at all."""

    power: float = 1.0

    def prior(self, observation: Observation, actions: Sequence[Action]) -> list[float]:
        """Weights are 1 / words ** power."""
        weights = [max(1, len(action.sentence.split())) ** -self.power for action in actions]
        return [weight / sum(weights) for weight in weights]
