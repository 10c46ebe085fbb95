"""Seconds that a version's actions take by the number of steps of a recurrence written out, or of a network's layers.

    python benchmarks/large_graphs.py [--steps 32,64,128,256] [--module recurrence|dense]

Each step joins an input with a hidden state, multiplies, and hands out a product; all results are stacked. A layer of a
dense network normalizes, convolves, and joins what it makes with all that there was. Beside the root stands the version that
is two actions below it: one that makes kernels of its torch calls, one that changes a schedule. What is printed last is how
much longer twice the steps take at the root, in the geometric mean: 2 is proportional.
"""

from __future__ import annotations

import argparse
import time
from itertools import pairwise

from mtmc.hardware import hardware
from mtmc.optimizations import Version, legal_moves
from mtmc.optimizations.move import Move
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import root_plan
from mtmc.task import task_from_source

MODULE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.step, self.out = nn.Linear(2 * width, width), nn.Linear(width, 128)

    def forward(self, x):
        hidden, outs = torch.zeros_like(x[0]), []
        for at in range(STEPS):
            hidden = torch.tanh(self.step(torch.cat((x[at], hidden), 1)))
            outs.append(self.out(hidden))
        return torch.stack(outs)


def get_inputs():
    return [torch.rand(STEPS, batch, 1024)]


def get_init_inputs():
    return [1024]


VARIANTS = {"small": {"batch": 4}, "odd1": {"batch": 3}}
batch = 16
"""

DENSE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        widths = [width * (at + 1) for at in range(STEPS)]
        self.norms = nn.ModuleList(nn.BatchNorm2d(each) for each in widths)
        self.layers = nn.ModuleList(nn.Conv2d(each, width, 3, padding=1) for each in widths)

    def forward(self, x):
        for norm, layer in zip(self.norms, self.layers):
            x = torch.cat((x, layer(torch.relu(norm(x)))), 1)
        return x


def get_inputs():
    return [torch.rand(batch, 32, height, height)]


def get_init_inputs():
    return [32]


VARIANTS = {"small": {"batch": 2, "height": 6}, "odd1": {"batch": 3, "height": 7}}
batch, height = 16, 28
"""
MODULES = {"recurrence": MODULE, "dense": DENSE}


def seconds_of(module: str, steps: int) -> tuple[float, float, int]:
    """Seconds that the actions take of a root and of what is two actions below it, and how many the root has."""
    task = task_from_source(MODULES[module].replace("STEPS", str(steps)), f"{module}_{steps}")
    version = Version.of(task, root_plan(export_graph(task)), hardware("H100"))
    moves, seconds = _timed(version)
    of_all = [move for move in moves if " all " in move.action.sentence]
    lowered = _after(version, next((move for move in of_all if move.action.kind == "lower"), of_all[0]))
    below = _after(lowered, next(move for move in _timed(lowered)[0] if move.stage is not None))
    return seconds, _timed(below)[1], len(moves)


def _timed(version: Version) -> tuple[list[Move], float]:
    """A version's actions, and the seconds that they took."""
    start = time.perf_counter()
    moves = legal_moves(version)
    return moves, time.perf_counter() - start


def _after(version: Version, move: Move) -> Version:
    """The version that an action makes."""
    assert move.child is not None
    return version.made(move.child)


def main() -> None:
    """Print a row for each number of steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", default="32,64,128,256")
    parser.add_argument("--module", default="recurrence", choices=tuple(MODULES))
    given = parser.parse_args()
    steps = [int(each) for each in given.steps.split(",")]
    taken = []
    print(f"{'steps':>6} {'actions':>8} {'seconds':>8} {'two below':>10}")
    for count in steps:
        seconds, below, actions = seconds_of(given.module, count)
        taken.append(seconds)
        print(f"{count:6} {actions:8} {seconds:8.2f} {below:10.2f}", flush=True)
    if len(steps) > 1:
        doublings = sum(b / a - 1 for a, b in pairwise(steps))
        print(f"twice the steps take {(taken[-1] / taken[0]) ** (1 / doublings):.2f} times as long")


if __name__ == "__main__":
    main()
