"""mixing: a learned policy's logits, the heuristic's opinion and a run's experience as one prior."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mtmc.action import Action
from mtmc.errors import ConfigError
from mtmc.protocols import Observation


def mixed_prior(
    logits: Sequence[float],
    others: Sequence[float],
    temperature: float,
    weight: float,
    floor: float,
    more: Sequence[float],
) -> list[float]:
    """Probabilities of n actions.

        m(i) = ((1 - weight) * softmax(logits / temperature)(i) + weight * others(i)) * exp(more(i))
        p(i) = floor / n + (1 - floor) * m(i) / sum(m)

    others: somebody else's probabilities (the heuristic's). more: of `experienced`. So each is at least floor / n, and the
    sum is 1.
    """
    count, top = len(logits), max(logits)
    own = [math.exp((logit - top) / temperature) for logit in logits]
    total = sum(own)
    mixed = [
        ((1 - weight) * mine / total + weight * other) * math.exp(extra)
        for mine, other, extra in zip(own, others, more, strict=True)
    ]
    whole = sum(mixed)
    return [floor / count + (1 - floor) * each / whole for each in mixed]


def experienced(observation: Observation, actions: Sequence[Action], strength: float) -> list[float]:
    """What experience adds to the logits of n actions.

        strength ln 2 clip(mean gain, -1, 1) n / (n + 1)       of n tries on other versions; 0 for none

    So with strength 4 an action that has doubled the speed of many versions is 16 times as likely as one never tried.
    """
    found = [observation.elsewhere.get(action.key) for action in actions]
    return [
        0.0 if gain is None else strength * math.log(2) * min(1.0, max(-1.0, gain.mean)) * gain.tries / (gain.tries + 1)
        for gain in found
    ]


def check_mixing(policy: str, temperature: float, weight: float, floor: float, experience: float) -> None:
    """Raises: ConfigError naming the setting of `policy` that is out of its range."""
    if not temperature > 0:
        raise ConfigError(f"{policy}.temperature cannot be {temperature:g}: use a number above 0 (1 changes nothing)")
    if not 0 <= weight <= 1:
        raise ConfigError(f"{policy}.heuristic cannot be {weight:g}: use a number from 0 to 1 (0: the network alone)")
    if not 0 < floor <= 1:
        raise ConfigError(f"{policy}.floor cannot be {floor:g}: use a number above 0, at most 1")
    check_experience(policy, experience)


def check_experience(policy: str, experience: float) -> None:
    """Raises: ConfigError where what experience counts for is out of its range."""
    if not 0 <= experience < math.inf:
        raise ConfigError(f"{policy}.experience cannot be {experience:g}: use a number of 0 (nothing) or more")
