"""References whose sequences may have any length: the weights do not change, `seq` and `batch` do."""

from __future__ import annotations

_HEAD = """
import torch
from torch import nn

batch, seq, heads, dim, width, inner, vocabulary = 2, 64, 3, 16, 48, 80, 100
VARIANTS = {
    "small": {"batch": 2, "seq": 16},
    "odd1": {"batch": 1, "seq": 7},
    "odd2": {"batch": 3, "seq": 11},
}


def get_init_inputs():
    return []


def turned(x, rates):
    angles = torch.arange(x.shape[2], device=x.device)[:, None] * rates
    angles = torch.cat((angles, angles), -1)
    first, second = x.chunk(2, -1)
    return x * angles.cos() + torch.cat((-second, first), -1) * angles.sin()


def norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


"""
ROPE = f"""{_HEAD}
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("rates", 10000 ** (-torch.arange(0, dim, 2).float() / dim))

    def forward(self, x):
        return turned(x.view(x.shape[0], x.shape[1], heads, dim).transpose(1, 2), self.rates)


def get_inputs():
    return [torch.randn(batch, seq, heads * dim)]
"""
DECODER = f"""{_HEAD}
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = (nn.Parameter(torch.rand(width)) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.gate, self.down = nn.Linear(width, inner), nn.Linear(width, inner), nn.Linear(inner, width)
        self.register_buffer("rates", 10000 ** (-torch.arange(0, dim, 2).float() / dim))

    def forward(self, x):
        b, s, _ = x.shape
        parts = self.qkv(norm(x, self.first)).chunk(3, -1)
        q, k, v = (part.view(b, s, heads, dim).transpose(1, 2) for part in parts)
        q, k = turned(q, self.rates), turned(k, self.rates)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, s, width))
        y = norm(x, self.second)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


def get_inputs():
    return [torch.randn(batch, seq, width)]
"""
LOSS = f"""{_HEAD}
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.places = nn.Embedding(vocabulary, width), nn.Embedding(300, width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids, labels):
        x = self.embedding(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        x = nn.functional.layer_norm(x, (width,))
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1), labels.flatten())


def get_inputs():
    return [torch.randint(0, vocabulary, (batch, seq)) for _ in range(2)]
"""
SCORES = f"""{_HEAD}
class Model(nn.Module):
    def forward(self, q, k, v, mask):
        scores = (q @ k.transpose(-1, -2)) * 0.25 + mask[:, None, None]
        return scores.softmax(-1) @ v


def get_inputs():
    return [*(torch.randn(batch, heads, seq, dim) for _ in range(3)), torch.randn(batch, seq)]
"""
POOLED = f"""{_HEAD}
class Model(nn.Module):
    def forward(self, x):
        x = nn.functional.pad(x[:, None], (1, 1, 2, 2))
        return nn.functional.adaptive_avg_pool2d(nn.functional.max_pool2d(x, 3, 2, 1), (5, 5))


def get_inputs():
    return [torch.randn(batch, seq, seq + 3)]
"""
SUMS = f"""{_HEAD}
class Model(nn.Module):
    def forward(self, x):
        return x.transpose(1, 2).var(-1, keepdim=True), x.transpose(1, 2).softmax(-1)


def get_inputs():
    return [torch.randn(batch, seq, width)]
"""
REFERENCES = {"rope": ROPE, "decoder": DECODER, "loss": LOSS, "pooled": POOLED, "sums": SUMS, "scores": SCORES}
