"""An encoder layer with norms after the residuals and a mask of paddings.

Source: BERT base (arXiv 1810.04805): width 768, 12 heads, hidden 3072, GELU, epsilon 1e-12. 32 x 128 tokens in fp16.
"""

import torch
from torch import nn

batch = 32
seq = 128
heads = 12
head_dim = 64
hidden = 3072

VARIANTS = {
    "small": {"batch": 2, "seq": 16, "heads": 2, "head_dim": 16, "hidden": 64},
    "odd1": {"batch": 3, "seq": 7, "heads": 3, "head_dim": 9, "hidden": 51},
    "odd2": {"batch": 1, "seq": 13, "heads": 5, "head_dim": 7, "hidden": 33},
}


class Model(nn.Module):
    def __init__(self, heads, head_dim, hidden):
        super().__init__()
        width = heads * head_dim
        self.heads, self.head_dim = heads, head_dim
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-12), nn.LayerNorm(width, eps=1e-12)
        self.to(torch.float16)

    def heads_of(self, x):
        return x.view(x.shape[0], x.shape[1], self.heads, self.head_dim).permute(0, 2, 1, 3)

    def forward(self, x, mask):
        q, k, v = self.heads_of(self.q(x)), self.heads_of(self.k(x)), self.heads_of(self.v(x))
        bias = (1.0 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        weights = torch.softmax(q @ k.transpose(-1, -2) / self.head_dim**0.5 + bias, dim=-1)
        heads = (weights @ v).permute(0, 2, 1, 3).flatten(2)
        x = self.norm1(x + self.out(heads))
        return self.norm2(x + self.down(nn.functional.gelu(self.up(x))))


def get_inputs():
    lengths = torch.randint(seq // 2, seq + 1, (batch, 1))
    return [torch.randn(batch, seq, heads * head_dim, dtype=torch.float16), (torch.arange(seq) < lengths).long()]


def get_init_inputs():
    return [heads, head_dim, hidden]
