"""Which products of a reference count, and which of them a version may do otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from mtmc.evaluate.counting.products import CONVOLUTION, SHARE, least_flops
from mtmc.evaluate.reference.reference import Reference
from mtmc.task import task_from_source

TEXT = """
import torch
from torch import nn
from torch.nn import functional as F

n = 16
VARIANTS = {{"small": {{"n": 16}}, "odd1": {{"n": 12}}}}


class Model(nn.Module):
    def forward(self, x, y, z):
        return {}


def get_inputs():
    return [torch.randn(n, n), torch.randn(n, n), torch.randn(n, n)]


def get_init_inputs():
    return []
"""
MM = {"op": "aten.mm", "dims": [], "dot_flops": 1000}
CONV = {"op": "aten.convolution", "dims": [1, 8, 8, 8, 9], "dot_flops": 1000}


@pytest.mark.parametrize(
    ("forward", "records", "flops"),
    [
        ("x @ y", [MM], 1000 * SHARE),
        ("torch.softmax(x @ y, -1) @ z", [MM, MM], 2000 * SHARE),
        ("torch.relu(x @ y) @ z", [MM, MM], 2000 * SHARE),
        ("(x @ y).amax(1)", [MM], 1000 * SHARE),
        ("(x @ y) @ z", [MM, MM], 0),  # x @ (y @ z)
        ("(x @ y).sum(1)", [MM], 0),  # x @ y.sum(1)
        ("F.avg_pool1d((x @ y)[None], 4)", [MM], 0),
        ("torch.triu(x @ y)[:, :4]", [MM], 0),
        ("torch.tril(x) @ y", [MM], 0),
        ("torch.where(z.repeat_interleave(4, 0).repeat_interleave(4, 1)[:n, :n] > 0, x, 0.0) @ y", [MM], 0),
        ("x[:1].expand(n, n).contiguous() @ y", [MM], 0),
        ("F.conv2d(x[None, None], y[None, None, :3, :3])", [CONV], 1000 * CONVOLUTION),
        ("F.conv1d(x[None], y[:, :, None])", [{**CONV, "dims": [1, 8, 8, 8, 1]}], 1000 * SHARE),
        ("x @ y", [MM, MM], 0),
        ("x + y", [], 0),
    ],
)
def test_products_that_any_version_computes(
    forward: str, records: list[dict[str, object]], flops: float, tmp_path: Path
) -> None:
    task = task_from_source(TEXT.format(forward), "products")
    assert least_flops(Reference(task, task.small, tmp_path, 5), records) == int(flops)
