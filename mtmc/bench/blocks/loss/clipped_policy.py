"""The clipped objective over tokens with advantages of a group of answers, and an estimate of the divergence.

Source: GRPO (arXiv 2402.03300, equation 3): groups of 64, clip 0.2, weight 0.04. 64 x 4096 tokens; log
probabilities in bf16.
"""

import torch
from torch import nn

groups = 4
members = 64
seq = 4096

VARIANTS = {
    "small": {"groups": 2, "members": 4, "seq": 40},
    "odd1": {"groups": 3, "members": 3, "seq": 13},
    "odd2": {"groups": 1, "members": 5, "seq": 33},
}


class Model(nn.Module):
    def __init__(self, clip, weight):
        super().__init__()
        self.clip, self.weight = clip, weight

    def forward(self, new, old, fixed, rewards, mask):
        advantage = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)
        advantage = advantage.flatten()[:, None]
        ratio = torch.exp(new.float() - old.float())
        bounded = torch.clamp(ratio, 1 - self.clip, 1 + self.clip)
        gap = fixed.float() - new.float()
        losses = self.weight * (torch.exp(gap) - gap - 1) - torch.minimum(ratio * advantage, bounded * advantage)
        return ((losses * mask).sum(1) / mask.sum(1)).mean()


def get_inputs():
    old = -2 * torch.rand(groups * members, seq)
    new, fixed = old + 0.2 * torch.randn_like(old), old + 0.2 * torch.randn_like(old)
    lengths = torch.randint(seq // 2, seq + 1, (groups * members, 1))
    mask = (torch.arange(seq) < lengths).float()
    return [*(each.to(torch.bfloat16) for each in (new, old, fixed)), torch.rand(groups, members), mask]


def get_init_inputs():
    return [0.2, 0.04]
