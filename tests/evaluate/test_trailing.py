"""Programs that use what others of their launch made, and read again what these have read, some programs before."""

from __future__ import annotations

import pytest

from mtmc.evaluate.lab import LabSettings
from mtmc.protocols import EvaluationRequest
from mtmc.task import task_from_source

ROWS, COLUMNS = 64, 262144
REFERENCE = f"""
import torch
from torch import nn

rows, columns = {ROWS}, {COLUMNS}
VARIANTS = {{"small": {{"rows": 3, "columns": 640}}, "odd1": {{"rows": 2, "columns": 4001}}}}


class Model(nn.Module):
    def forward(self, x, y):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * y


def get_inputs():
    return [torch.randn(rows, columns), torch.randn(rows, columns)]


def get_init_inputs():
    return []
"""
KERNEL = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def norm_kernel(
    x_ptr, y_ptr, out_ptr, parts, turns, n_shares, behind, n_cols, WIDTH: tl.constexpr, SPLIT: tl.constexpr
):
    turn = tl.atomic_add(turns, 1)
    if turn < n_shares:
        row, part = turn // SPLIT, turn % SPLIT
        cols = part * WIDTH + tl.arange(0, WIDTH)
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
        tl.store(parts + turn, tl.sum(x * x, axis=0))
        tl.debug_barrier()
        tl.atomic_add(turns + 1 + row, 1)
    if turn >= behind:
        row, part = (turn - behind) // SPLIT, (turn - behind) % SPLIT
        while tl.atomic_add(turns + 1 + row, 0) < SPLIT:
            pass
        shares = tl.load(parts + row * SPLIT + tl.arange(0, SPLIT), cache_modifier=".cg")
        scale = tl.rsqrt(tl.sum(shares, axis=0) / n_cols + 1e-6)
        cols = part * WIDTH + tl.arange(0, WIDTH)
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
        y = tl.load(y_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
        tl.store(out_ptr + row * n_cols + cols, x * scale * y, mask=cols < n_cols)


class ModelNew(nn.Module):
    def forward(self, x, y):
        rows, columns = x.shape
        split = triton.next_power_of_2(triton.cdiv(columns, 4096))
        n_shares, behind = rows * split, split + LATER
        out = torch.empty_like(x)
        parts = torch.empty(n_shares, device=x.device)
        turns = torch.zeros(1 + rows, device=x.device, dtype=torch.int32)
        norm_kernel[(n_shares + behind,)](x, y, out, parts, turns, n_shares, behind, columns, WIDTH=4096, SPLIT=split)
        return out
"""


@pytest.mark.parametrize(("later", "found"), [(200, True), (3000, False)])
def test_the_lab_counts_what_all_of_them_do(later: int, found: bool) -> None:
    """Not what the first of them do, who have nothing to use yet, nor the last, who have no share to make. What a program
    reads again comes from the cache, if that has not forgotten it since the one so many before it has read it."""
    task = task_from_source(REFERENCE, "trailing")
    with LabSettings(workers=1, hardware="H200").open() as lab:
        [outcome] = lab.evaluate([EvaluationRequest(task, KERNEL.replace("LATER", str(later)), 0, "screen")])
    assert outcome.status == "ok", outcome.diagnosis
    once = 4 * ROWS * COLUMNS
    assert outcome.metrics["bytes_min"] == pytest.approx(3 * once, rel=0.01)
    assert (outcome.metrics["bytes_dram"] < 3.5 * once) is found
