"""Policies that ask nobody: `Uniform` knows nothing, `Heuristic` is what an expert would try first, from the actions and the
roofline position. Both are pure functions of the observation; neither loads torch.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from mtmc.action import Action
from mtmc.agents.policies.mixing import check_action_statistics, statistics_logits
from mtmc.errors import ConfigError
from mtmc.optimizations import KINDS, UNKNOWN_WEIGHT
from mtmc.protocols import Observation, Policy

REPEATED = -2.0
"""For an action that was done on the way to this version: going back and forth between two settings gains nothing."""


@dataclass(frozen=True)
class Uniform(Policy):
    """Every legal action is as likely as any other."""

    def prior(self, observation: Observation, actions: Sequence[Action]) -> list[float]:
        """1 / n each."""
        return [1.0 / len(actions)] * len(actions)


@dataclass(frozen=True)
class Heuristic(Policy):
    """What an expert would try first, as each kind of optimization says of its own actions (`Optimization.logit`).

    Fusion while there is something to fuse; three TF32 products for an fp32 product; channels last around the library's
    convolutions once what stands behind them is fused; then tiles that fill the chip, then pipelining; splitting only where
    there are too few programs, sharing the last tiles where they leave the chip half empty; a CUDA graph where launches
    are a good part of the time; stop near the roofline.

    temperature: of the softmax over the logits; 1 as they are, larger is flatter. action_statistics: how much it
    counts what an action has gained on other versions of the run, 0 for nothing, see `mixing.statistics_logits`.
    """

    temperature: float = 1.0
    action_statistics: float = 4.0

    def __post_init__(self) -> None:
        if self.temperature <= 0:
            raise ConfigError(
                f"temperature is {self.temperature}; it must be above 0 (1 leaves the priors as they are)"
            )
        check_action_statistics("heuristic", self.action_statistics)

    def prior(self, observation: Observation, actions: Sequence[Action]) -> list[float]:
        """Softmax of the actions' logits; actions of one kind on one region share that kind's weight."""
        counts = Counter((action.kind, action.region.name) for action in actions)
        known = statistics_logits(observation, actions, self.action_statistics)
        logits = [
            (_logit(observation, action, actions) - math.log(counts[(action.kind, action.region.name)]) + more)
            / self.temperature
            for action, more in zip(actions, known, strict=True)
        ]
        top = max(logits)
        weights = [math.exp(logit - top) for logit in logits]
        total = sum(weights)
        return [weight / total for weight in weights]


def _logit(observation: Observation, action: Action, actions: Sequence[Action]) -> float:
    """A natural logarithm: the kind's weight, what the kind says of the action, less for what was done before."""
    kind = KINDS.get(action.kind)
    logit = math.log(UNKNOWN_WEIGHT) if kind is None else math.log(kind.weight)
    if any(step.action.key == action.key for step in observation.history):
        logit += REPEATED
    return logit if kind is None else logit + kind.logit(observation, action, actions)
