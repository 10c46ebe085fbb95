"""Run as a program: live modules that round, halve or multiply sizes, handed out with guards, called at many sizes.

What is padded to a multiple of a window and then viewed, tiled by a division that is rounded up, halved and doubled again,
or counted by products that coincide. Interpretation is chosen when triton is imported, so this needs a process of its own.
Reads a JSON list of names from standard input and writes {name: {what became of a call: [sizes]}}: "right", "refused",
"both fail" or "WRONG: how".
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from mtmc.evaluate.interpreter.interpreter import prepare
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.guard_derivation import derive_guards
from mtmc.rewrite.guard_text import guarded
from mtmc.rewrite.plan import graph_of
from mtmc.rewrite.source import print_plan
from mtmc.task import capture_module
from tests.rewrite.interpreted import apply, load

DRAWN = 40
"""Calls by chance of each version."""
SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 16)


class ShiftedWindows(nn.Module):
    """Windows of a padded and rolled map that attend each to itself, as in torchvision's SwinTransformerBlock."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, height, width, channels = x.shape
        y = F.pad(x, (0, 0, 0, (4 - width % 4) % 4, 0, (4 - height % 4) % 4))
        _, tall, wide, _ = y.shape
        shift = 2 if tall > 4 and wide > 4 else 0
        y = torch.roll(y, (-shift, -shift), (1, 2)) if shift else y
        y = y.view(batch, tall // 4, 4, wide // 4, 4, channels).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, channels)
        y = torch.softmax(y @ y.transpose(1, 2), -1) @ y
        y = y.view(batch, tall // 4, wide // 4, 4, 4, channels).permute(0, 1, 3, 2, 4, 5)
        y = y.reshape(batch, tall, wide, channels)
        y = torch.roll(y, (shift, shift), (1, 2)) if shift else y
        return y[:, :height, :width].contiguous() + x


class WindowMeans(nn.Module):
    """Padded by the remainder of a negative number."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.pad(x, (0, 0, 0, -x.shape[2] % 4, 0, -x.shape[1] % 4))
        return y.view(y.shape[0], y.shape[1] // 4, 4, y.shape[2] // 4, 4, y.shape[3]).mean((2, 4)) * 2


class Tiles(nn.Module):
    """Tiles of both dimensions, their numbers rounded up."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, columns = x.shape
        down, across = (rows + 3) // 4, (columns + 3) // 4
        y = F.pad(x, (0, across * 4 - columns, 0, down * 4 - rows)).view(down, 4, across, 4)
        return torch.softmax(y.transpose(1, 2).reshape(down * across, 16), -1)


class Merged(nn.Module):
    """Four neighbours in one, padded to even sizes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.pad(x, (0, 0, 0, x.shape[2] % 2, 0, x.shape[1] % 2))
        parts = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
        return F.layer_norm(torch.cat(parts, -1), (12,))


class HalvedAndBack(nn.Module):
    """Half of a size, and the size itself again."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(F.interpolate(F.avg_pool2d(x, 2), size=x.shape[-2:])) + x


class Halves(nn.Module):
    """Two halves of an even part, side by side."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        half = x.shape[1] // 2
        y = torch.sigmoid(x[:, :half]) * x[:, half : 2 * half]
        return torch.cat([y, y], 1) + 1


class Bands(nn.Module):
    """Bands of three rows, of all batches together."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, rows, columns = x.shape
        y = F.pad(x, (0, 0, 0, -rows % 3))
        y = torch.tanh(y.reshape(batch * (y.shape[1] // 3), 3 * columns))
        return y.reshape(batch, -1, columns)[:, :rows]


class SameProduct(nn.Module):
    """Two inputs of other sizes with as many elements."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.relu(x.reshape(-1)) + y.reshape(-1)


class OtherProduct(nn.Module):
    """The same where neither has to have as many as the other."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.relu(x.reshape(-1))[:, None] * y.reshape(-1)[None]


MODULES: dict[str, tuple[nn.Module, list[tuple[int, ...]]]] = {
    "shifted_windows": (ShiftedWindows(), [(2, 8, 8, 6)]),
    "shifted_windows_odd": (ShiftedWindows(), [(2, 6, 7, 6)]),
    "window_means": (WindowMeans(), [(2, 8, 8, 6)]),
    "tiles": (Tiles(), [(8, 8)]),
    "merged": (Merged(), [(2, 8, 8, 3)]),
    "halved_and_back": (HalvedAndBack(), [(2, 3, 8, 8)]),
    "halves": (Halves(), [(6, 8)]),
    "bands": (Bands(), [(2, 6, 4)]),
    "same_product": (SameProduct(), [(2, 6), (3, 4)]),
    "other_product": (OtherProduct(), [(2, 6), (3, 4)]),
}


def main() -> None:
    names = json.load(sys.stdin)
    torch.set_num_threads(1)
    prepare("ieee")
    with tempfile.TemporaryDirectory() as folder:
        json.dump({name: run(*MODULES[name], Path(folder)) for name in names}, sys.stdout)


def run(module: nn.Module, shapes: list[tuple[int, ...]], folder: Path) -> dict[str, list[Any]]:
    """What became of calls of two versions: the library's calls alone, and as many kernels as there can be."""
    draw = random.Random(0)
    task = capture_module(module.eval(), tuple(map(torch.randn, shapes))).task
    guards, found = derive_guards(task), dict[str, list[Any]]()
    for way in ([], ["lower", "fuse"]):
        plan = apply(task, list(way))
        text = guarded(print_plan(task, graph_of(export_graph(task), plan), plan).source, guards)
        version = load(text, folder).ModelNew()
        for number in range(DRAWN):
            sizes = [[draw.choice(SIZES) if number and draw.random() < 0.5 else size for size in s] for s in shapes]
            found.setdefault(one_call(module, version, list(map(torch.randn, sizes))), []).append(sizes)
    return found


@torch.no_grad()
def one_call(module: nn.Module, version: nn.Module, inputs: list[torch.Tensor]) -> str:
    """What becomes of a call beside the live module."""
    try:
        wanted: torch.Tensor | None = module(*inputs)
    except Exception:
        wanted = None
    try:
        found = version(*inputs)
    except ValueError:
        return "refused"
    except Exception as error:
        return "both fail" if wanted is None else f"WRONG: {type(error).__name__}: {error}"
    if wanted is None or found.shape != wanted.shape:
        return f"WRONG: {tuple(found.shape)} instead of {wanted if wanted is None else tuple(wanted.shape)}"
    return "right" if torch.allclose(found, wanted, rtol=1e-4, atol=1e-4) else "WRONG: other values"


if __name__ == "__main__":
    main()
