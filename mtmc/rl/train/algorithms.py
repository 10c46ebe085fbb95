"""algorithms: how a rollout becomes something to learn from: PPO and GRPO. They share the loss (`loss.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mtmc.errors import ConfigError
from mtmc.rl.bounds import above_zero, at_least, from_0_to_1
from mtmc.rl.forest import Ints
from mtmc.rl.train.advantages import generalized_advantages, group_advantages, returns_of, standardized
from mtmc.rl.train.loss import Coefficients
from mtmc.rl.train.ragged import Doubles
from mtmc.rl.train.rollouts import Rollout


class Algorithm(Protocol):
    """Settings of an algorithm, a frozen data class. Common to all: lr (learning rate), epochs (over each
    rollout), minibatch (steps), max_grad_norm (gradients are clipped to it)."""

    @property
    def lr(self) -> float: ...
    @property
    def epochs(self) -> int: ...
    @property
    def minibatch(self) -> int: ...
    @property
    def max_grad_norm(self) -> float: ...
    @property
    def coefficients(self) -> Coefficients:
        """Of the terms of the loss."""
        ...

    @property
    def group_size(self) -> int:
        """Episodes from each start."""
        ...

    def targets(self, rollout: Rollout) -> tuple[Doubles, Doubles | None]:
        """Advantages and returns, [episodes, steps]; None where no value is learned."""
        ...


@dataclass(frozen=True)
class Ppo:
    """Proximal policy optimization.

    clip, ent_coef, kl_coef, vf_coef: of the loss, see `mtmc.rl.train.loss`. gamma: discount of rewards, a step: so low that
    a detour costs more than it gains, for every step costs a search an evaluation. gae_lambda: of the advantages.
    """

    lr: float = 3e-4
    clip: float = 0.2
    ent_coef: float = 0.01
    kl_coef: float = 0.02
    vf_coef: float = 0.5
    gamma: float = 0.7
    gae_lambda: float = 0.95
    epochs: int = 4
    minibatch: int = 512
    max_grad_norm: float = 1.0

    def __post_init__(self) -> None:
        """Raises: ConfigError for a setting out of its range."""
        _check(self)
        from_0_to_1(self, "gae_lambda", prefix="algorithm.")

    @property
    def coefficients(self) -> Coefficients:
        """See `Algorithm`."""
        return Coefficients(self.clip, self.vf_coef, self.ent_coef, self.kl_coef)

    @property
    def group_size(self) -> int:
        """Every episode has a start of its own."""
        return 1

    def targets(self, rollout: Rollout) -> tuple[Doubles, Doubles | None]:
        """Generalized advantages, standardized; the returns are these (before that) plus the values."""
        advantages = generalized_advantages(
            rollout.rewards, rollout.values, rollout.valid, rollout.ending, self.gamma, self.gae_lambda
        )
        return standardized(advantages, rollout.valid), advantages + rollout.values


@dataclass(frozen=True)
class Grpo:
    """Group-relative policy optimization: no value; an episode is compared with others from the same start.

    group_size: episodes from each start. The others as in `Ppo`.
    """

    lr: float = 3e-4
    clip: float = 0.2
    ent_coef: float = 0.01
    kl_coef: float = 0.1
    gamma: float = 0.9
    group_size: int = 8
    epochs: int = 4
    minibatch: int = 512
    max_grad_norm: float = 1.0

    def __post_init__(self) -> None:
        """Raises: ConfigError for a setting out of its range."""
        _check(self)
        if self.group_size < 2:
            raise ConfigError(
                f"algorithm.group_size cannot be {self.group_size}: use 2 or more, or there is nothing to compare"
            )

    @property
    def coefficients(self) -> Coefficients:
        """See `Algorithm`."""
        return Coefficients(self.clip, 0.0, self.ent_coef, self.kl_coef)

    def targets(self, rollout: Rollout) -> tuple[Doubles, Doubles | None]:
        """Each step of an episode has the episode's advantage."""
        advantages = group_advantages(returns_of(rollout.rewards, rollout.valid, self.gamma), self.group_size)
        return np.where(rollout.valid, advantages[:, None], 0.0), None


ALGORITHMS: dict[str, type[Algorithm]] = {"ppo": Ppo, "grpo": Grpo}
"""Algorithms by name. To add one: a class with `targets` and a line here."""


def starts_for(algorithm: Algorithm, drawn: Ints) -> Ints:
    """Starts of a rollout: each of those drawn, `group_size` times."""
    return np.repeat(drawn, algorithm.group_size)


def _check(settings: Ppo | Grpo) -> None:
    above_zero(settings, "lr", "clip", "max_grad_norm", prefix="algorithm.")
    at_least(settings, "algorithm.", ent_coef=0, kl_coef=0, epochs=1, minibatch=1)
    from_0_to_1(settings, "gamma", prefix="algorithm.")
