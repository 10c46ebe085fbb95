"""vectorize: how many elements a program, and how many threads share them."""

from __future__ import annotations

from mtmc.optimizations.settings import Choice, Settings
from mtmc.optimizations.version import Version
from mtmc.rewrite.plan import Stage

PAGE = """\
# vectorize

How many elements a program handles, and how many warps share them: block size and num_warps.

## What it does
Elements over threads is what one thread handles. One fp32 number a thread is loaded 4 bytes at a time, four or more
16 bytes at a time (LDG.128), and with eight two such loads are in flight. The hardware moves the same bytes with a
quarter of the requests.

## When it pays
Streams. gelu(x + bias) of 16384 x 4096 fp32, H100, which takes 0.182 ms at best:

    64 elements, 4 warps 0.635 ms     256, 4 warps 0.194     1024, 4 warps 0.184     4096, 8 warps 0.184
    256 elements, 8 warps 0.265       512, 4 warps 0.183     2048, 4 warps 0.185     8192, 8 warps 0.186

So 4 to 16 elements a thread. Tiles of 128 x 128 of a product want 8 warps: 0.508 ms, with 4 0.855.

## When it harms
- Many elements a thread need registers: 8192 with 4 warps 0.256 ms, with one warp 1.473 (kilobytes of spills a
  thread).
- A row that is held by one program does not care: softmax of rows of 4096 took 0.187 ms with one warp and 0.182 with
  16.
- Loads stay narrow, whatever the block, where Triton does not know that addresses are contiguous and aligned: strides
  that are not multiples of 16, indices that are loaded, a stride in the last dimension.
"""

BLOCKS = {"pointwise": (256, 512, 1024, 2048, 4096), "windows": (128, 256, 512, 1024, 2048)}
WARPS = {
    "pointwise": (2, 4, 8),
    "windows": (2, 4, 8),
    "rowwise": (2, 4, 8, 16),
    "scan": (2, 4, 8, 16),
    "matmul": (4, 8),
    "convolution": (4, 8),
    "attention": (4, 8),
}


def _offer(version: Version, stage: Stage) -> list[tuple[Choice, str]]:
    offers: list[tuple[Choice, str]] = []
    if stage.family in BLOCKS:
        offers += [
            ({"block": block}, f"vectorize the {stage.name} kernel: {block} elements a program")
            for block in BLOCKS[stage.family]
        ]
    for warps in WARPS.get(stage.family, ()):
        offers.append(({"num_warps": warps}, f"vectorize the {stage.name} kernel: {warps} warps a program"))
    return offers


Vectorize = Settings("vectorize", PAGE, _offer)
