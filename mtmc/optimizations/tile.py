"""tile: how much of the work one program holds at a time."""

from __future__ import annotations

from mtmc.optimizations.settings import Choice, Settings
from mtmc.optimizations.version import Version
from mtmc.rewrite.plan import Stage

PAGE = """\
# tile

How much of the result one program computes, and how large a slice of its operands it reads at a time.

## What it does
A tile of a product of bm x bn reads (bm + bn) / (bm * bn) numbers of the operands per result and step: 128 x 128
reads a quarter of what 32 x 32 reads. A larger tile needs more registers (bm * bn / threads of them hold the sum) and
shared memory (stages * (bm + bn) * bk * bytes of a number at most), and leaves fewer programs. For rows: how many
rows, or columns, a program holds at a time.

## When it pays
Products of large matrices. gelu(linear), 2048 x 4096 x 2048, tf32x3, H100:

    32 x 32 x 32,   4 warps 1.529 ms    64 x 64 x 64,   4 warps 0.507    128 x 64 x 32,  8 warps 0.479
    64 x 64 x 32,   4 warps 0.556       128 x 64 x 32,  4 warps 0.498    128 x 128 x 32, 8 warps 0.508

Transposes: a block of 64 x 64 (0.280 ms) reads and writes whole lines, one of 1 x 1024 does not (0.584). Rows of a
few hundred elements want several rows a program.

## When it harms
- Too large: 128 x 256 with 8 warps took 0.732 ms, 128 x 128 with 4 warps instead of 8 took 0.855: registers.
- Too few programs: for 128 x 8192 x 8192, tiles of 128 x 128 took 0.489 ms, 64 x 64 x 64 took 0.268 (256 programs on
  132 SMs).
- Below 64 rows a product on Hopper and Blackwell is compiled to the older tensor core instruction.
"""

MATMUL_TILES = (
    (32, 64, 32, 4),
    (64, 32, 32, 4),
    (64, 64, 32, 4),
    (64, 64, 64, 4),
    (128, 64, 32, 4),
    (64, 128, 32, 4),
    (128, 128, 32, 8),
    (128, 128, 64, 8),
    (128, 256, 32, 8),
    (256, 128, 32, 8),
    (16, 64, 64, 4),
)
"""Rows and columns of a product's tile, its slice of the inner dimension, and the warps that suit it."""

CONVOLUTION_TILES = (
    (16, 128, 32, 4),
    (16, 256, 32, 4),
    (32, 64, 32, 4),
    (32, 128, 32, 4),
    (32, 256, 32, 8),
    (64, 64, 32, 4),
    (64, 64, 64, 4),
    (64, 128, 16, 4),
    (64, 128, 32, 4),
    (64, 128, 32, 8),
    (64, 256, 32, 8),
    (128, 64, 32, 4),
    (128, 128, 32, 8),
    (128, 128, 64, 8),
    (128, 256, 32, 8),
)
"""Channels and positions of a convolution's tile, its slice of the channels that are summed, and the warps that suit it."""

ATTENTION_TILES = (
    (16, 64, 4),
    (32, 64, 4),
    (64, 32, 4),
    (64, 64, 4),
    (64, 128, 4),
    (128, 32, 4),
    (128, 64, 4),
    (128, 64, 8),
    (128, 128, 8),
)
"""Queries a program of attention has, keys it looks at at a time, and the warps that suit them."""

ROW_BLOCKS = (1, 2, 4, 8, 16, 32)
COLUMN_BLOCKS = (512, 1024, 2048, 4096, 8192)


def _offer(version: Version, stage: Stage) -> list[tuple[Choice, str]]:
    if stage.family == "matmul":
        return [
            (
                {"block_m": m, "block_n": n, "block_k": k, "num_warps": warps},
                f"retile the {stage.name} kernel to {m}x{n} with {k} of the inner dimension at a time",
            )
            for m, n, k, warps in MATMUL_TILES
        ]
    if stage.family == "convolution":
        return [
            (
                {"block_m": m, "block_n": n, "block_k": k, "num_warps": warps},
                f"retile the {stage.name} kernel to {m} channels of {n} positions, {k} summed at a time",
            )
            for m, n, k, warps in CONVOLUTION_TILES
        ]
    if stage.family == "attention":
        return [
            (
                {"block_m": m, "block_n": n, "num_warps": warps},
                f"retile the {stage.name} kernel to {m} queries, {n} keys at a time, {warps} warps",
            )
            for m, n, warps in ATTENTION_TILES
        ]
    if stage.family in ("rowwise", "scan"):
        return _row_offers(stage)
    return []


def _row_offers(stage: Stage) -> list[tuple[Choice, str]]:
    name, offers = stage.name, list[tuple[Choice, str]]()
    offers += [
        ({"block_rows": rows}, f"retile the {name} kernel to {rows} row{'s' * (rows > 1)} a program")
        for rows in ROW_BLOCKS
    ]
    if stage.family == "scan" or stage.setting("passes") == "loop":
        offers += [
            ({"block_cols": cols}, f"retile the {name} kernel to read {cols} columns at a time")
            for cols in COLUMN_BLOCKS
        ]
    return offers


Tile = Settings("tile", PAGE, _offer)
