"""Products of few rows start with a tile of which every multiprocessor has some, and with as many bytes on their way."""

from __future__ import annotations

import pytest

from mtmc.hardware import hardware
from mtmc.optimizations import Version
from mtmc.optimizations.starts import _NARROW
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import root_plan
from mtmc.rewrite.source import print_plan
from mtmc.task import task_from_source

REFERENCE = """
import torch
from torch import nn

rows, inner, cols = {m}, {k}, {n}
VARIANTS = {{"small": {{"rows": 3, "inner": 96, "cols": 32}}, "odd1": {{"rows": 5, "inner": 40, "cols": 48}}}}


class Model(nn.Module):
    def forward(self, x, weight):
        return nn.functional.linear(x, weight)


def get_inputs():
    return [torch.randn(rows, inner).bfloat16(), torch.randn(cols, inner).bfloat16()]


def get_init_inputs():
    return []
"""


def test_stages_hold_as_many_bytes_and_more_than_latency_times_bandwidth() -> None:
    """3,350 GB/s * 600 ns / 132 is 15 KB a multiprocessor; loaded, an H100 needs some 40 KB (results/hopper_decode.md)."""
    gpu = hardware("H100")
    needed = gpu.dram_gbs * gpu.latency_ns / gpu.sms
    assert 15_000 < needed < 15_500
    for tile in _NARROW:
        assert tile.n * tile.k * 2 == 16 * 1024
        coming = (tile.stages - 1) * tile.resident * tile.n * tile.k * 2
        assert coming >= 64 * 1024 > 2.5 * needed
        assert tile.resident * tile.stages * (tile.m + tile.n) * tile.k * 2 <= gpu.shared_per_sm


@pytest.mark.parametrize(
    ("m", "k", "n", "tile", "split"),
    [
        (16, 4096, 14336, (64, 128, 4), 1),  # 224 programs
        (16, 14336, 4096, (16, 512, 3), 1),  # 64, 128 or 256: 198 are one and a half for each of 132
        (1, 4096, 4096, (16, 512, 3), 1),
        (16, 4096, 8192, (32, 256, 3), 1),  # 128 or 256
        (8, 8192, 1024, (16, 512, 3), 4),  # 64 programs, 256 with shares of 2048, which are four slices
        (64, 2304, 32000, (128, 64, 4), 1),  # 250 programs
        (64, 4096, 14336, (128, 64, 3), 1),  # 112 are too few: a tile of large products
        (17, 2304, 256128, (128, 64, 4), 1),
        (8, 4096, 256, (16, 512, 3), 2),  # 16 programs, 32 with shares of 2048; of 1024 there are no three slices
    ],
)
def test_the_tile_by_the_number_of_columns(m: int, k: int, n: int, tile: tuple[int, int, int], split: int) -> None:
    task = task_from_source(REFERENCE.format(m=m, k=k, n=n), "few_rows")
    graph = export_graph(task)
    root = Version.of(task, root_plan(graph), hardware("H100"))
    [part] = [stage for stage in root.plan.stages if not root.is_free(stage)]
    stage = root.as_kernel(part.ops, {})
    assert stage is not None
    found = tuple(stage.number(name) for name in ("block_n", "block_k", "num_stages"))
    assert (found, stage.number("split_k")) == (tile, split)
    assert "TensorDescriptor" in print_plan(task, graph, root.plan.with_merged(graph, [part], stage)).source
