"""Modules of torch.nn, and some written by hand as models have them; they need no other library."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.zoo.example import Builder, Example, example

WIDTH, HEADS, LENGTH, BATCH = 64, 4, 16, 2


def tokens(width: int = WIDTH, length: int = LENGTH) -> torch.Tensor:
    """Activations of a sequence: (BATCH, length, width)."""
    return torch.randn(BATCH, length, width)


def images(channels: int = 8, side: int = 12) -> torch.Tensor:
    """Activations of an image: (BATCH, channels, side, side)."""
    return torch.randn(BATCH, channels, side, side)


class RMSNorm(nn.Module):
    """As decoders have it: the sum of squares in fp32, whatever the dtype."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width))
        self.eps = 1e-6

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)).to(x.dtype)


class GatedMLP(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class RotaryAttention(nn.Module):
    """Causal self-attention with rotary positions from a table that is a buffer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        half = width // heads // 2
        self.register_buffer("frequencies", 10000.0 ** (-torch.arange(half) / half), persistent=False)

    def _rotate(self, x: torch.Tensor) -> torch.Tensor:
        angles = torch.arange(x.shape[2], device=x.device)[:, None] * self.frequencies
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        left, right = x.chunk(2, dim=-1)
        return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(self._rotate(q), self._rotate(k), v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class CachedAttention(nn.Module):
    """One step of decoding: the new keys and values are written into a cache, which attention then reads."""

    def __init__(self, width: int, heads: int, longest: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        shape = (BATCH, heads, longest, width // heads)
        self.register_buffer("keys", torch.randn(shape))
        self.register_buffer("values", torch.randn(shape))

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        self.keys.index_copy_(2, position, k)
        self.values.index_copy_(2, position, v)
        visible = torch.arange(self.keys.shape[2], device=x.device) <= position[-1]
        y = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=visible[None, None, None])
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class DenseExperts(nn.Module):
    """A mixture of experts that runs all of them and weighs each token's best two."""

    def __init__(self, width: int, inner: int, experts: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, inner) / math.sqrt(width))
        self.down = nn.Parameter(torch.randn(experts, inner, width) / math.sqrt(inner))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        best, chosen = self.router(x).softmax(-1).topk(2, dim=-1)
        weights = torch.zeros_like(x[..., :1]).expand(*x.shape[:-1], self.up.shape[0]).scatter(-1, chosen, best)
        inner = F.gelu(torch.einsum("btd,edf->btef", x, self.up))
        return torch.einsum("btef,efd,bte->btd", inner, self.down, weights)


class Nested(nn.Module):
    """Residual MLPs in a ModuleList, two levels deep."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm": nn.LayerNorm(width),
                    "mlp": nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)),
                }
            )
            for _ in range(depth)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + block["mlp"](block["norm"](x))
        return x


class LossHead(nn.Module):
    """The head of a language model with its loss."""

    def __init__(self, width: int, words: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.words = nn.Linear(width, words, bias=False)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.words(self.norm(x)).flatten(0, 1).float(), labels.flatten())


class MovingAverage(nn.Module):
    """Divides by an average of magnitudes that every call moves."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.scale.mul_(0.9).add_(0.1 * x.detach().abs().mean((0, 1)))
        return x / self.scale


def cnn(training: bool) -> Example:
    """Two convolutions with batch norm, a pooling, a head."""
    module = nn.Sequential(
        nn.Conv2d(8, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )
    return Example(module.train(training), (images(),))


def upsampler() -> Example:
    """A decoder of images: transposed convolutions with batch norm."""
    return example(
        nn.Sequential(
            nn.ConvTranspose2d(8, 16, 4, stride=2, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.ConvTranspose2d(16, 3, 4, stride=2, padding=1),
            nn.Tanh(),
        ),
        images(8, 6),
    )


def encoder_layer() -> Example:
    """The encoder layer of torch.nn; its fused path has no ATen calls to look into."""
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, batch_first=True, norm_first=True, activation="gelu")
    return example(layer, tokens())


def attention() -> Example:
    """Cross-attention of torch.nn with a padding mask; the weights are returned as well."""
    mask = torch.zeros(BATCH, LENGTH, dtype=torch.bool)
    mask[:, -3:] = True
    query, memory = tokens(), tokens()
    return example(nn.MultiheadAttention(WIDTH, HEADS, batch_first=True), query, memory, memory, key_padding_mask=mask)


def bag() -> Example:
    """A mean over the words of each bag."""
    return example(nn.EmbeddingBag(100, WIDTH, mode="mean"), torch.randint(0, 100, (8, 6)))


BUILDERS: dict[str, Builder] = {
    "TransformerEncoderLayer": encoder_layer,
    "MultiheadAttention": attention,
    "LSTMCell": lambda: example(nn.LSTMCell(WIDTH, WIDTH), torch.randn(8, WIDTH)),
    "GRUCell": lambda: example(nn.GRUCell(WIDTH, WIDTH), torch.randn(8, WIDTH), torch.randn(8, WIDTH)),
    "LSTM": lambda: example(nn.LSTM(WIDTH, WIDTH, batch_first=True), tokens(length=4)),
    "CNN": lambda: cnn(training=False),
    "CNNInTraining": lambda: cnn(training=True),
    "ConvTranspose": upsampler,
    "EmbeddingBag": bag,
    "LayerNorm": lambda: example(nn.LayerNorm(WIDTH), tokens()),
    "RMSNorm": lambda: example(RMSNorm(WIDTH), tokens()),
    "GatedMLP": lambda: example(GatedMLP(WIDTH, 2 * WIDTH), tokens()),
    "NestedMLPs": lambda: example(Nested(WIDTH, 2), tokens()),
    "RotaryAttention": lambda: example(RotaryAttention(WIDTH, HEADS), tokens()),
    "CachedAttention": lambda: example(CachedAttention(WIDTH, HEADS, 32), tokens(length=1), torch.tensor([20])),
    "DenseExperts": lambda: example(DenseExperts(WIDTH, 2 * WIDTH, 4), tokens()),
    "CrossEntropyHead": lambda: example(LossHead(WIDTH, 100), tokens(), torch.randint(0, 100, (BATCH, LENGTH))),
    "MovingAverage": lambda: example(MovingAverage(WIDTH), tokens()),
}
