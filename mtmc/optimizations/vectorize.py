"""vectorize: how many elements a program, and how many threads share them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from mtmc.action import Action, make_action
from mtmc.optimizations.resources import elements_a_thread
from mtmc.optimizations.schedule_change import Choice, ScheduleChange
from mtmc.optimizations.version import Version
from mtmc.protocols import Observation
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.templates.gluon_text import is_gluon
from mtmc.rewrite.templates.product import analyse, can_transpose
from mtmc.rewrite.templates.window_rows import rows_of_windows
from mtmc.source.sites import Sites

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

So 4 to 16 elements a thread; rows that are held start with 16 (4096 of them with 8 warps). Products of fp32 numbers on
tensor cores read both operands with the inner dimension contiguous. Where the right one is [k, n], every thread
transposes it on its way to shared memory, 4 bytes at a time (32 to 64 narrow stores in the loop where 8 to 16 wide ones
would do): 2048 x 4096 x 2048 on an H200, 0.77 ms, and 0.57 for the same tile of a weight [n, k]. A copy transposed
beforehand costs two passes over that operand; from some 200 rows of the left operand on it is worth it.

Tiles of 128 x 128 of a product want 8 warps: 0.508 ms, with 4 0.855.

## When it harms
- Many elements a thread need registers: 8192 with 4 warps 0.256 ms, with one warp 1.473 (kilobytes of spills a
  thread).
- A row of 4096 that is held by one program does not care: softmax took 0.187 ms with one warp and 0.182 with 16.
- Loads stay narrow, whatever the block, where Triton does not know that addresses are contiguous and aligned: strides
  that are not multiples of 16, indices that are loaded, a stride in the last dimension. Sizes that elements are divided
  by are known at the full shapes for that reason; a weight of each channel is loaded once for a block of its pixels.
"""

BLOCKS = {"pointwise": (256, 512, 1024, 2048, 4096), "windows": (64, 128, 256, 512, 1024)}
WARPS = {
    "pointwise": (2, 4, 8),
    "windows": (2, 4, 8),
    "rowwise": (2, 4, 8, 16, 32),
    "scan": (2, 4, 8, 16),
    "matmul": (4, 8),
    "convolution": (4, 8),
    "attention": (4, 8),
}
EACH = {"pointwise": (4, 16), "windows": (1, 4), "rowwise": (4, 64), "scan": (4, 64)}
"""Elements that a thread may get: from one load of 16 bytes on (of windows, a load at every tap; in each of its rows)."""


class Vectorize(ScheduleChange):
    """Elements and warps a program."""

    kind = "vectorize"
    page = PAGE
    weight = 0.5
    changes = ("registers", "programs")

    def offer(self, version: Version, stage: Stage) -> list[tuple[Choice, str]]:
        """See `ScheduleChange.offer`."""
        offers: list[tuple[Choice, str]] = []
        for block in BLOCKS.get(stage.template, ()):
            offers.append(({"block": block}, f"vectorize the {stage.title} kernel: {block} elements a program"))
        if stage.template == "matmul":
            offers += _right_operand(version, stage)
        for warps in WARPS.get(stage.template, ()) if not is_gluon(stage) else ():
            offers.append(({"num_warps": warps}, f"vectorize the {stage.title} kernel: {warps} warps a program"))
        fewest, most = EACH.get(stage.template, (0, math.inf))
        return [
            (choice, sentence)
            for choice, sentence in offers
            if fewest <= elements_a_thread(version.graph, stage.scheduled(choice)) / rows_of_windows(stage) <= most
        ]

    def sites(self, sites: Sites) -> Iterator[Action]:
        """Kernels that read or write memory."""
        for kernel in sites.kernels:
            if kernel.memory:
                sentence = f"vectorize the {kernel.region.name} kernel: elements and warps a program"
                yield make_action(self.kind, kernel.region, sentence)

    def logit(self, observation: Observation, action: Action, actions: Sequence[Action]) -> float:
        """Four or eight warps."""
        warps = dict(action.params).get("num_warps")
        return 0.0 if warps is None else {4: 0.3, 8: 0.3}.get(int(warps), -0.5)


def _right_operand(version: Version, stage: Stage) -> list[tuple[Choice, str]]:
    """How the right operand of a product lies, where fp32 numbers go to the tensor cores."""
    body = version.body(stage)
    assert body is not None
    if stage.setting("precision") not in ("tf32", "tf32x3"):
        return []
    if not can_transpose(version.graph, body, analyse(version.graph, body)):
        return []
    if dict(stage.schedule).get("right") == "transposed":
        return [({"right": "as_is"}, f"read the right operand of the {stage.title} kernel without a transposed copy")]
    words = f"transpose the right operand of the {stage.title} kernel, so that its inner dimension is contiguous"
    return [({"right": "transposed"}, words)]
