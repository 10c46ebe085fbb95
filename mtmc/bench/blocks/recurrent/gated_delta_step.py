"""A step of the gated delta rule: the state forgets, what it holds under the new key is replaced, and it is read.

Source: Gated DeltaNet (arXiv 2412.06464) at the sizes of Qwen3-Next (configuration of the release): 32 heads of
128. 64 sequences; state in float32, the rest in bf16.
"""

import torch
from torch import nn

batch = 64
heads = 32
head_dim = 128

VARIANTS = {
    "small": {"batch": 2, "heads": 3, "head_dim": 24},
    "odd1": {"batch": 1, "heads": 5, "head_dim": 13},
    "odd2": {"batch": 3, "heads": 2, "head_dim": 19},
}


class Model(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.log_rate = nn.Parameter(torch.log(torch.rand(heads) + 0.1))
        self.bias = nn.Parameter(torch.rand(heads) - 2.0)

    def forward(self, q, k, v, step, write, state):
        q = nn.functional.normalize(q.float(), dim=-1) * q.shape[-1] ** -0.5
        k = nn.functional.normalize(k.float(), dim=-1)
        decay = torch.exp(-torch.exp(self.log_rate) * nn.functional.softplus(step.float() + self.bias))
        state = state * decay[..., None, None]
        held = (state * k[..., None]).sum(-2)
        change = (v.float() - held) * torch.sigmoid(write.float())[..., None]
        state = state + k[..., None] * change[..., None, :]
        return (state * q[..., None]).sum(-2).to(v.dtype), state


def get_inputs():
    q, k, v = (torch.randn(batch, heads, head_dim, dtype=torch.bfloat16) for _ in range(3))
    step, write = (torch.randn(batch, heads, dtype=torch.bfloat16) for _ in range(2))
    return [q, k, v, step, write, torch.randn(batch, heads, head_dim, head_dim)]


def get_init_inputs():
    return [heads]
