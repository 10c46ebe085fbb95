"""tile: how much of the work one program holds at a time."""

from __future__ import annotations

from mtmc.optimizations.settings import Choice, Settings
from mtmc.optimizations.version import Version
from mtmc.rewrite.plan import Stage

PAGE = """\
# tile

What it does: changes the block of the result that one program computes, and the slice it reads at a time. A larger tile
reads each operand fewer times (a 128x128 tile of a product reads half of what 64x64 tiles read) and needs more registers
and shared memory; it also leaves fewer programs.

When it pays: products of large matrices want 128x128 or 128x64 with 8 warps; rows of a few hundred elements want several
rows a program; rows too long for registers want a loop over blocks of columns.
When it harms: when there are fewer programs than multiprocessors, or the tile no longer fits and registers spill.
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
    if stage.family == "rowwise":
        return _row_offers(stage)
    return []


def _row_offers(stage: Stage) -> list[tuple[Choice, str]]:
    name, offers = stage.name, list[tuple[Choice, str]]()
    offers += [
        ({"block_rows": rows}, f"retile the {name} kernel to {rows} row{'s' * (rows > 1)} a program")
        for rows in ROW_BLOCKS
    ]
    if stage.setting("passes") == "loop":
        offers += [
            ({"block_cols": cols}, f"retile the {name} kernel to read {cols} columns at a time")
            for cols in COLUMN_BLOCKS
        ]
    return offers


Tile = Settings("tile", PAGE, _offer)
