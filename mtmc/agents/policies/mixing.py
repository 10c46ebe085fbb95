"""mixing: a learned policy's logits, the heuristic's prior and a run's action statistics as one prior."""

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

    others: somebody else's probabilities (the heuristic's). more: of `statistics_logits`. So each is at least floor / n,
    and the sum is 1.
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


def statistics_logits(observation: Observation, actions: Sequence[Action], weight: float) -> list[float]:
    """What the action statistics (history heuristic) add to the logits of n actions.

        weight ln 2 clip(mean gain, -1, 1) n / (n + 1)       of n tries on other versions; 0 for none

    So with weight 4 an action that has doubled the speed of many versions is 16 times as likely as one never tried.
    """
    found = [observation.action_statistics.get(action.key) for action in actions]
    return [
        0.0 if gain is None else weight * math.log(2) * min(1.0, max(-1.0, gain.mean)) * gain.tries / (gain.tries + 1)
        for gain in found
    ]


def check_mixing(policy: str, temperature: float, weight: float, floor: float, action_statistics: float) -> None:
    """Raises: ConfigError naming the setting of `policy` that is out of its range."""
    if not temperature > 0:
        raise ConfigError(f"{policy}.temperature cannot be {temperature:g}: use a number above 0 (1 changes nothing)")
    if not 0 <= weight <= 1:
        raise ConfigError(f"{policy}.heuristic cannot be {weight:g}: use a number from 0 to 1 (0: the network alone)")
    if not 0 < floor <= 1:
        raise ConfigError(f"{policy}.floor cannot be {floor:g}: use a number above 0, at most 1")
    check_action_statistics(policy, action_statistics)


def check_action_statistics(policy: str, weight: float) -> None:
    """Raises: ConfigError where the weight of action statistics is out of its range."""
    if not 0 <= weight < math.inf:
        raise ConfigError(f"{policy}.action_statistics cannot be {weight:g}: use a number of 0 (nothing) or more")
