"""reorder: the order in which programs take their blocks, and the order of loops."""

from __future__ import annotations

from mtmc.optimizations.settings import Choice, Settings
from mtmc.optimizations.version import Version
from mtmc.rewrite.families.rowwise import lay_out
from mtmc.rewrite.graph import is_one
from mtmc.rewrite.plan import Stage

PAGE = """\
# reorder

In which order a program goes through its data, and which programs run at the same time.

## What it does
Rows: a walk in several passes reads the row once a pass; a row that is held in registers is read once. Products:
programs that run together and read the same rows or columns of an operand find them in the L2 cache; grouped order
(some rows of tiles, column by column) makes the set that they read smaller. Convolutions: the sum goes over the
channels at one tap, then at the next (what is read is worked out once a tap and position), or over all taps of one
channel, then of the next (no slice is mostly padding where there are fewer than 16 channels).

## When it pays
Rows that fit the registers: 128 elements a thread still do (rows of 4096 held by one warp took 0.187 ms). Softmax of
16384 x 4096 fp32 in three passes, H100: 0.329 ms with 4 warps, 0.258 with 8; held in registers 0.183 with 4. On an
H200, 8 warps took 0.141 and 0.135: its L2 cache kept the rows. Very long rows: the other way, a walk in passes, so
that nothing spills. One pass can find maximum and sum together (rescale the sum when the maximum grows).

## When it harms
Grouped order has gained little and cost more where it was timed:
- fp16, 8192 cubed, 128 x 128 tiles, H100: no groups 2.180 ms, groups of 8 2.437, of 32 2.104 (H200: 2.225, 2.466,
  2.370).
- tf32x3, 1024 x 8192 x 8192, 64 x 64 tiles: no groups 2.194 ms, groups of 8 2.156 (H200: 2.288, 2.176).
- 2048 x 4096 x 2048: no difference (0.497, 0.498): everything is in the cache.
Caches smaller than those 50 and 60 MiB should gain more; that was not measured.
"""

GROUPS = (1, 4, 8, 16)


def _offer(version: Version, stage: Stage) -> list[tuple[Choice, str]]:
    name = stage.name
    if stage.family == "matmul":
        offers: list[tuple[Choice, str]] = [
            ({"group_m": group}, f"reorder the {name} kernel's blocks in groups of {group}") for group in GROUPS
        ]
        for order, words in (("mn", "rows first"), ("nm", "columns first")):
            offers.append(({"order": order}, f"reorder the {name} kernel's blocks {words}"))
        body = version.body(stage)
        reduces = body is not None and any(node.kind == "reduce" for node in body.nodes)
        return [] if reduces else offers
    if stage.family == "convolution":
        offers = [({"group_m": group}, f"reorder the {name} kernel's blocks in groups of {group}") for group in GROUPS]
        for walk, words in (("taps", "the channels at one tap"), ("channels", "all taps of one channel")):
            offers.append(({"walk": walk}, f"reorder the sum of the {name} kernel: {words}, then the next"))
        return offers
    if stage.family == "rowwise":
        return _loops(version, stage)
    return []


def _loops(version: Version, stage: Stage) -> list[tuple[Choice, str]]:
    body = version.body(stage)
    assert body is not None
    layout = lay_out(version.graph, body)
    inner = 1 if is_one(layout.inner) else 32
    if stage.setting("passes") == "loop":
        words = f"hold each row of the {stage.name} kernel in registers"
        return [({"passes": "registers", "block_cols": 0}, words)] if stage.number("split") == 1 else []
    block = max(32, min(4096 // inner, 1024))
    return [({"passes": "loop", "block_cols": block}, f"walk over each row of the {stage.name} kernel in passes")]


Reorder = Settings("reorder", PAGE, _offer)
