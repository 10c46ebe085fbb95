"""References of inputs with special values among them, whose results are compared element by element (`same`).

Floats with zeros of both signs, infinities, NaN and equal numbers; whole numbers with the extremes of their dtype.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

TEMPLATE = """
import torch
import torch.nn as nn
import torch.nn.functional as F

n = 64
m = 96
k = 48
VARIANTS = {{
    "small": {{"n": 6, "m": 36, "k": 24}},
    "odd1": {{"n": 19, "m": 7, "k": 17}},
}}


class Model(nn.Module):
    def forward(self, {arguments}):
        return {result}


def mixed(special, plain):
    count = min(len(special), plain.numel() // 3)
    flat = plain.flatten()
    flat[:count] = special[torch.randperm(len(special))[:count]]
    return flat[torch.randperm(flat.numel())].reshape(plain.shape)


def floats(*shape, dtype=torch.float32):
    inf = float("inf")
    special = [0.0, -0.0, inf, -inf, inf - inf, 0.0, -0.0, inf, -inf, inf - inf, 1.0, 1.0, -1.0, -1.0, 3e38, 1e-40]
    return mixed(torch.tensor(special).to(dtype), torch.randn(*shape).to(dtype))


def equals(*shape, dtype=torch.float32):
    return (torch.randint(-3, 4, shape) / 2).to(dtype)


def whole(*shape, dtype=torch.int64):
    ends = torch.iinfo(dtype)
    special = torch.tensor([ends.min, ends.max, ends.min, ends.max, 0, 0, ends.max - 1, ends.min + 1], dtype=dtype)
    return mixed(special, torch.randint(0 if ends.min == 0 else -5, 6, shape, dtype=dtype))


def places(*shape, below):
    return torch.randint(0, below, shape)


def masks(*shape):
    return torch.rand(*shape) > 0.5


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def special(result: str, *inputs: str) -> str:
    """The text of a reference whose forward returns `result` of x, y, z, w (as many as there are inputs)."""
    return TEMPLATE.format(result=result, arguments=", ".join("xyzw"[: len(inputs)]), inputs=", ".join(inputs))


def cases(references: Mapping[str, str], ways: Sequence[Sequence[str]], whole: bool = True) -> list[dict[str, Any]]:
    """What `interpret` takes: each compared element by element, after some ways to make kernels of it."""
    common = {"ways": ways, "whole": whole, "same": True}
    return [{"name": name, "source": source, **common} for name, source in references.items()]
