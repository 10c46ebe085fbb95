"""vectorize: how many elements a program, and how many threads share them."""

from __future__ import annotations

from mtmc.optimizations.settings import Choice, Settings
from mtmc.optimizations.version import Version
from mtmc.rewrite.plan import Stage

PAGE = """\
# vectorize

What it does: sets the elements a program handles and the warps that share them, and so how many bytes each thread loads at
once (16 at best) and how many loads are in flight.

When it pays: streaming kernels want at least 16 bytes a thread and several loads in flight: 1024 to 4096 elements with 4 or
8 warps. Large tiles of a product want 8 warps.
When it harms: too few elements a thread leave loads narrow, too many need registers and leave fewer programs.
"""

BLOCKS = (256, 512, 1024, 2048, 4096)
WARPS = {"pointwise": (2, 4, 8), "rowwise": (2, 4, 8, 16), "matmul": (4, 8)}


def _offer(version: Version, stage: Stage) -> list[tuple[Choice, str]]:
    offers: list[tuple[Choice, str]] = []
    if stage.family == "pointwise":
        offers += [
            ({"block": block}, f"vectorize the {stage.name} kernel: {block} elements a program") for block in BLOCKS
        ]
    for warps in WARPS.get(stage.family, ()):
        offers.append(({"num_warps": warps}, f"vectorize the {stage.name} kernel: {warps} warps a program"))
    return offers


Vectorize = Settings("vectorize", PAGE, _offer)
