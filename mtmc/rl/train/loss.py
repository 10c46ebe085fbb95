"""loss: the losses of PPO and GRPO for a minibatch of steps. Pure functions of tensors, with hand-computed tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mtmc.rl.train.ragged import log_softmax, sums

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class Steps:
    """Steps that were taken, as tensors.

    state_of: [all actions], the step that each action could be chosen in. chosen: [steps], which of all actions was.
    reference: [all actions], logits of the policy to stay close to. old: [steps], log-probability when it was taken.
    advantages: [steps]. returns: [steps], what the value is to learn; None without a value.
    """

    state_of: torch.Tensor
    chosen: torch.Tensor
    reference: torch.Tensor
    old: torch.Tensor
    advantages: torch.Tensor
    returns: torch.Tensor | None = None


@dataclass(frozen=True, eq=False)
class Terms:
    """Sums over the steps. policy: the clipped surrogate, negated. value: squared error. entropy. kl: of the policy from
    the reference. clipped: steps whose ratio was outside of the clip."""

    policy: torch.Tensor
    value: torch.Tensor
    entropy: torch.Tensor
    kl: torch.Tensor
    clipped: torch.Tensor


@dataclass(frozen=True)
class Coefficients:
    """Of the terms in the loss. clip: e of the surrogate."""

    clip: float = 0.2
    vf_coef: float = 0.5
    ent_coef: float = 0.01
    kl_coef: float = 0.1

    def loss(self, terms: Terms) -> torch.Tensor:
        """policy + vf_coef * V-error - ent_coef * H + kl_coef * KL."""
        return terms.policy + self.vf_coef * terms.value - self.ent_coef * terms.entropy + self.kl_coef * terms.kl


def terms_of(logits: torch.Tensor, values: torch.Tensor, steps: Steps, clip: float) -> Terms:
    """The terms of PPO's loss (arXiv 1707.06347), and of GRPO's, which has no value.

    ratio  = p(chosen) / p_old(chosen)
    policy = -min(ratio * A, clip(ratio, 1 - e, 1 + e) * A)
    value  = (V - return)^2
    kl     = sum over all actions of p log(p / p_reference), exact: there are few actions
    """
    count = len(steps.chosen)
    log_probs = log_softmax(logits, steps.state_of, count)
    reference = log_softmax(steps.reference, steps.state_of, count)
    probs = log_probs.exp()
    ratio = (log_probs[steps.chosen] - steps.old).exp()
    bounded = ratio.clamp(1 - clip, 1 + clip)
    surrogate = (ratio * steps.advantages).minimum(bounded * steps.advantages)
    per_state = (
        sums(-probs * log_probs, steps.state_of, count),
        sums(probs * (log_probs - reference), steps.state_of, count),
    )
    errors = values.new_zeros(()) if steps.returns is None else (values - steps.returns).square().sum()
    return Terms(
        policy=-surrogate.sum(),
        value=errors,
        entropy=per_state[0].sum(),
        kl=per_state[1].sum(),
        clipped=(ratio != bounded).sum(),
    )
