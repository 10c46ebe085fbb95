"""conv_starts: what a convolution's kernel starts with on a GPU, where that is known better than its template does."""

from __future__ import annotations

from mtmc.rewrite.body import Body
from mtmc.rewrite.graph import Graph, is_one, product
from mtmc.rewrite.plan import Setting, Stage
from mtmc.rewrite.templates.channels_last import is_channels_last
from mtmc.rewrite.templates.conv_kernel import is_spread, product_sizes
from mtmc.rewrite.templates.conv_rounding import ROUNDED
from mtmc.rewrite.templates.positions import Windowed, analyse

CHANNELS_FIRST = {"block_m": 128, "block_n": 128, "block_k": 16, "num_warps": 8, "num_stages": 3, "swapped": 1}
"""Convolutions of at least 128 channels: 76 of KernelBench's level 1 on an H200 7.01 ms, with operands in their places 9.72;
67 1.90 and 2.38 (results/schedules_h200.md)."""
LONG_TILE = {"block_m": 128, "block_n": 256, "block_k": 32, "num_warps": 8, "num_stages": 3, "swapped": 0}
SHORT_TILE = {"block_m": 64, "block_n": 256, "block_k": 16, "num_warps": 4, "num_stages": 3, "swapped": 0}
"""Channels last, H200, milliseconds: 56 by the long tile 1.71, by 128 x 128 1.94; 55 2.65 and 2.66; 63, of sums of 144, by
the short one 4.41, 5.05; 62 and 80, of 64 channels, 1.82 and 1.82, by 64 x 128 1.90 and 1.88."""
BY_CHANNEL: dict[str, Setting] = {"loop": "channels"}
"""All taps of a channel in a row: 55 2.66 ms, tap by tap 2.89; 56 1.94 and 2.15."""
LARGE_IMAGES, SHORT_SUMS, LEAST_CHANNELS, OPERANDS = 2**18, 256, 32, 3
"""Positions of large images, of which wide tiles do best; numbers of a short sum, whose slices are small; channels that fill
less than half a tile; operands of a convolution with a bias."""


def started_convolution(graph: Graph, body: Body, stage: Stage) -> Stage:
    """A convolution of fp32 numbers in one product of TF32; the stage itself where nothing better is known.

    What it reads along positions is what registers hold where channels lie first. Where they lie last, all taps of a channel
    follow each other, and tiles of large images with little behind them are wide.
    """
    found = analyse(graph, body)
    if (
        stage.setting("precision") not in ("tf32", ROUNDED)
        or not _is_plain(found)
        or "swapped" not in dict(stage.schedule)
    ):
        return stage
    rows, inner = product_sizes(graph, found)
    if not is_channels_last(stage):
        return stage.scheduled(CHANNELS_FIRST) if rows[0] >= CHANNELS_FIRST["block_m"] else stage
    large = product((found.node.shape[0], *found.outputs))[0] >= LARGE_IMAGES and len(body.loads) <= OPERANDS
    filling = LEAST_CHANNELS < rows[0] <= SHORT_TILE["block_m"] or rows[0] >= LONG_TILE["block_m"]
    if not (large and filling):
        return stage.scheduled(BY_CHANNEL)
    short = rows[0] < LONG_TILE["block_m"] or inner[0] * product(found.window.size)[0] < SHORT_SUMS
    return stage.scheduled({**BY_CHANNEL, **(SHORT_TILE if short else LONG_TILE)})


def _is_plain(found: Windowed) -> bool:
    """Whether it has several taps and is not transposed, in groups, or reduced over its channels."""
    return (
        found.node.operation != "transposed convolution"
        and not is_spread(found)
        and is_one(found.window.groups)
        and not all(map(is_one, found.window.size))
        and not any(node.kind == "reduce" for node in found.after)
    )
