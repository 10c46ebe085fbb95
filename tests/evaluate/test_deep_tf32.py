"""Deep networks whose convolutions the library makes in TF32: at small shapes what is lost is noise to the last layers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from mtmc.evaluate.reference import oracle
from mtmc.evaluate.reference.compare import Expected, check_output
from mtmc.evaluate.reference.effects import Effects
from mtmc.evaluate.reference.reference import Reference
from mtmc.evaluate.reference.tf32 import Tf32Convolutions, round_to_tf32
from mtmc.task import task_from_source

SOURCE = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        parts = [
            part
            for _ in range(LAYERS)
            for part in (nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16, track_running_stats=False), nn.ReLU())
        ]
        self.net = nn.Sequential(*parts)

    def forward(self, x):
        return self.net(x)


def get_inputs():
    return [torch.rand(8, 16, 5, 5)]


def get_init_inputs():
    return []
"""


@pytest.fixture(autouse=True)
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What the oracle does on a GPU whose library may convolve in TF32."""
    monkeypatch.setattr(oracle, "library_precision", lambda device, each, share=1.0: Tf32Convolutions(share))
    ways = (Tf32Convolutions(), Tf32Convolutions(narrow=round_to_tf32))
    monkeypatch.setattr(oracle, "lossy_convolutions", lambda device, each: ways)
    yield


def bf16(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.bfloat16).to(tensor.dtype)


class Case:
    def __init__(self, layers: int, folder: Path, seed: int) -> None:
        task = task_from_source(SOURCE.replace("LAYERS", str(layers)), "deep")
        self.reference = Reference(task, task.small, folder, seed, "cpu")
        self.inputs = self.reference.draw(seed)
        with torch.no_grad():
            self.value = self.made(Tf32Convolutions(narrow=round_to_tf32))
        [self.want] = self.reference._oracle.expected(
            self.reference, self.inputs, seed, [self.value], "drawn", Effects()
        )

    def made(self, mode: AbstractContextManager[Any], scale: float = 1.0) -> torch.Tensor:
        """What the network gives in a mode. scale: of the inputs, on which the result of a normed network does not hang."""
        with torch.no_grad(), mode:
            found: torch.Tensor = self.reference.run([each * scale for each in self.inputs], 1)
            return found


@pytest.mark.parametrize("layers", [1, 12, 30])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_whoever_computes_as_the_library_may_is_right(layers: int, seed: int, tmp_path: Path) -> None:
    case = Case(layers, tmp_path, seed)
    assert isinstance(case.want, Expected) and case.want.exact
    modes: dict[str, tuple[Any, float]] = {
        "exact": (nullcontext(), 1.0),
        "cut": (Tf32Convolutions(), 1.0),
        "rounded": (Tf32Convolutions(narrow=round_to_tf32), 1.0),
        "otherwise rounded": (Tf32Convolutions(narrow=round_to_tf32), 1 + 2**-11),
    }
    for name, (mode, scale) in modes.items():
        assert check_output("it", case.made(mode, scale), case.want)[1] is None, name


@pytest.mark.parametrize("layers", [1, 12])
def test_less_precise_work_is_seen(layers: int, tmp_path: Path) -> None:
    case = Case(layers, tmp_path, 1)
    wrong = {
        "bf16": case.made(Tf32Convolutions(narrow=bf16)),
        "a place": case.value.index_fill(3, torch.tensor([4]), 0.0),
        "one element": case.value.clone(),
        "a layer": case.made(nullcontext()).roll(1, 1),
        "zeros": torch.zeros_like(case.value),
    }
    wrong["one element"][3, 5, 2, 2] += 0.5
    for name, value in wrong.items():
        assert check_output("it", value, case.want)[1] is not None, name
