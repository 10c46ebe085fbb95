"""What a version's guards cost a call, in microseconds, by how many tensors forward reads.

    python -m benchmarks.guard_cost [--device cuda] [--json FILE]

The module has one layer for every two tensors but the input, as most have. A call of a known form is timed, which is what
a program makes again and again: the best of many repetitions, since other programs only ever add time.
"""

from __future__ import annotations

import argparse
import json
import timeit
from collections.abc import Sequence
from pathlib import Path
from typing import Any

COUNTS = (1, 12, 25, 60)
CALLS, REPETITIONS = 2000, 25

_HEAD = """
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
"""


def text(count: int) -> str:
    """A version of `count` tensors with its guards: x, and weights and biases of linear layers."""
    from mtmc.rewrite.guard_text import guarded
    from mtmc.rewrite.guards import Dimension, Guards, TensorGuard

    lines = [f"        self.fc{index} = nn.Linear(8, 8)" for index in range(count // 2)] or ["        pass"]
    tensors = [TensorGuard("x", "x", (Dimension("free", (2, 3), low=2), _eight()), "float32", (0, 1), argument=0)]
    for index in range(count - 1):
        layer, name = divmod(index, 2)
        kind = ("weight", "bias")[name]
        sizes = (_eight(), _eight()) if kind == "weight" else (_eight(),)
        order = tuple(range(len(sizes)))
        variable = f"fc{layer}_{kind}"
        tensors.append(TensorGuard(variable, f"fc{layer}.{kind}", sizes, "float32", order, held_as="parameter"))
    source = "\n".join([_HEAD.strip("\n"), *lines, "", "    def forward(self, x):", "        return x", ""])
    return guarded(source, Guards(tuple(tensors), given=1))


def _eight() -> Any:
    from mtmc.rewrite.guards import Dimension

    return Dimension("constant", (8, 8), value=8)


def cost(count: int, device: str) -> float:
    """Microseconds that the guards take of a call of a known form."""
    import torch

    names: dict[str, Any] = {}
    exec(text(count), names)
    model = names["ModelNew"]().to(device)
    x = torch.randn(4, 8, device=device)
    admits = names["admits"]
    with torch.no_grad():
        assert admits(model, x) is None
        times = timeit.repeat(lambda: admits(model, x), number=CALLS, repeat=REPETITIONS)
        nothing = timeit.repeat(lambda: None, number=CALLS, repeat=REPETITIONS)
    return (min(times) - min(nothing)) / CALLS * 1e6


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    found = {count: round(cost(count, options.device), 2) for count in COUNTS}
    for count, microseconds in found.items():
        print(f"{count:3} tensors: {microseconds:6.2f} us a call")
    if options.json:
        options.json.write_text(json.dumps({"device": options.device, "us": found}))


if __name__ == "__main__":
    main()
