"""How long a drop-in takes to decide that kernels hold for a call: a Linear and a GELU, with a version that does nothing.

What is counted is a call of the drop-in without the call of the version's own forward, on a CPU, the best of some repeats.

    python benchmarks/dropin_overhead.py
"""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"  # else nothing is launched on a CPU

import timeit
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from mtmc.dropin import Record, drop_in
from mtmc.dropin.modes import why_not_now
from mtmc.dropin.module_state import ModuleState
from mtmc.task import capture_module

VERSION = """
import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer_0_weight = torch.nn.Parameter(torch.empty(64, 64))
        self.layer_0_bias = torch.nn.Parameter(torch.empty(64))

    def forward(self, x):
        return torch.nn.functional.gelu(torch.nn.functional.linear(x, self.layer_0_weight, self.layer_0_bias))
"""


def microseconds(call: Callable[[], Any], number: int = 20_000) -> float:
    """Of one call, the best of seven repeats."""
    return min(timeit.repeat(call, number=number, repeat=7)) / number * 1e6


def main() -> None:
    torch.set_num_threads(1)
    module = nn.Sequential(nn.Linear(64, 64), nn.GELU()).eval().requires_grad_(False)
    x = torch.randn(4, 64)
    optimized = drop_in(module, capture_module(module, x), [VERSION])
    record: Record = optimized.mtmc
    winner, state = record._winners[0], record._state
    assert isinstance(state, ModuleState) and record.reason is None
    admitted = winner.admit((x,), {})
    assert not isinstance(admitted, str) and admitted.verdict.instance is not None
    # The version's own work is taken away, so that what is left is all that the drop-in does.
    admitted.verdict.instance._forward = lambda x: x
    plain = nn.Identity()
    rows = {
        "a call of nn.Identity": lambda: plain(x),
        "a call of the drop-in": lambda: optimized(x),
        "modes of torch": why_not_now,
        "the module's state": state.why_not,
        "the call's and the module's tensors": lambda: winner.admit((x,), {}),
        "the launch around the version": lambda: winner.run(admitted),
    }
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            times = {name: microseconds(call) for name, call in rows.items()}
        whole = times["a call of the drop-in"] - times["a call of nn.Identity"]
        print(f"{'with' if grad else 'without'} gradient mode: {whole:.2f} us more than nn.Identity")
        for name, value in times.items():
            print(f"    {value:6.2f} us  {name}")


if __name__ == "__main__":
    main()
