"""Seconds that a version's actions take by the number of steps of a recurrence that is written out.

    python benchmarks/large_graphs.py [--steps 32,64,128,256]

Each step joins an input with a hidden state, multiplies, and hands out a product; all results are stacked. What is printed
last is how much longer twice the steps take, in the geometric mean: 2 is proportional.
"""

from __future__ import annotations

import argparse
import time
from itertools import pairwise

from mtmc.hardware import hardware
from mtmc.optimizations import Version, legal_moves
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


def seconds_of(steps: int) -> tuple[float, int]:
    """Seconds that a root's actions take, and how many it has."""
    task = task_from_source(MODULE.replace("STEPS", str(steps)), f"recurrence_{steps}")
    version = Version.of(task, root_plan(export_graph(task)), hardware("H100"))
    start = time.perf_counter()
    moves = legal_moves(version)
    return time.perf_counter() - start, len(moves)


def main() -> None:
    """Print a row for each number of steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", default="32,64,128,256")
    steps = [int(each) for each in parser.parse_args().steps.split(",")]
    taken = []
    print(f"{'steps':>6} {'actions':>8} {'seconds':>8}")
    for count in steps:
        seconds, actions = seconds_of(count)
        taken.append(seconds)
        print(f"{count:6} {actions:8} {seconds:8.2f}", flush=True)
    if len(steps) > 1:
        doublings = sum(b / a - 1 for a, b in pairwise(steps))
        print(f"twice the steps take {(taken[-1] / taken[0]) ** (1 / doublings):.2f} times as long")


if __name__ == "__main__":
    main()
