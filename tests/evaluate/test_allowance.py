"""How long a gate of a version may take."""

from __future__ import annotations

import pytest

from mtmc.evaluate.allowance import seconds_for
from mtmc.evaluate.lab import LabSettings
from mtmc.protocols import EvaluationRequest
from mtmc.task import task_from_source

VERSION = """
import torch
from torch import nn
{above}

class ModelNew(nn.Module):
    def forward(self, x):
{calls}
        return x
"""
TASK = """
import torch
from torch import nn

n = 64


class Model(nn.Module):
    def forward(self, x):
        return x + 1.0


def get_inputs():
    return [torch.randn(n)]


def get_init_inputs():
    return []
"""


def version(calls: int, above: str = "") -> str:
    return VERSION.format(above=above, calls="        x = torch.relu(x)\n" * calls)


@pytest.mark.parametrize(
    ("calls", "seconds"), [(0, 10.0), (48, 10.0), (72, 15.0), (96, 20.0), (192, 40.0), (4000, 40.0)]
)
def test_a_version_of_many_calls_has_more(calls: int, seconds: float) -> None:
    """48 calls are what the setting is meant for, four times as many seconds are the most."""
    assert seconds_for(10.0, version(calls)) == seconds


def test_calls_outside_of_its_classes_do_not_count() -> None:
    assert seconds_for(10.0, version(1, "def other(x):\n" + "    x = abs(x)\n" * 500)) == 10.0


@pytest.mark.parametrize(
    "text", ["", "def forward(:\n", "\0", "x = " + "-" * 200_000 + "1", "x = " + "a." * 100_000 + "b", "x = '\ud800'"]
)
def test_what_is_no_python_or_too_deep_has_what_the_setting_says(text: str) -> None:
    assert seconds_for(10.0, text) == 10.0


@pytest.mark.parametrize(("calls", "seconds"), [(1, "1 s"), (95, "2 s")])
def test_the_lab_ends_a_gate_after_that_long(calls: int, seconds: str) -> None:
    """A loop that has no end is ended, and the message says after how long."""
    task = task_from_source(TASK, "endless")
    source = version(calls).replace("        return x\n", "        while x.numel():\n            pass\n")
    with LabSettings(workers=1, timeout_s=1.0, sandbox="auto").open() as lab:
        [outcome] = lab.evaluate([EvaluationRequest(task, source, "screen")])
    assert outcome.status == "timeout"
    assert outcome.diagnosis is not None and f"stopped after {seconds}:" in outcome.diagnosis.message
