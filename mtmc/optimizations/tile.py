"""tile: how much of the work one program holds at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mtmc.action import Action, make_action
from mtmc.optimizations.pipeline import OWN_ROWS
from mtmc.optimizations.resources import elements_a_thread
from mtmc.optimizations.schedule_change import Choice, ScheduleChange, kernel_of
from mtmc.optimizations.starts import WITH_DESCRIPTORS
from mtmc.optimizations.version import Version
from mtmc.protocols import Observation
from mtmc.rewrite.graph import is_one, product
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.templates.channels_last import is_channels_last
from mtmc.rewrite.templates.gluon_text import is_gluon
from mtmc.rewrite.templates.gluon_tiles import GROUP_ROWS
from mtmc.rewrite.templates.pointwise import tile_of
from mtmc.rewrite.templates.positions import analyse as windowed
from mtmc.rewrite.templates.product import analyse
from mtmc.rewrite.templates.product_dispatch import BY_ROWS
from mtmc.rewrite.templates.product_tiles import OWN_WARPS
from mtmc.rewrite.templates.row_order import LOOKED_UP
from mtmc.rewrite.templates.rows import rows_of
from mtmc.rewrite.templates.transposing import transposed
from mtmc.rewrite.templates.window_rows import rows_of_windows, why_apart
from mtmc.source.sites import Sites

PAGE = """\
# tile

How much of the result one program computes, and how large a slice of its operands it reads at a time.

## What it does
A tile of a product of bm x bn reads (bm + bn) / (bm * bn) numbers of the operands per result and step: 128 x 128
reads a quarter of what 32 x 32 reads. A larger tile needs more registers (bm * bn / threads of them hold the sum) and
shared memory (stages * (bm + bn) * bk * bytes of a number at most), and leaves fewer programs. For rows: how many
rows, or columns, a program holds at a time.

Attention with heads wider than 256: a program makes block_v columns of the result and works out all scores of its
rows for them. Heads of 1024 in parts of 256 need the scores four times: 2.5 times the arithmetic of the two products.

## When it pays
Products of large matrices. gelu(linear), 2048 x 4096 x 2048, tf32x3, H100:

    32 x 32 x 32,   4 warps 1.529 ms    64 x 64 x 64,   4 warps 0.507    128 x 64 x 32,  8 warps 0.479
    64 x 64 x 32,   4 warps 0.556       128 x 64 x 32,  4 warps 0.498    128 x 128 x 32, 8 warps 0.508

H200, 3 stages, descriptors: 128 x 128 x 64 with 8 warps 0.37 ms, 128 x 64 x 32 with 4 warps 0.41, 64 x 64 x 32 0.45. A
product starts with the one of the three that makes the fewest turns on the GPU's multiprocessors, weighed so.

Transposes: a block of 64 x 64 (0.280 ms) reads and writes whole lines, one of 1 x 1024 does not (0.584); elementwise
work starts so where an operand lies transposed. Rows of a few hundred elements want several rows a program. Reductions
over other than the last dimension: neighbours in memory are neighbouring rows, 32 of them are a line of 128 bytes. Of
16 columns or fewer one at a time, of 1024 rows: what six experts gave a token 0.036 ms, torch.compile 0.053 (H200).
Windows that overlap (pools, depthwise convolutions): a thread that makes 4 rows of the result reads what they have in
common once. H200, fp32, one row and 4: maximum of 4 x 4 3.562 ms, 1.804; 3 x 3 by weights 0.686, 0.554; 3 x 7 0.668,
0.372.

## When it harms
- Too large: 128 x 256 with 8 warps took 0.732 ms, 128 x 128 with 4 warps instead of 8 took 0.855: registers.
- Too few programs: for 128 x 8192 x 8192, tiles of 128 x 128 took 0.489 ms, 64 x 64 x 64 took 0.268 (256 programs on
  132 SMs).
- Several long rows a program: never faster for rows of 4096 and more (H200, softmax, norms, cross entropy; 2 rows
  within 2%, 4 rows in loops 1.1 to 1.5 times slower).
- A tile by the number of rows ("dispatch"): the launcher takes 16 x 64 up to 16 rows, 64 x 128 up to 128, and the
  kernel's own otherwise. One set of full shapes is timed, so no time shows it; it is for files that are called with
  other numbers of rows, each of which compiles the kernel once more.
- Below 64 rows a product on Hopper and Blackwell is compiled to the older tensor core instruction.
"""

MATMUL_TILES = (
    (32, 32, 64, 2),
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
    (128, 256, 64, 8),
    (256, 128, 64, 8),
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
    (64, 256, 16, 4),
    (64, 256, 32, 8),
    (128, 64, 32, 4),
    (128, 128, 16, 8),
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
    (128, 128, 4),
    (128, 128, 8),
)
"""Queries a program of attention has, keys it looks at at a time, and the warps that suit them."""

GLUON_TILES = ((128, 32), (128, 64), (128, 128), (128, 256), (192, 64), (192, 128), (256, 64))
"""Queries of attention in Gluon, and keys at a time; as many of 64 queries as there are groups of warps."""
GLUON_PRODUCT_TILES = ((128, 256, 64), (128, 256, 32), (128, 128, 64), (128, 128, 128), (128, 64, 64), (128, 64, 128))
"""Rows and columns of a product in Gluon, and columns of a slice. Two products of one operand have so many each."""

WIDE_ATTENTION_TILES = (
    (64, 32, 32, 128, 4),
    (64, 32, 32, 256, 8),
    (64, 64, 32, 256, 8),
    (64, 64, 64, 256, 8),
    (128, 64, 32, 128, 8),
    (128, 64, 64, 128, 8),
    (128, 64, 32, 256, 16),
    (64, 32, 32, 512, 16),
)
"""Of heads that are taken in slices: queries, keys, the slice of their width, columns of values, and warps."""

TRANSPOSING_TILES = ((32, 32), (32, 64), (64, 32), (64, 64), (32, 128), (128, 32))
"""Of elementwise work with an operand that lies transposed: elements across, along the result's neighbours."""
ROW_BLOCKS = (1, 2, 4, 8, 16, 32)
COLUMN_BLOCKS = (512, 1024, 2048, 4096, 8192)
WINDOW_ROWS = (2, 4, 8, 16)
INTERLEAVED_ROWS = (16, 32, 64, 128, 256, 512, 1024)
INTERLEAVED_COLUMNS = (1, 16, 32, 64, 128)
TILE_LOGIT: dict[tuple[int, ...], float] = {
    (128, 128, 32): 1.2,
    (128, 64, 32): 1.2,
    (64, 128, 32): 0.6,
    (128, 256, 32): 0.3,
    (256, 128, 32): 0.3,
    (64, 64, 64): 0.3,
    (128, 128, 64): 0.2,
}
"""Tiles of a product that did well on H100-class GPUs (see results/), as logit."""
CONVOLUTION_LOGIT = {
    (128, 256, 32): 1.2,
    (64, 256, 16): 1.2,
    (128, 128, 16): 0.6,
    (128, 128, 32): 0.6,
    (64, 128, 32): 0.3,
}
"""The same of a convolution: of six in fp32 on an H200 each is the fastest, or within 5% of it, for one or more."""
DISPATCH_LOGIT = -2.0
"""Of a tile by the number of rows: it is no faster at the shapes that are timed."""
MOST_AT_ONCE, MOST_OF_MATRICES = 8192, 32768
"""Elements of several rows that a program has at once; more has never paid. And where rows are those of matrices that are
looked up: they begin with up to 16384."""


class Tile(ScheduleChange):
    """How much of the work one program holds at a time."""

    kind = "tile"
    page = PAGE
    weight = 1.2
    changes = ("programs", "registers", "shared_memory", "occupancy")

    def offer(self, version: Version, stage: Stage) -> list[tuple[Choice, str]]:
        """See `ScheduleChange.offer`."""
        special = bool(dict(stage.schedule).get("specialized"))
        if stage.template == "matmul" and is_gluon(stage):
            return [
                (
                    {"block_m": m, "block_n": n, "block_k": k},
                    f"retile the {stage.title} kernel to {m // GROUP_ROWS} groups of 64 rows, {n} columns, {k} of "
                    "the inner dimension at a time",
                )
                for m, n, k in GLUON_PRODUCT_TILES
            ]
        if stage.template == "matmul":
            return _by_rows(version, stage) + [
                (
                    {"block_m": m, "block_n": n, "block_k": k, "num_warps": OWN_WARPS if special else warps},
                    f"retile the {stage.title} kernel to {m}x{n} with {k} of the inner dimension at a time",
                )
                for m, n, k, warps in MATMUL_TILES
                if not special or m == OWN_ROWS
            ]
        if stage.template == "convolution":
            return [
                (
                    {"block_m": m, "block_n": n, "block_k": k, "num_warps": warps},
                    f"retile the {stage.title} kernel to {m} channels of {n} positions, {k} summed at a time",
                )
                for m, n, k, warps in CONVOLUTION_TILES
            ]
        if stage.template == "attention" and "block_v" in dict(stage.schedule):
            return [
                (
                    {"block_m": m, "block_n": n, "block_k": k, "block_v": v, "num_warps": warps},
                    f"retile the {stage.title} kernel to {m} queries, {n} keys and {v} columns of values at a time, {k} of "
                    f"the heads' width at a time, {warps} warps",
                )
                for m, n, k, v, warps in WIDE_ATTENTION_TILES
            ]
        if is_gluon(stage):
            return [
                (
                    {"block_m": m, "block_n": n},
                    f"retile the {stage.title} kernel to {m // GROUP_ROWS} groups of 64 queries, {n} keys at a time",
                )
                for m, n in GLUON_TILES
            ]
        if stage.template == "attention":
            return [
                (
                    {"block_m": m, "block_n": n, "num_warps": warps},
                    f"retile the {stage.title} kernel to {m} queries, {n} keys at a time, {warps} warps",
                )
                for m, n, warps in ATTENTION_TILES
                if not special or (m, warps) == (OWN_ROWS, OWN_WARPS)
            ]
        if stage.template in ("rowwise", "scan"):
            return _row_offers(version, stage)
        if stage.template == "windows":
            return _window_rows(version, stage)
        return _transposing_offers(version, stage) if stage.template == "pointwise" else []

    def sites(self, sites: Sites) -> Iterator[Action]:
        """Kernels that go block by block."""
        for kernel in sites.kernels:
            if kernel.blocks:
                yield make_action(self.kind, kernel.region, f"retile the {kernel.region.name} kernel")

    def logit(self, observation: Observation, action: Action, actions: Sequence[Action]) -> float:
        """How well a product's tile does; of rows and attention nothing is known beforehand."""
        if "dispatch" in dict(action.params):
            return DISPATCH_LOGIT
        tile = [dict(action.params).get(name) for name in ("block_m", "block_n", "block_k")]
        kernel = kernel_of(observation, action)
        known = CONVOLUTION_LOGIT if kernel is not None and kernel.template == "convolution" else TILE_LOGIT
        return 0.0 if tile[-1] is None else known.get(tuple(map(int, tile)), -1.0)  # type: ignore[arg-type]


def _by_rows(version: Version, stage: Stage) -> list[tuple[Choice, str]]:
    """A tile for few rows and one for some beside the kernel's own: products of 16 or 8 bits wait for memory then."""
    body, now = version.body(stage), dict(stage.schedule).get("dispatch", "")
    found = None if body is None else analyse(version.graph, body)
    short = found is not None and found.short and len(set(found.m)) > 1
    if not short or version.hardware.target not in WITH_DESCRIPTORS:
        return []
    words = "by the number of rows at run time" if not now else "as one for all numbers of rows"
    return [({"dispatch": "" if now else BY_ROWS}, f"take the tile of the {stage.title} kernel {words}")]


def _row_offers(version: Version, stage: Stage) -> list[tuple[Choice, str]]:
    """Rows and columns that a program has at a time: of long rows one or two, of interleaved ones whole lines of memory."""
    name, offers = stage.title, list[tuple[Choice, str]]()
    loops = stage.template == "scan" or stage.setting("passes") == "loop"
    interleaved = _interleaved(version, stage)
    most = MOST_OF_MATRICES if dict(stage.schedule).get("order") == LOOKED_UP else MOST_AT_ONCE
    for rows in INTERLEAVED_ROWS if interleaved else ROW_BLOCKS:
        changed = stage.scheduled({"block_rows": rows})
        at_once = elements_a_thread(version.graph, changed) * 32 * stage.number("num_warps")
        if rows == 1 or at_once <= most:
            words = f"retile the {name} kernel to {rows} row{'s' * (rows > 1)} a program"
            offers.append(({"block_rows": rows}, words))
    for cols in (INTERLEAVED_COLUMNS if interleaved else COLUMN_BLOCKS) if loops else ():
        offers.append(({"block_cols": cols}, f"retile the {name} kernel to read {cols} columns at a time"))
    return offers


def _transposing_offers(version: Version, stage: Stage) -> list[tuple[Choice, str]]:
    """Tiles for elementwise work of which an operand lies transposed, or none: then it goes by the order of its result."""
    body = version.body(stage)
    if body is None or is_channels_last(stage) or transposed(version.graph, body) is None:
        return []
    offers: list[tuple[Choice, str]] = [
        ({"tile": across, "block": across * along}, f"retile the {stage.title} kernel to {across} x {along} elements")
        for across, along in TRANSPOSING_TILES
    ]
    if tile_of(stage):
        offers.append(({"tile": 0, "block": 1024}, f"retile the {stage.title} kernel to go by the order of its result"))
    return offers


def _window_rows(version: Version, stage: Stage) -> list[tuple[Choice, str]]:
    """Rows that a thread of a pool or a depthwise convolution makes one above the other, where its windows overlap."""
    body, now = version.body(stage), rows_of_windows(stage)
    assert body is not None
    found, name = windowed(version.graph, body), stage.title
    offers: list[tuple[Choice, str]] = [
        ({"rows": rows}, f"make {rows} rows in each thread of the {name} kernel: their windows have rows in common")
        for rows in WINDOW_ROWS
        if not why_apart(found, rows) and rows < 2 * found.outputs[-2][0]
    ]
    return [*offers, ({"rows": 1}, f"make one row in each thread of the {name} kernel")] if now > 1 else offers


def _interleaved(version: Version, stage: Stage) -> bool:
    """Whether neighbours in memory belong to neighbouring rows: a reduction or scan over other than the last dimension."""
    body = version.body(stage)
    assert body is not None
    if stage.template == "rowwise":
        return not is_one(rows_of(version.graph, body, stage).inner)
    scan = next(node for node in body.nodes if node.kind == "scan")
    return not is_one(product(scan.shape[scan.dims[0] + 1 :]))
