"""persist: as many programs as the GPU runs at once, each of which makes several tiles of a product."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mtmc.action import Action
from mtmc.optimizations.schedule_change import Choice, ScheduleChange
from mtmc.optimizations.version import Version
from mtmc.protocols import Observation
from mtmc.rewrite.graph import product
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.templates import positions, softmax_product
from mtmc.rewrite.templates.conv_kernel import product_sizes
from mtmc.rewrite.templates.gluon_text import is_gluon
from mtmc.rewrite.templates.product import analyse, tiles_of
from mtmc.rewrite.templates.product_symmetric import SETTING as SYMMETRIC

PAGE = """\
# persist

A product's tiles go to as many programs as the GPU runs at once; each makes some of them, or shares of some.

## What it does
One program for each tile, 144 of them on 132 SMs: the last 12 tiles take as long as the first 132. Persistent programs
take every 132nd tile: no program starts late, and the compiler may load a tile's first slices while the last one is
stored; the last tiles are as uneven as before. Stream-K shares those out: when all programs have made as many whole
tiles, the slices of the tiles that are left are dealt out evenly, parts go to a buffer of two tiles a program, and a
second kernel adds each tile's parts up in a fixed order, so results are the same every time.
Attention in Gluon: the loading warp is ahead, so a block's first keys come while the last one's result is written;
heads whose keys and values fit 32 MiB together are worked on together. Causal: a program makes pairs of blocks of two
heads, one with many keys and one with few, all pairs alike; what is left for the last rounds goes block by block.
`reorder` can make such a program's blocks one pipeline: the next block's first scores start before the last sum ends,
and its first softmax overlaps with that sum, as in the other steps. The next queries take as much shared memory
again. Of 4096 causal queries (heads of 128, H100) pairs gain 5%, the pipeline 2%, sums that are rescaled late 5% more.

## When it pays
Persistent: many tiles of little depth, whose starts and stores weigh most. Stream-K: few large tiles and a long inner
dimension, where the last wave is mostly empty: 144 tiles on 132 SMs keep 55% of them busy. An elementwise kernel of
16384 x 4096 gained nothing from persistent programs (0.19 ms against 0.18). Products of this kind have not been timed
here: what stream-K gains is what the idle SMs of the last wave say, less the bytes of the parts, twice, and a launch.

## When it harms
- Fewer tiles than SMs: nothing is left for a second turn. There `split` (or stream-K, which is the same then).
- Many waves: of ten, the last one being half empty costs a twentieth.
- Registers: the loop over tiles keeps its own counters.
- Estimates see persistent programs too slow: they count what is done once a tile in every turn of its loop.
"""

WELL_FILLED = 0.8
"""Part of the places for programs that have one, all waves together, below which the last tiles are worth sharing."""
FEWEST_SLICES = 4
"""Of the inner dimension for a program's share of the tiles that are left: a shorter one is not worth its part's bytes."""


class Persist(ScheduleChange):
    """As many programs as the GPU runs at once."""

    kind = "persist"
    page = PAGE
    weight = 0.3
    changes = ("programs",)

    def offer(self, version: Version, stage: Stage) -> list[tuple[Choice, str]]:
        """See `ScheduleChange.offer`."""
        tiles, slices = _tiles(version, stage)
        offers: list[tuple[Choice, str]] = []
        for each in (1,) if is_gluon(stage) else (1, 2):
            programs = each * version.hardware.sms
            if tiles > programs:
                words = f"make the {stage.title} kernel persistent: {programs} programs, one tile after the other"
                only: Choice = {} if is_gluon(stage) else {"stream_k": 0}
                offers.append(({"persistent": programs, **only}, words))
            if tiles % programs * slices >= FEWEST_SLICES * programs:
                words = f"share the {stage.title} kernel's last tiles among {programs} programs by slices (stream-K)"
                offers.append(({"persistent": 0, "stream_k": programs}, words))
        if any(dict(stage.schedule).get(name) for name in ("persistent", "stream_k")):
            alone: Choice = {"persistent": 0} if is_gluon(stage) else {"persistent": 0, "stream_k": 0}
            if dict(stage.schedule).get("overlap"):
                alone = {**alone, "overlap": 0}
            offers.append((alone, f"give each tile of the {stage.title} kernel a program again"))
        return offers

    def logit(self, observation: Observation, action: Action, actions: Sequence[Action]) -> float:
        """Sharing the last tiles pays where they leave the chip half empty."""
        programs, shares = observation.outcome.metrics.get("programs"), int(dict(action.params).get("stream_k", 0))
        if not programs or not shares:
            return 0.0
        waves = programs / shares
        return 1.5 if waves / math.ceil(waves) < WELL_FILLED else -1.0


def _tiles(version: Version, stage: Stage) -> tuple[int, int]:
    """Tiles that a kernel makes at the full shapes, 0 where they cannot be dealt out, and slices of each that may be."""
    body = version.body(stage)
    if body is not None and is_gluon(stage) and stage.template == "attention":
        attention = softmax_product.analyse(version.graph, body)
        return product(attention.batch)[0] * -(-attention.rows[0] // stage.number("block_m")), 0
    if body is None or stage.template not in ("matmul", "convolution"):
        return 0, 0
    if stage.template == "convolution":
        windowed = positions.analyse(version.graph, body)
        rows, _ = product_sizes(version.graph, windowed)
        columns = product((windowed.node.shape[0], *windowed.outputs))
        return -(-rows[0] // stage.number("block_m")) * -(-columns[0] // stage.number("block_n")), 0
    found = analyse(version.graph, body)
    if found.reduces:
        return 0, 0
    if dict(stage.schedule).get(SYMMETRIC):
        m = -(-found.m[0] // stage.number("block_m"))
        return (product(found.batch)[0] if found.batch else 1) * (m * (m + 1) // 2), 0
    slices = 0 if found.batch else -(-found.k[0] // stage.number("block_k"))
    return tiles_of(found, stage.number("block_m"), stage.number("block_n")), slices
