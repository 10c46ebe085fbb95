"""mixing: a learned policy's logits and the heuristic's opinion as one prior."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mtmc.errors import ConfigError


def mixed_prior(
    logits: Sequence[float], others: Sequence[float], temperature: float, weight: float, floor: float
) -> list[float]:
    """Probabilities of n actions.

        p(i) = floor / n + (1 - floor) * ((1 - weight) * softmax(logits / temperature)(i) + weight * others(i))

    others: somebody else's probabilities (the heuristic's). So each is at least floor / n, and the sum is 1.
    """
    count, top = len(logits), max(logits)
    own = [math.exp((logit - top) / temperature) for logit in logits]
    total = sum(own)
    return [
        floor / count + (1 - floor) * ((1 - weight) * mine / total + weight * other)
        for mine, other in zip(own, others, strict=True)
    ]


def check_mixing(policy: str, temperature: float, weight: float, floor: float) -> None:
    """Raises: ConfigError naming the setting of `policy` that is out of its range."""
    if not temperature > 0:
        raise ConfigError(f"{policy}.temperature cannot be {temperature:g}: use a number above 0 (1 changes nothing)")
    if not 0 <= weight <= 1:
        raise ConfigError(f"{policy}.heuristic cannot be {weight:g}: use a number from 0 to 1 (0: the network alone)")
    if not 0 < floor <= 1:
        raise ConfigError(f"{policy}.floor cannot be {floor:g}: use a number above 0, at most 1")
