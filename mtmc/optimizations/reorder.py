"""reorder: the order in which programs take their blocks, and the order of loops."""

from __future__ import annotations

from collections.abc import Iterator

from mtmc.action import Action, make_action
from mtmc.optimizations.schedule_change import Choice, ScheduleChange
from mtmc.optimizations.version import Version
from mtmc.rewrite.graph import power_of_two_above
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.templates import gluon_scaling
from mtmc.rewrite.templates.eviction import KEPT, LIKE_ALL_ELSE, POLICY, policy_of
from mtmc.rewrite.templates.gluon_keys import BACKWARD, FORWARD, why_forward
from mtmc.rewrite.templates.gluon_text import is_gluon
from mtmc.rewrite.templates.product import analyse as analyse_product
from mtmc.rewrite.templates.row_order import IN_ORDER, LOOKED_UP, matrices
from mtmc.rewrite.templates.row_shared import SHARED, pieces_of, why_not_shared
from mtmc.rewrite.templates.rows import Layout, loops, rows_of
from mtmc.rewrite.templates.rowwise import looping, register_warps, sharing
from mtmc.rewrite.templates.softmax_product import analyse
from mtmc.source.sites import Sites

PAGE = """\
# reorder

In which order a program goes through its data, and which programs run at the same time.

## What it does
Rows: a loop in several passes reads the row once a pass; a row that is held in registers is read once. Products:
programs that run together and read the same rows or columns of an operand find them in the L2 cache; grouped order
(some rows of tiles, column by column) makes the set that they read smaller. Convolutions: the sum goes over the
channels at one tap, then at the next (what is read is worked out once a tap and position), or over all taps of one
channel, then of the next (no slice is mostly padding where there are fewer than 16 channels). Depthwise convolutions: a
program that stays in one plane reads each weight once, not once an element.

## When it pays
Rows that fit the registers: 128 elements a thread still do (rows of 4096 held by one warp took 0.187 ms). Softmax of
16384 x 4096 fp32 in three passes, H100: 0.329 ms with 4 warps, 0.258 with 8; held in registers 0.183 with 4. On an
H200, 8 warps took 0.141 and 0.135: its L2 cache kept the rows. Very long rows: the other way, a loop in passes, so
that nothing spills. A loop finds the maximum and the sum of exponentials together (it rescales the sum when the
maximum grows), and mean and deviations together. Where a row is looped over twice, the first loop asks the cache to
keep it (evict_last), the second to let it go (evict_first); for rows of 64 to 256 KiB a program then has 32 warps, so
that few rows are in flight and the second loop still finds them. What is read once can be the last to leave the cache,
too, where as much is written: H200, rows in registers 3% to 7% faster, elementwise work on hundreds of MB 1% to 2%.
fp32 rows of 64 KiB to 4 MiB, a GB in all: programs that wait for each other hold a piece of the row each, so it is read
once. H200, 4096 rows: layer norm of 262144 columns 2.650 ms, in two loops 3.185; softmax of 393216 4.450, 4.786.

Products of few rows: the tensor cores' large tiles (wgmma) have 64 rows. Where the operands change places, the many
columns of the right one are those rows, and the few rows of the left one the columns, of which 8 are enough. fp32 in
three TF32 products: what is split in two on its way lies as tensor cores want it then, if the right operand is [k, n].

Attention: a loop over whole blocks of keys that works out no mask, then one over the keys at the edges. Of causal
attention the last queries have the most keys: programs that take those first leave the short ones to fill the gaps.
In Gluon, scores in bf16 may be scaled and shifted by one instruction each: a tenth less in the loop.

## When it harms
Rows of 16384 elements and more in registers, 64 a thread: one program of 16 warps fills a multiprocessor, which then
waits for memory and computes by turns. H200: group norm of 32768 columns 0.22 ms, in two loops 0.13. Programs that wait
where the cache holds the rows: 256 bf16 rows of 1048576 in 0.731 ms, in two loops 0.458. To keep what was read where
little is written: sums of losses took 5% to 9% longer, a maximum along a dimension 6% less.

Grouped order has gained little and cost more where it was timed: fp16, 8192 cubed, H100: no groups 2.180 ms, groups of
8 2.437, of 32 2.104; tf32x3, 1024 x 8192 x 8192: 2.194, groups of 8 2.156; 2048 x 4096 x 2048: all is in the cache.
"""

GROUPS = (1, 4, 8, 16)
FEW_ROWS = 64
"""Of a product whose operands may change places."""
MAX_REGISTER_ELEMENTS = 32768
"""Of a program: 32 a thread with as many warps as there can be."""


class Reorder(ScheduleChange):
    """The order of programs' blocks and of loops."""

    kind = "reorder"
    page = PAGE
    weight = 0.3
    changes = ("device_ms",)

    def offer(self, version: Version, stage: Stage) -> list[tuple[Choice, str]]:
        """See `ScheduleChange.offer`."""
        name = stage.title
        if stage.template == "matmul":
            offers: list[tuple[Choice, str]] = [
                ({"group_m": group}, f"reorder the {name} kernel's blocks in groups of {group}") for group in GROUPS
            ]
            for order, words in (("mn", "rows first"), ("nm", "columns first")):
                offers.append(({"order": order}, f"reorder the {name} kernel's blocks {words}"))
            body = version.body(stage)
            assert body is not None
            product = analyse_product(version.graph, body)
            split = stage.number("split_k") > 1 and stage.setting("precision") == "tf32x3" and not product.transposed
            if (product.m[0] <= FEW_ROWS or split) and not product.batch:
                for swapped, words in ((1, "the right operand's columns"), (0, "the left operand's rows")):
                    sentence = f"reorder the {name} kernel's product: {words} are the rows of the tensor cores' tiles"
                    offers.append(({"swapped": swapped, "specialized": 0}, sentence))
            return [] if product.reduces else offers
        if stage.template == "convolution":
            offers = [
                ({"group_m": group}, f"reorder the {name} kernel's blocks in groups of {group}") for group in GROUPS
            ]
            for loop, words in (("taps", "the channels at one tap"), ("channels", "all taps of one channel")):
                offers.append(({"loop": loop}, f"reorder the sum of the {name} kernel: {words}, then the next"))
            for swapped, words in ((1, "positions"), (0, "channels")) if "swapped" in dict(stage.schedule) else ():
                sentence = f"reorder the {name} kernel's product: {words} are the rows of the tensor cores' tiles"
                offers.append(({"swapped": swapped}, sentence))
            return offers
        if stage.template == "windows":
            return _planes(version, stage)
        if stage.template == "attention":
            return _keys(version, stage)
        if stage.template == "rowwise":
            return _loops(version, stage)
        return _caching(stage) if stage.template in ("pointwise", "scan") else []

    def sites(self, sites: Sites) -> Iterator[Action]:
        """The blocks of products, the loops of kernels that loop or reduce."""
        for kernel in sites.kernels:
            name = kernel.region.name
            if kernel.dot:
                yield make_action(self.kind, kernel.region, f"reorder the {name} kernel's blocks for the cache")
            elif kernel.loop or kernel.reduction:
                yield make_action(self.kind, kernel.region, f"reorder the {name} kernel's loops")


def _caching(stage: Stage) -> list[tuple[Choice, str]]:
    """How the cache treats what is read once."""
    words = {
        KEPT: "have the cache keep what the {} kernel has read",
        LIKE_ALL_ELSE: "treat what the {} kernel has read like all else",
    }
    present = policy_of(stage) or LIKE_ALL_ELSE
    return [({POLICY: policy}, said.format(stage.title)) for policy, said in words.items() if policy != present]


def _keys(version: Version, stage: Stage) -> list[tuple[Choice, str]]:
    """Which blocks of keys are masked, and which blocks of queries come first."""
    body = version.body(stage)
    assert body is not None
    found, name, schedule = analyse(version.graph, body), stage.title, dict(stage.schedule)
    offers: list[tuple[Choice, str]] = []
    if is_gluon(stage):
        for turns, words in ((1, "one after the other"), (0, "when they can")):
            offers.append(({"turns": turns}, f"let the {name} kernel's groups of warps start products {words}"))
        for rescale, words in (("late", "after the next scores are started"), ("early", "before that")):
            offers.append(({"rescale": rescale}, f"let the {name} kernel scale its sums {words}"))
        if not gluon_scaling.why_apart(found, version.graph.values[found.query].dtype):
            for scaling, words in ((gluon_scaling.JOINED, "at once"), (gluon_scaling.APART, "one after the other")):
                offers.append(({"scaling": scaling}, f"let the {name} kernel scale and shift its scores {words}"))
        if schedule.get("persistent"):
            overlap, words = (
                (0, "after the last one") if schedule.get("overlap") else (1, "before it ends the last one")
            )
            offers.append(({"overlap": overlap}, f"let each program of the {name} kernel begin a block {words}"))
        block = stage.number("block_n")
        if not why_forward(found, block) and (found.causal or found.columns[0] % block):
            for keys, words in ((BACKWARD, "from the last to the first"), (FORWARD, "from the first on")):
                offers.append(({"keys": keys}, f"let the {name} kernel take its keys {words}"))
    elif not found.wide and not schedule.get("specialized"):
        for masks, words in (
            ("edges", "whole blocks of keys without masks, then the others"),
            ("all", "all keys in one"),
        ):
            offers.append(({"masks": masks}, f"reorder the loops of the {name} kernel: {words}"))
    if found.causal and not found.wide:
        for order, words in (("heavy", "those with the most keys first"), ("forward", "from the first query on")):
            offers.append(({"order": order}, f"reorder the {name} kernel's blocks: {words}"))
    return offers


def _planes(version: Version, stage: Stage) -> list[tuple[Choice, str]]:
    """Whether a program stays in one plane: of use where weights belong to planes."""
    body = version.body(stage)
    assert body is not None
    if not any(node.operation == "weighted sum" for node in body.nodes):
        return []
    if stage.setting("loop") == "planes":
        return [({"loop": "flat"}, f"let the programs of the {stage.title} kernel go on from plane to plane")]
    return [({"loop": "planes"}, f"keep each program of the {stage.title} kernel in one plane")]


def _loops(version: Version, stage: Stage) -> list[tuple[Choice, str]]:
    body = version.body(stage)
    assert body is not None
    layout = rows_of(version.graph, body, stage)
    held = [*_held_by_some(version, stage, layout), *_looked_up(version, stage, layout)]
    loop = (looping(version.graph, body, layout), f"loop over each row of the {stage.title} kernel in passes")
    if stage.setting("passes") == SHARED:
        return [loop, *_caching(stage), *held]
    if stage.setting("passes") == "registers":
        if not set(body.stores) & {name for name, place in layout.place.items() if place == "full"}:
            return [loop, *_caching(stage), *_looked_up(version, stage, layout)]
        return [loop, *_caching(stage)]
    elements = power_of_two_above(max(layout.cols, default=1)) * stage.number("block_rows")
    if len(loops(body, layout)) == 1 or stage.number("split") > 1:
        held += _caching(stage)
    if stage.number("split") > 1 or elements > MAX_REGISTER_ELEMENTS:
        return held
    alone: Choice = {"passes": "registers", "block_cols": 0, "num_warps": register_warps(elements)}
    return [(alone, f"hold each row of the {stage.title} kernel in registers"), *held]


def _looked_up(version: Version, stage: Stage, layout: Layout) -> list[tuple[Choice, str]]:
    """Which rows come one behind the other, where indices say which matrix they are of."""
    body = version.body(stage)
    assert body is not None
    if stage.number("split") > 1 or stage.setting("passes") == SHARED or not matrices(version.graph, body, layout):
        return []
    if dict(stage.schedule).get("order") == LOOKED_UP:
        order, words = IN_ORDER, "one matrix that is looked up"
    else:
        order, words = LOOKED_UP, "those of one place in all that is looked up"
    return [({"order": order}, f"reorder the {stage.title} kernel's programs: {words}, then the next")]


def _held_by_some(version: Version, stage: Stage, layout: Layout) -> list[tuple[Choice, str]]:
    """Programs that wait for each other hold pieces of a long row."""
    body = version.body(stage)
    assert body is not None
    if why_not_shared(body, layout):
        return []
    return [
        (
            sharing(piece),
            f"share each row of the {stage.title} kernel among programs that hold {piece} columns and wait for each other",
        )
        for piece in pieces_of(layout, version.hardware.sms)
        if stage.setting("passes") != SHARED or piece != stage.number("block_cols")
    ]
