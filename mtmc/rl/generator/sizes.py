"""sizes: numbers for a program's sizes, so that a GPU works on it for a wanted time and it fits into little memory.

The times here are rough (an H100's eager mode, by bytes, flops and launches): they only spread the tasks over what is
bound by launches, by memory and by arithmetic. What a task really takes is measured when it is recorded.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from mtmc.rl.generator.program import BYTES, Dims, Program, base, size_of

LEAST_US, MOST_US = 10.0, 1600.0
"""Estimated time of one forward in eager mode that sizes are drawn for."""
MOST_BYTES = 2 * 2**30
"""Memory of one evaluation: the copies that the reference and a candidate hold (see `reference.admission.bytes_needed`)."""
TRIES = 400
LAUNCH_US = 4.0
STREAM_GBS = 2600.0
TFLOPS = {"fp32": 50.0, "fp16": 600.0, "bf16": 600.0}
"""Of products; fp32 without TF32, as torch computes it by default."""
POINT_TFLOPS = 25.0

_FULL: Mapping[str, Sequence[int]] = {
    "rows": (1, 8, 32, 64, 128, 256, 512, 1000, 1024, 2048, 3000, 4096, 6144, 8192, 12288, 16384, 32768, 65536),
    "cols": (32, 64, 96, 128, 256, 384, 512, 768, 1000, 1024, 1536, 2048, 3072, 4096, 5120, 8192, 12288, 16384),
    "features": (64, 96, 128, 256, 384, 512, 768, 1000, 1024, 1536, 2048, 3072, 4096, 5120, 8192),
    "batch": (2, 4, 8, 12, 16, 32, 48, 64, 128),
    "channels": (4, 8, 16, 32, 64, 96, 128, 256),
    "height": (14, 16, 28, 32, 48, 56, 64, 96, 112, 128, 224),
    "maps": (16, 32, 48, 64, 96, 128, 256),
    "depth": (8, 12, 16, 24, 32, 48),
    "span": (320, 384, 512, 768, 1024),
    "length": (128, 250, 512, 1024, 2000, 4096, 8192, 16384, 65536),
}
_BRIEF: Mapping[str, Sequence[int]] = {
    **_FULL,
    "rows": (8, 16, 32, 64, 100, 128, 256),
    "cols": (32, 64, 96, 128, 200, 256, 512),
    "features": (32, 64, 96, 128, 256),
    "batch": (2, 4, 8),
    "channels": (4, 8, 16, 32),
    "height": (8, 14, 16, 28),
}
"""Of programs whose time is that of their launches."""
_SMALL: Mapping[str, Sequence[int]] = {
    "rows": (20, 24, 28, 36, 40, 44),
    "cols": (48, 56, 64, 72, 80, 88, 96, 104),
    "features": (32, 50, 60, 68, 76, 84, 92),
    "batch": (2, 3),
    "channels": (8, 12, 16),
    "height": (8, 10, 14, 18),
    "maps": (4, 8, 12),
    "depth": (5, 7, 8, 9),
    "span": (48, 56, 64, 72),
    "length": (34, 38, 46, 58),
}
_ODD: Mapping[str, Sequence[int]] = {
    "rows": (3, 5, 7, 11, 13, 31),
    "cols": (17, 19, 33, 37, 51, 65, 129),
    "features": (9, 15, 21, 27, 35, 45, 55),
    "batch": (1, 4, 6),
    "channels": (4, 20, 24),
    "height": (6, 9, 12, 15, 16),
    "maps": (4, 12, 16, 20),
    "depth": (5, 6, 9, 10, 11),
    "span": (17, 33, 37, 51),
    "length": (23, 29, 41, 47),
}

_ROLES = {
    "width": "height",
    "filters": "channels",
    "kernels": "maps",
    "high": "depth",
    "wide": "depth",
    "keys": "rows",
}
"""What a size is drawn as that has no numbers of its own."""


@dataclass(frozen=True)
class Work:
    """What one forward in eager mode takes, in microseconds: of launches, of moving bytes and of arithmetic. memory: in
    bytes, of one evaluation."""

    launch_us: float
    memory_us: float
    compute_us: float
    us: float
    memory: int

    @property
    def regime(self) -> str:
        """What bounds it: "launch", "memory" or "compute"."""
        parts = {"launch": self.launch_us, "memory": self.memory_us, "compute": self.compute_us}
        return max(parts, key=lambda name: parts[name])


def work_of(program: Program, sizes: Mapping[str, int]) -> Work:
    """The estimate for a program at these sizes."""
    width = BYTES[program.dtype]
    values = program.values
    launch = memory = compute = total = 0.0
    for step in program.steps:
        made = _numel(step.result.dims, sizes)
        moved = sum(_numel(values[name].dims, sizes) for name in step.reads) + step.passes * made
        if step.inner:
            inner = size_of(step.inner, sizes)
            moved += inner * size_of(step.across or step.result.dims[-1], sizes) * step.times
            flops_us = 2.0 * made * inner * step.times / TFLOPS[program.dtype] / 1e6
        else:
            flops_us = made * step.flops / POINT_TFLOPS / 1e6
        bytes_us = moved * width / STREAM_GBS / 1e3
        launch_us = LAUNCH_US * step.passes
        total += max(launch_us, bytes_us, flops_us)
        bound = max(launch_us, bytes_us, flops_us)
        launch, memory, compute = (
            launch + bound * (bound == launch_us),
            memory + bound * (bound == bytes_us > launch_us),
            compute + bound * (bound == flops_us > max(bytes_us, launch_us)),
        )
    return Work(launch, memory, compute, total, _memory(program, sizes))


def full_sizes(program: Program, rng: random.Random) -> dict[str, int] | None:
    """Sizes at which the program takes about a time drawn from `LEAST_US` to `MOST_US` (evenly in its logarithm).

    None where none of `TRIES` draws fits.
    """
    target = math.exp(rng.uniform(math.log(LEAST_US), math.log(MOST_US)))
    best: tuple[float, dict[str, int]] | None = None
    table = _BRIEF if program.kind == "short" else _FULL
    for _ in range(TRIES):
        sizes = {name: rng.choice(table[role(name)]) for name in program.sizes}
        work = work_of(program, sizes)
        if work.memory > MOST_BYTES or not LEAST_US <= work.us <= MOST_US or not _sensible(program, sizes):
            continue
        off = abs(math.log(work.us / target))
        if best is None or off < best[0]:
            best = (off, sizes)
        if off < 0.1:
            break
    return None if best is None else best[1]


def variants(program: Program, rng: random.Random) -> dict[str, dict[str, int]]:
    """Small and odd sizes. Within one of them no two names have the same number, or they would be taken for one."""
    tables = {"small": _SMALL, "odd1": _ODD, "odd2": _ODD, "odd3": _ODD}
    return {label: _distinct(program.sizes, table, rng) for label, table in tables.items()}


def role(name: str) -> str:
    """The kind of size behind a name: "features" of "features2", "height" of "width"."""
    stem = name.rstrip("0123456789")
    return _ROLES.get(stem, stem)


def _distinct(names: Sequence[str], table: Mapping[str, Sequence[int]], rng: random.Random) -> dict[str, int]:
    taken: dict[str, int] = {}
    for name in names:
        choices = [number for number in table[role(name)] if number not in taken.values()]
        whole = 4 if role(name) in ("channels", "maps") else 1  # channels come in groups of 4
        more = count(max(table[role(name)]) + whole, whole)
        taken[name] = rng.choice(choices or [next(number for number in more if number not in taken.values())])
    return taken


def _sensible(program: Program, sizes: Mapping[str, int]) -> bool:
    """No value above 2^30 numbers, and no output that is a handful of numbers of a sum over nothing."""
    return all(_numel(value.dims, sizes) < 2**30 for value in program.values.values()) and all(
        sizes[name] >= 8 or base(name) in ("rows", "batch", "channels") for name in program.sizes
    )


def _memory(program: Program, sizes: Mapping[str, int]) -> int:
    """Bytes of one evaluation: 2 of weights and inputs, 3 of outputs, 2 of what stands between."""
    width = BYTES[program.dtype]
    values = program.values
    inputs = sum(_numel(value.dims, sizes) for value in program.inputs)
    weights = sum(_numel(dims, sizes) for dims in program.weights)
    outputs = sum(_numel(values[name].dims, sizes) for name in program.outputs)
    between = max((_numel(step.result.dims, sizes) for step in program.steps), default=0)
    return width * (2 * weights + 2 * inputs + 3 * outputs + 2 * 3 * between)


def _numel(dims: Dims, sizes: Mapping[str, int]) -> int:
    return math.prod(size_of(dim, sizes) for dim in dims)
