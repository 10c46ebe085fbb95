"""advantages: how much better a step was than expected. Pure functions of [episodes, steps] arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mtmc.rl.train.ragged import Doubles

_LEAST = 1e-8
"""Keeps a spread of zero from dividing."""


def generalized_advantages(
    rewards: Doubles, values: Doubles, valid: NDArray[np.bool_], ending: Doubles, gamma: float, gae_lambda: float
) -> Doubles:
    """Generalized advantage estimation (arXiv 1506.02438), [episodes, steps], 0 where no step was taken.

        d(t) = r(t) + gamma * V(t + 1) - V(t)
        A(t) = d(t) + gamma * gae_lambda * A(t + 1)

    ending: [episodes], V after the last step: of the state where an episode was cut off, 0 where it ended.
    """
    advantages = np.zeros_like(rewards)
    following, value_after = np.zeros(len(rewards)), ending.astype(np.float64)
    for at in reversed(range(rewards.shape[1])):
        taken = valid[:, at]
        delta = rewards[:, at] + gamma * value_after - values[:, at]
        following = np.where(taken, delta + gamma * gae_lambda * following, following)
        advantages[:, at] = np.where(taken, following, 0.0)
        value_after = np.where(taken, values[:, at], value_after)
    return advantages


def returns_of(rewards: Doubles, valid: NDArray[np.bool_], gamma: float) -> Doubles:
    """What each episode brought in: the discounted sum of its rewards, [episodes]."""
    return (np.where(valid, rewards, 0.0) * gamma ** np.arange(rewards.shape[1])).sum(axis=1)


def group_advantages(returns: Doubles, group_size: int) -> Doubles:
    """GRPO (arXiv 2402.03300): an episode against the others of its group, [episodes].

        A(i) = (R(i) - mean of its group) / (standard deviation of its group)

    group_size: of the groups, which stand one after the other. In a group whose episodes are all alike every advantage is 0.
    """
    grouped = returns.reshape(-1, group_size)
    centred = grouped - grouped.mean(axis=1, keepdims=True)
    return (centred / (grouped.std(axis=1, keepdims=True) + _LEAST)).reshape(-1)


def standardized(advantages: Doubles, valid: NDArray[np.bool_]) -> Doubles:
    """With mean 0 and standard deviation 1 over all steps taken."""
    taken = advantages[valid]
    return np.where(valid, (advantages - taken.mean()) / (taken.std() + _LEAST), 0.0)
