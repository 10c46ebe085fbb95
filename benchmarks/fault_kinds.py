"""Versions that go wrong, one kind of fault each, and the statuses that are right for it.

All are the same SiLU kernel with one thing changed. `faulty` gives each a text of its own by its serial number.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.workloads import SILU, make_task
from mtmc.outcome import Status
from mtmc.task import Task

ROWS, COLS = 4096, 1024
FORKS = 10
"""Doublings of the fork bomb: 1,024 processes, each of which spins."""


@dataclass(frozen=True)
class Fault:
    """statuses: the right ones. forward: lines at the start of `forward`. kernel: lines at the end of the kernel."""

    statuses: frozenset[Status]
    forward: str = ""
    kernel: str = ""


def _fault(*statuses: Status, forward: str = "", kernel: str = "") -> Fault:
    return Fault(frozenset(statuses), forward, kernel)


FAULTS: Mapping[str, Fault] = {
    "endless host loop": _fault("timeout", forward="while True:\n    pass"),
    "endless kernel": _fault(
        "timeout",
        kernel="turn = 0\nwhile turn >= 0:\n    turn = (turn + 1) % 1000\n    tl.atomic_add(flag, 2)",
    ),
    "deadlock": _fault("timeout", kernel="seen = 0\nwhile seen != 1:\n    seen = tl.atomic_add(flag, 0)"),
    "segmentation fault": _fault(
        "crash",
        forward=(
            "scratch = torch.ones(1 << 20, device='cpu')\npart = scratch[5:]\n"
            "scratch.untyped_storage().resize_(0)\ntorch.sum(part)"
        ),
    ),
    "illegal address": _fault("crash", kernel="tl.store(out + (1 << 40) + at, r, mask=inside)"),
    "out of GPU memory": _fault(
        "out_of_memory", forward="kept = [torch.empty(1 << 28, device=x.device) for _ in range(512)]"
    ),
    "out of host memory": _fault(
        "out_of_memory",  # few steps: a virtual machine may take seconds to hand out some GiB for the first time
        forward="kept = []\nwhile True:\n    kept.append(b'x' * (1 << (24 + 5 * len(kept))))",
    ),
    "SystemExit": _fault("crash", forward="raise SystemExit(0)"),
    "fork bomb": _fault(
        "rejected",
        "crash",
        "timeout",
        "build_error",
        forward=(
            "system = getattr(warnings, ''.join(('s', 'ys'))).modules[''.join(('o', 's'))]\n"
            f"for _ in range({FORKS}):\n    system.fork()\nwhile True:\n    pass"
        ),
    ),
    "output flood": _fault("crash", "timeout", forward="while True:\n    print('x' * 10_000)"),
    "compile error": _fault("build_error", kernel="tl.store(out + at, nowhere, mask=inside)"),
    "wrong result": _fault("wrong_result", kernel="tl.store(out + at, r * 1.01, mask=inside)"),
}
"""By kind. A fork may be refused by the audit, denied (then forward fails while it is built), end the process or hold it
up; a flood of output ends the process, or holds it up where nobody reads."""


def task() -> Task:
    """The task that all of them are versions of."""
    return make_task("faults_silu", SILU, ROWS, COLS)


def faulty(kind: str, serial: int) -> str:
    """A version with a fault of this kind."""
    fault = FAULTS[kind]
    return f"""\
import warnings

import torch
import triton
import triton.language as tl
from torch import nn

SERIAL = {serial}


@triton.jit
def silu_{serial}(x, out, flag, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    v = tl.load(x + at, mask=inside)
    r = v * tl.sigmoid(v)
    tl.store(out + at, r, mask=inside)
{textwrap.indent(fault.kernel, "    ")}


class ModelNew(nn.Module):
    def forward(self, x):
{textwrap.indent(fault.forward, "        ")}
        out = torch.empty_like(x)
        flag = torch.zeros(1, device=x.device, dtype=torch.int32)
        silu_{serial}[(triton.cdiv(x.numel(), 1024),)](x, out, flag, x.numel(), BLOCK=1024)
        return out
"""
