"""pretraining: a start by supervised learning. A recorded tree tells what every action leads to, and what that leads to, so
the value of each action can be computed, and a network trained to prefer the best, before it learns by trying."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mtmc.errors import ConfigError
from mtmc.rl.bounds import above_zero, at_least
from mtmc.rl.forest import STOP_CHILD, Batch, Forest
from mtmc.rl.train.ragged import Doubles, log_softmax, log_softmax_np

if TYPE_CHECKING:
    import torch

    from mtmc.rl.scorer import Scorer

_BOUNDS = (-1.0, 3.0)
"""Values of actions are clipped to these: how hopeless a bad action is need not be learned."""
_ROUNDS = 64
"""Of the iteration that finds the values; gains die out with gamma long before."""


@dataclass(frozen=True)
class Pretraining:
    """The supervised start.

    epochs: over all right versions of the training trees; 0: none. lr: learning rate. minibatch: states a step.
    weight_decay: of AdamW. gamma: discount a step, of what comes later. failure: value of an action that fails.
    sharpness, heuristic_weight: of the target logits, sharpness * value + heuristic_weight * log of the heuristic's prior:
    what a policy comes to that is rewarded for value and for staying close to the heuristic. absolute: weight, beside the
    cross-entropy of their softmax, of the distance between each logit and its target, for a network that is `anchored`
    (`mtmc.rl.scorer`): of a version with one known action the softmax says nothing.
    """

    epochs: int = 10
    lr: float = 1e-3
    minibatch: int = 64
    weight_decay: float = 1.0
    gamma: float = 0.7
    failure: float = -0.5
    sharpness: float = 20.0
    heuristic_weight: float = 1.0
    absolute: float = 0.3

    def __post_init__(self) -> None:
        """Raises: ConfigError for a setting out of its range."""
        at_least(self, "pretraining.", epochs=0, minibatch=1, weight_decay=0, heuristic_weight=0, absolute=0)
        above_zero(self, "lr", "sharpness", prefix="pretraining.")
        if not 0 <= self.gamma < 1:
            raise ConfigError(f"pretraining.gamma cannot be {self.gamma:g}: use a number from 0 to below 1")


def action_values(forest: Forest, gamma: float, failure: float) -> Doubles:
    """The value of each known edge, [edges]; NaN for the others.

    q(STOP) = 0                     q(an edge to a failed version) = failure
    q(edge) = gamma * (log2(t_node / t_child) + gain(child))
    gain(node) = max(0, greatest q of its known edges)
    """
    known = np.flatnonzero(forest.known)
    parent = (np.searchsorted(forest.start, known, side="right") - 1).astype(np.int64)
    children = forest.children[known]
    leads = children != STOP_CHILD
    child = np.where(leads, children, parent)
    right = leads & forest.ok[child]
    step = np.where(right, np.log2(forest.runtime_ms[parent] / np.where(right, forest.runtime_ms[child], 1.0)), 0.0)
    gain = np.zeros(len(forest.ok))
    q = np.zeros(len(known))
    for _ in range(_ROUNDS):
        q = np.where(right, gamma * (step + gain[child]), np.where(leads, failure, 0.0))
        better = np.zeros_like(gain)
        np.maximum.at(better, parent, q)
        if np.allclose(better, gain, atol=1e-9):
            break
        gain = better
    found = np.full(len(forest.known), np.nan)
    found[known] = q
    return found


@dataclass(frozen=True, eq=False)
class Targets:
    """What is learned. logits, and probs, their softmax among each node's known edges: [edges], NaN for the others. gains:
    [nodes]."""

    logits: Doubles
    probs: Doubles
    gains: Doubles


def targets_of(forest: Forest, settings: Pretraining) -> Targets:
    """The distribution over each version's known actions, and what is still to be gained from it."""
    q = action_values(forest, settings.gamma, settings.failure)
    nodes = np.flatnonzero(forest.choices)
    batch = forest.batch(nodes)
    logits, probs, gains = np.full(len(q), np.nan), np.full(len(q), np.nan), np.zeros(len(forest.ok))
    logits[batch.edges] = (
        settings.sharpness * np.clip(q[batch.edges], *_BOUNDS) + settings.heuristic_weight * batch.opinions
    )
    probs[batch.edges] = np.exp(log_softmax_np(logits[batch.edges], batch.counts))
    np.maximum.at(gains, np.repeat(nodes, batch.counts), q[batch.edges])
    return Targets(logits, probs, gains)


def pretraining_terms(
    scorer: Scorer, batch: Batch, targets: Targets, absolute: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums over a batch's states of what the policy is to make small, and of the squared error of the value.

        cross-entropy of the policy to `targets.probs` + absolute * sum over the actions of huber(logit - `targets.logits`)

    absolute: see `Pretraining`; without effect for a scorer that is not anchored.
    """
    import torch

    scores = scorer.score(batch)
    state_of = torch.from_numpy(batch.state_of).to(scores.logits.device)
    probs = torch.from_numpy(targets.probs[batch.edges]).to(scores.logits)
    gains = torch.from_numpy(targets.gains[batch.nodes]).to(scores.values)
    loss = -(probs * log_softmax(scores.logits, state_of, len(batch))).sum()
    if scorer.anchored:
        wanted = torch.from_numpy(targets.logits[batch.edges]).to(scores.logits)
        loss = loss + absolute * torch.nn.functional.huber_loss(scores.logits, wanted, reduction="sum")
    return loss, (scores.values - gains).square().sum()
