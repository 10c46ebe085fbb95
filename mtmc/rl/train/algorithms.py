"""algorithms: how a rollout becomes something to learn from: PPO and GRPO. They share the loss (`loss.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mtmc.errors import ConfigError
from mtmc.rl.bounds import above_zero, at_least, from_0_to_1
from mtmc.rl.forest import Ints
from mtmc.rl.train.advantages import generalized_advantages, group_advantages, returns_of, standardized
from mtmc.rl.train.loss import Weights
from mtmc.rl.train.ragged import Doubles
from mtmc.rl.train.rollouts import Rollout


class Algorithm(Protocol):
    """Settings of an algorithm, a frozen data class. Common to all: rate (of learning), epochs (over each rollout),
    minibatch (steps), norm (gradients are clipped to it)."""

    @property
    def rate(self) -> float: ...
    @property
    def epochs(self) -> int: ...
    @property
    def minibatch(self) -> int: ...
    @property
    def norm(self) -> float: ...
    @property
    def weights(self) -> Weights:
        """Of the terms of the loss."""
        ...

    @property
    def group(self) -> int:
        """Episodes from each start."""
        ...

    def targets(self, rollout: Rollout) -> tuple[Doubles, Doubles | None]:
        """Advantages and returns, [episodes, steps]; None where no value is learned."""
        ...


@dataclass(frozen=True)
class Ppo:
    """Proximal policy optimization.

    clip, entropy, kl, value: weights of the loss, see `mtmc.rl.train.loss`. discount: of rewards, a step: so low that a
    detour costs more than it gains, for every step costs a search an evaluation. trace: lambda of the advantages.
    """

    rate: float = 3e-4
    clip: float = 0.2
    entropy: float = 0.01
    kl: float = 0.02
    value: float = 0.5
    discount: float = 0.7
    trace: float = 0.95
    epochs: int = 4
    minibatch: int = 512
    norm: float = 1.0

    def __post_init__(self) -> None:
        """Raises: ConfigError for a setting out of its range."""
        _check(self)
        from_0_to_1(self, "trace", prefix="algorithm.")

    @property
    def weights(self) -> Weights:
        """See `Algorithm`."""
        return Weights(self.clip, self.value, self.entropy, self.kl)

    @property
    def group(self) -> int:
        """Every episode has a start of its own."""
        return 1

    def targets(self, rollout: Rollout) -> tuple[Doubles, Doubles | None]:
        """Generalized advantages, standardized; the returns are these (before that) plus the values."""
        advantages = generalized_advantages(
            rollout.rewards, rollout.values, rollout.valid, rollout.ending, self.discount, self.trace
        )
        return standardized(advantages, rollout.valid), advantages + rollout.values


@dataclass(frozen=True)
class Grpo:
    """Group-relative policy optimization: no value; an episode is compared with others from the same start.

    members: episodes from each start. The others as in `Ppo`.
    """

    rate: float = 3e-4
    clip: float = 0.2
    entropy: float = 0.01
    kl: float = 0.1
    discount: float = 0.9
    members: int = 8
    epochs: int = 4
    minibatch: int = 512
    norm: float = 1.0

    def __post_init__(self) -> None:
        """Raises: ConfigError for a setting out of its range."""
        _check(self)
        if self.members < 2:
            raise ConfigError(
                f"algorithm.members cannot be {self.members}: use 2 or more, or there is nothing to compare"
            )

    @property
    def weights(self) -> Weights:
        """See `Algorithm`."""
        return Weights(self.clip, 0.0, self.entropy, self.kl)

    @property
    def group(self) -> int:
        """See `members`."""
        return self.members

    def targets(self, rollout: Rollout) -> tuple[Doubles, Doubles | None]:
        """Each step of an episode has the episode's advantage."""
        advantages = group_advantages(returns_of(rollout.rewards, rollout.valid, self.discount), self.members)
        return np.where(rollout.valid, advantages[:, None], 0.0), None


ALGORITHMS: dict[str, type[Algorithm]] = {"ppo": Ppo, "grpo": Grpo}
"""Algorithms by name. To add one: a class with `targets` and a line here."""


def starts_for(algorithm: Algorithm, drawn: Ints) -> Ints:
    """Starts of a rollout: each of those drawn, `group` times."""
    return np.repeat(drawn, algorithm.group)


def _check(settings: Ppo | Grpo) -> None:
    above_zero(settings, "rate", "clip", "norm", prefix="algorithm.")
    at_least(settings, "algorithm.", entropy=0, kl=0, epochs=1, minibatch=1)
    from_0_to_1(settings, "discount", prefix="algorithm.")
