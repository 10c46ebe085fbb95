"""A toy decoder: the smallest network with layers, a head and an embedding; and an evaluator that takes no time."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from mtmc.outcome import Outcome
from mtmc.protocols import EvaluationRequest, Evaluator


class Layer(nn.Module):
    def __init__(self, width: int, index: int) -> None:
        super().__init__()
        self.index = index
        self.norm = nn.RMSNorm(width, eps=1e-6)
        self.gate, self.up = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    def __init__(self, layers: int = 4, width: int = 16, words: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.layers = nn.ModuleList([Layer(width, index) for index in range(layers)])
        self.norm = nn.RMSNorm(width, eps=1e-6)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def decoder(layers: int = 4) -> Decoder:
    torch.manual_seed(0)
    return Decoder(layers).eval()


def inputs() -> tuple[torch.Tensor]:
    return (torch.arange(24).reshape(3, 8) % 32,)


class KernelCounter(Evaluator):
    """An evaluator for which a version is the faster, the more kernels it has."""

    hardware = "H100"
    verifies = False

    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
        return [
            Outcome("ok", 8 / (1 + 0.25 * request.source.count("@triton.jit")), runtime_kind="estimated")
            for request in requests
        ]

    def close(self) -> None:
        pass
