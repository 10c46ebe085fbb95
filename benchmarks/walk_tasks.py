"""References of the families and kinds that no built-in task needs, for random walks: attention, convolution, pooling,
scans, what algebra can rewrite, horizontal fusions."""

from __future__ import annotations

from mtmc.task import Task, load_task, task_from_source

_TEXT = """import torch
from torch import nn
from torch.nn import functional as F

{sizes}

VARIANTS = {variants}


class Model(nn.Module):
    def __init__(self, {arguments}):
        super().__init__()
        {layers}

    def forward(self, {inputs}):
        return {forward}


def get_inputs():
    return [{tensors}]


def get_init_inputs():
    return [{arguments}]
"""

Sizes = tuple[int, ...]


def _text(
    names: str, sizes: tuple[Sizes, Sizes, Sizes], forward: str, tensors: tuple[str, ...], layers: str = "pass"
) -> str:
    """A task's file. names, sizes: its numbers, at the full, the small and the odd shapes."""
    split = names.split()
    full, small, odd = (dict(zip(split, each, strict=True)) for each in sizes)
    return _TEXT.format(
        sizes="\n".join(f"{name} = {value}" for name, value in full.items()),
        variants=repr({"small": small, "odd1": odd}),
        arguments=", ".join(split),
        layers=layers,
        inputs=", ".join("xyz"[: len(tensors)]),
        forward=forward,
        tensors=", ".join(tensors),
    )


_IMAGES = ("torch.randn(batch, ins, height, width)",)
_CONVOLUTION = (
    "batch ins outs height width",
    ((16, 32, 48, 64, 56), (2, 4, 6, 9, 8), (1, 5, 3, 7, 10)),
)
_HEADS = ("torch.randn(batch, heads, length, width)",) * 3
_BOTH = "torch.cat((y.expand(z.shape[0], -1, -1, -1), z), 2)"

TEXTS = {
    "attention": _text(
        "batch heads length width",
        ((4, 8, 512, 64), (2, 2, 24, 16), (1, 3, 37, 20)),
        "F.gelu((x @ y.transpose(2, 3) / width ** 0.5).softmax(-1) @ z)".replace("width", "x.shape[3]"),
        _HEADS,
    ),
    "dual": _text(
        "batch heads prompt length width",
        ((4, 8, 1024, 256, 64), (2, 1, 21, 24, 16), (1, 2, 35, 18, 20)),
        f"F.scaled_dot_product_attention(x, {_BOTH}, {_BOTH})",
        (_HEADS[0], "torch.randn(1, heads, prompt, width)", _HEADS[0]),
    ),
    "convolution": _text(
        *_CONVOLUTION,
        "F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)",
        _IMAGES,
        "self.conv = nn.Conv2d(ins, outs, 3, padding=1)\n        self.norm = nn.BatchNorm2d(outs).eval()",
    ),
    "transposed": _text(
        *_CONVOLUTION,
        "torch.tanh(self.conv(x).mean((2, 3), keepdim=True) + 1)",
        _IMAGES,
        "self.conv = nn.ConvTranspose2d(ins, outs, 3, stride=2)",
    ),
    "pools": _text(*_CONVOLUTION, "F.avg_pool2d(F.avg_pool2d(torch.sigmoid(x), 2), 2) * 2", _IMAGES),
    "scan": _text(
        "rows cols",
        ((1024, 4096), (5, 40), (3, 33)),
        "torch.cumsum(x * y, 1) - 1",
        ("torch.randn(rows, cols)", "torch.randn(rows, cols)"),
    ),
    "summed": _text(
        "rows ins outs",
        ((1024, 2048, 4096), (5, 24, 40), (9, 17, 33)),
        "F.gelu((self.linear(x) / 3).mean(1, keepdim=True).logsumexp(1, keepdim=True))",
        ("torch.randn(rows, ins)",),
        "self.linear = nn.Linear(ins, outs)",
    ),
    "apart": _text(
        "rows cols",
        ((64, 128), (5, 24), (9, 17)),
        "(torch.sin(x), torch.cos(y) * 2, y.softmax(1), F.layer_norm(x, x.shape[1:]))",
        ("torch.randn(rows, cols)", "torch.randn(rows, cols)"),
    ),
}


def walk_task(name: str) -> Task:
    """One of these, or a built-in task."""
    return task_from_source(TEXTS[name], name) if name in TEXTS else load_task(name)
