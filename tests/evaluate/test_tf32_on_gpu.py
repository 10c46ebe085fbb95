"""On a machine with a GPU: whether the library convolves in TF32 is seen, also where float64 has room for few items."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mtmc.evaluate.reference.first_items import Size
from mtmc.evaluate.reference.reference import Reference
from mtmc.task import Task, Variant

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
SOURCE = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(64, 128, 3)

    def forward(self, x):
        return self.layer(x)BEHIND


def get_inputs():
    return [torch.rand(32, 64, 64, 64)]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("behind", ["", ".mean((2, 3))"])
@pytest.mark.parametrize("allowed", [True, False])
@pytest.mark.parametrize("few", [True, False])
def test_tf32_is_seen(behind: str, allowed: bool, few: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a mean the result does not tell: errors average out."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", allowed)
    task = Task("convolution", SOURCE.replace("BEHIND", behind), Variant("full"), Variant("small"))
    if few:
        monkeypatch.setattr(Size, "needed", lambda size, wide, share=1.0: 2**62 if share > 0.5 else 0)
    found = Reference(task, task.full, tmp_path, 5, "cuda:0").calibrate(1)
    assert found.library.tf32 == allowed
    assert found.error is not None
    if not behind:
        assert (found.error > 1e-5) == allowed
