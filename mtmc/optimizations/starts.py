"""starts: the schedule that a product's kernel starts with on a GPU, where that is known better than its template does.

A search has some dozens of evaluations. From tiles of 64 x 64 it takes four of them in a row to come to the tile that
serves large products best, and three of the steps gain little by themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mtmc.hardware import Hardware
from mtmc.optimizations.conv_starts import started_convolution
from mtmc.optimizations.memory_starts import kept, of_rows
from mtmc.optimizations.resources import shared_bytes
from mtmc.rewrite.body import Body
from mtmc.rewrite.graph import Graph, power_of_two_above, product
from mtmc.rewrite.operators.attention import CAUSAL
from mtmc.rewrite.plan import Setting, Stage
from mtmc.rewrite.templates import gluon_product, gluon_scaling, softmax_product
from mtmc.rewrite.templates.attention import FEW_ROWS
from mtmc.rewrite.templates.gluon_product_kernel import MOST_COLUMNS, ROWS
from mtmc.rewrite.templates.gluon_text import LANGUAGE
from mtmc.rewrite.templates.product import Product, analyse, describable, tiles_of


@dataclass(frozen=True)
class _Tile:
    """A product's tile: its sizes, warps and stages, how many fit a multiprocessor, and how fast it is among them."""

    m: int
    n: int
    k: int
    warps: int
    stages: int
    resident: int
    speed: float


_TILES = (_Tile(128, 128, 64, 8, 3, 1, 1.0), _Tile(128, 64, 32, 4, 3, 2, 0.9), _Tile(64, 64, 32, 4, 3, 3, 0.83))
"""linear, 2048 x 4096 x 2048, fp32 in three TF32 products, on an H200: 0.371, 0.413 and 0.445 ms."""
_HALVES = (_Tile(128, 256, 64, 8, 3, 1, 1.0), _Tile(128, 128, 64, 8, 3, 1, 0.85), _Tile(128, 64, 64, 4, 4, 2, 0.7),
           _Tile(64, 64, 64, 4, 4, 3, 0.55))  # fmt: skip
"""fp16 and bf16, whose operands and results have descriptors. The largest, by persistent programs that write their results
in two parts, has 1.00x of the speed of cuBLAS over six products of 4096 to 14336 on an H200, 0.99x at worst; the best of
some ten schedules of each has 1.01x (results/hopper_h200.md). The speeds of the others are guesses: what a
multiprocessor's tensor cores get of what shared memory delivers falls with the tile's sides. Products of 8 bits get the same
tiles with twice the inner dimension, which are as many bytes; they have not been timed."""
TRITON_ATTENTION: dict[str, Setting] = {"block_m": 64, "block_n": 64, "num_warps": 4, "num_stages": 3}
"""Attention of halves: on an H100 0.815x of cuDNN's speed over six shapes in bf16 (heads of 64 and 128, full, causal,
grouped); the best of 18 schedules of each has 0.835x (results/hopper_attention.md). Heads of 128 with values of 256 on an
H200: 0.123 ms, with 32 keys at a time and two stages 0.148; of six blocks more no schedule that was tried is 2% faster."""
TRITON_PRODUCT: dict[str, Setting] = {
    "block_m": 128, "block_n": 128, "block_k": 64, "num_warps": 8, "num_stages": 3, "operands": "descriptors",
    "results": "descriptors", "epilogue": 1,
}  # fmt: skip
"""What a product in Gluon goes back to: a tile that two products fit, too."""
GLUON_WIDTHS = (64, 128)
"""Heads of which attention starts in Gluon where a GPU evaluates: those that were timed."""
LEAST_ROWS = 128
"""Of a head's queries: those of one program."""
_FEW = _Tile(16, 64, 128, 4, 4, 2, 1.0)
"""For at most 16 rows, which wait for the right operand: some 16 KiB of it in each of four stages and two programs."""
_NARROW = (_FEW, _Tile(16, 32, 256, 4, 3, 2, 1.0), _Tile(16, 16, 512, 4, 3, 2, 1.0))
"""The same for fewer columns: as many bytes of the right operand in a stage, so as much on its way. In bf16 on an H100 the
last one has 1.02x and 1.06x of the fastest library's speed at 16 x 14336 x 4096 and 1 x 4096 x 4096, within 1% of the best
schedule; at 16 x 4096 x 14336 the first one is (results/hopper_decode.md)."""
_SOME = _Tile(64, 128, 64, 4, 4, 2, 1.0)
"""For at most 64 rows and many columns, which wait for the right operand, too. Each block of columns reads the rows again,
by way of the L2 cache: with 64 columns as many bytes as of the right operand. 64 x 2304 x 256128 in bf16 with a tanh behind
took 0.48 ms on an H200 with tiles of 64 x 64, the library's product alone 0.31."""
_LONG = _Tile(128, 128, 32, 8, 3, 1, 1.0)
"""For sums so long that programs share them, of fp32 numbers in three TF32 products. 256 x 524288 x 256 on an H200: 0.96 ms
by 33 programs a tile, one for each multiprocessor in all, with the right operand's columns as rows of the tensor cores'
tiles, so that what is split in two lies as it is needed; tiles of 128 x 64 1.03, with the operands in their places 1.11 and
more (results/schedules_h200.md). With descriptors, by the evaluator's clock, 0.94, and 0.99 without."""
_SHORT = {32: _Tile(32, 64, 32, 2, 2, 4, 1.0), 64: _Tile(64, 64, 32, 4, 3, 3, 1.0)}
"""For sums of so many fp32 numbers at most and large results, which wait for memory. 32768 x 32 x 32768 on an H200: 1.77 ms
by persistent programs that read the right operand as it is, 1.98 by tiles of 64 x 64 of a transposed copy; with 64 numbers
2.56 of such a copy, 3.04 and more without."""
LEAST_SHARE = 2048
"""Of a long sum, for each program."""
_LARGE = 64
"""Tiles of 64 x 64 for each multiprocessor, from which on a result is large."""
_BUSY = 1.5
"""Programs for each multiprocessor from which on all have some: 224 for 132 did well, and 128 worse than 256."""
_SEVERAL = _Tile(128, 64, 64, 8, 3, 1, 1.0)
"""For three products of one operand, of which larger tiles do not fit a thread's registers; two take 171 of 255 with the
largest of the others. Not timed."""
WITH_DESCRIPTORS = ("sm_90", "sm_100")
"""Targets with a tensor memory accelerator."""
GROUP = 128
"""Neighbours along the inner dimension that mostly have one scale: a slice of a product of 8-bit numbers lies in one."""
GROUP_ROWS, WIDE_TILE = 128, 256
"""Rows of a tile of groups that have as many on average, and columns of one that reads as much as two products' tiles."""
LEAST_INNER = 256
"""Of a product that fills the stages of these tiles."""


def started(graph: Graph, body: Body, stage: Stage, hardware: Hardware) -> Stage:
    """A stage with the tile that suits its sizes at the full shapes; the stage itself where nothing better is known."""
    if stage.template == "attention":
        return _attention(graph, body, stage, hardware)
    if stage.template == "rowwise":
        return of_rows(graph, body, stage, hardware)
    if stage.template in ("pointwise", "scan"):
        return kept(graph, body, stage, hardware)
    if hardware.target not in WITH_DESCRIPTORS:
        return stage
    if stage.template == "convolution":
        return started_convolution(graph, body, stage)
    if stage.template != "matmul":
        return stage
    found = analyse(graph, body)
    if stage.setting("precision") not in ("tf32x3", "input"):
        return stage
    if found.k[0] < LEAST_INNER:
        return _of_short_sums(graph, found, stage, hardware)
    described = describable(graph, found, transposed_copy=dict(stage.schedule).get("right") == "transposed")
    short = found.short and not found.reduces
    halves = described and short
    if found.offsets:
        return _of_groups(graph, found, stage, hardware) if halves else stage
    few = short and _few(found) and not found.whole_numbers
    if stage.number("split_k") > 1 and not (few and described):
        return _of_long_sums(found, stage, hardware, described)
    tile = known = _FEW if few else _tile(found, hardware, halves)
    split = stage.number("split_k")
    if few and described:
        tile, split = _narrow(found, hardware.sms)
    if found.of_8_bits:
        tile = replace(tile, k=2 * tile.k)
    across = max(16, min(tile.n, power_of_two_above(found.n[0])))  # no wider than the matrix
    blocks = {"block_m": tile.m, "block_n": across, "block_k": tile.k}
    chosen: dict[str, Setting] = {**blocks, "num_warps": tile.warps, "num_stages": tile.stages}
    if found.reduces:
        chosen["split_n"] = _shares(found, tile, hardware.sms)
    if described:
        chosen |= {"operands": "descriptors", **({"split_k": split} if few else {})}
    if found.scales:
        chosen["block_k"] = min(tile.k, GROUP)
    if halves and known == _HALVES[0]:
        turns = {"persistent": hardware.sms} if _tiles(found, tile) > hardware.sms else {}
        ends = not found.batch or found.m[0] % tile.m == 0
        chosen |= {**({"results": "descriptors"} if ends else {}), **({"epilogue": 2} if turns else {}), **turns}
    for stages in range(tile.stages, 1, -1):  # a left operand that several loads make takes as many tiles a stage
        better = stage.scheduled({**chosen, "num_stages": stages})
        if shared_bytes(graph, better) <= hardware.shared_per_block:
            return better
    return stage


def _of_groups(graph: Graph, found: Product, stage: Stage, hardware: Hardware) -> Stage:
    """Products of groups of rows, whose operands have descriptors: where groups fill tiles of 128 rows, one product has 256
    columns at a time, as two of the same rows have."""
    wide = stage.number("block_m") == GROUP_ROWS and len(found.factors) == 1 and found.n[0] >= 2 * WIDE_TILE
    for stages in (4, 3, 2):
        chosen: dict[str, Setting] = {"operands": "descriptors", "num_stages": stages}
        better = stage.scheduled(chosen | ({"block_n": WIDE_TILE} if wide else {}))
        if shared_bytes(graph, better) <= hardware.shared_per_block:
            return better
    return stage


def _of_long_sums(found: Product, stage: Stage, hardware: Hardware, described: bool) -> Stage:
    """A product of which several programs share each sum, where tiles as large as the result's sides fill the chip once."""
    tile, sides = _LONG, min(found.m[0], found.n[0])
    split = min(hardware.sms // _tiles(found, tile), found.k[0] // LEAST_SHARE)
    plain = not (found.batch or found.prologue or found.before)
    if stage.setting("precision") != "tf32x3" or sides < tile.m or not plain or split < 2:
        return stage
    chosen: dict[str, Setting] = {"block_m": tile.m, "block_n": tile.n, "block_k": tile.k, "num_warps": tile.warps}
    chosen |= {"num_stages": tile.stages, "split_k": split, "swapped": int(not found.transposed)}
    return stage.scheduled({**chosen, **({"operands": "descriptors"} if described else {})})


def _of_short_sums(graph: Graph, found: Product, stage: Stage, hardware: Hardware) -> Stage:
    """A product of few columns by few rows, whose result is large."""
    tile = next((tile for inner, tile in _SHORT.items() if found.k[0] <= inner), None)
    large = _tiles(found, _TILES[-1]) >= _LARGE * hardware.sms
    if tile is None or not large or stage.setting("precision") != "tf32x3" or found.reduces or len(found.factors) > 1:
        return stage
    turns: dict[str, Setting] = {}
    if tile.k >= found.k[0]:
        turns = {"persistent": tile.resident * hardware.sms, "right": "as_is"}
    if not describable(graph, found, transposed_copy=not turns and dict(stage.schedule).get("right") == "transposed"):
        return stage
    chosen: dict[str, Setting] = {"block_m": tile.m, "block_n": tile.n, "block_k": tile.k, "num_warps": tile.warps}
    return stage.scheduled({**chosen, "num_stages": tile.stages, "operands": "descriptors", **turns})


def _attention(graph: Graph, body: Body, stage: Stage, hardware: Hardware) -> Stage:
    found = softmax_product.analyse(graph, body)
    halves = graph.values[found.query].dtype in ("float16", "bfloat16")
    if hardware.target not in WITH_DESCRIPTORS or not halves or found.wide or found.rows[0] <= FEW_ROWS:
        return stage
    better = stage.scheduled(TRITON_ATTENTION)
    return better if shared_bytes(graph, better) <= hardware.shared_per_block else stage


def specialized(graph: Graph, body: Body, stage: Stage, hardware: Hardware) -> Stage:
    """An attention, or two products of one operand, in Gluon where it does better than Triton's; the stage itself elsewhere.
    Only a GPU can evaluate it."""
    if hardware.target != "sm_90":
        return stage
    if stage.template == "matmul":
        return _pair_in_gluon(graph, body, stage, hardware)
    if stage.template != "attention":
        return stage
    found = softmax_product.analyse(graph, body)
    halves = graph.values[found.query].dtype in ("float16", "bfloat16")
    if not halves or found.wide or found.rows[0] < LEAST_ROWS or found.width[0] not in GLUON_WIDTHS:
        return stage
    better = stage.scheduled({**gluon_start(graph, found, hardware.sms), "language": LANGUAGE})
    return better if shared_bytes(graph, better) <= hardware.shared_per_block else stage


def _pair_in_gluon(graph: Graph, body: Body, stage: Stage, hardware: Hardware) -> Stage:
    """Two large products of one operand in Gluon; the stage itself where there is another number of them.

    4096 x 4096 x 14336 in bf16 with a gate, H200: 1.380 ms, Triton's best of four schedules 1.488, torch.compile 1.441. One
    product gains 1%, and with a GELU behind it loses 3% (results/hopper_h200.md).
    """
    found = analyse(graph, body)
    large = found.m[0] >= LEAST_ROWS and found.n[0] >= WIDE_TILE and _tiles(found, _HALVES[1]) >= hardware.sms
    if len(found.factors) != 2 or not large or gluon_product.why_not(graph, body, found):
        return stage
    better = stage.scheduled({**gluon_product_start(found, stage, hardware.sms), "language": LANGUAGE})
    return better if shared_bytes(graph, better) <= hardware.shared_per_block else stage


def gluon_product_start(found: Product, stage: Stage, sms: int) -> dict[str, Setting]:
    """The tile of a product in Gluon, without its language: 256 columns in all, in four stages. sms: multiprocessors."""
    columns = MOST_COLUMNS // len(found.factors)
    turns = sms if tiles_of(found, ROWS, columns) > sms else 0
    tile: dict[str, Setting] = {"block_m": ROWS, "block_n": columns, "block_k": 64, "num_warps": 4, "num_stages": 4}
    plain: dict[str, Setting] = {
        "split_k": 1,
        "split_n": 1,
        "stream_k": 0,
        "specialized": 0,
        "swapped": 0,
        "right": "as_is",
    }
    changed = {name: value for name, value in plain.items() if dict(stage.schedule).get(name, value) != value}
    return {**tile, "persistent": turns, "epilogue": 2 // len(found.factors), **changed}


def gluon_start(graph: Graph, found: softmax_product.SoftmaxProduct, sms: int) -> dict[str, Setting]:
    """The tile of an attention in Gluon, without its language. sms: multiprocessors.

    In bf16 on an H100 these are the best of the schedules that were timed for 4096 queries and heads of 128, full and causal
    (0.93x and 0.95x of FlashAttention 3), and 0.98x of the best for heads of 64 (results/hopper_gluon.md): heads of 64 by
    three groups that rescale late, heads of 128 by two, in persistent programs that overlap where a program has several
    blocks, all with scores scaled and shifted at once. Others are not timed.
    """
    wide = max(found.width[0], found.out_width[0])
    tile: dict[str, Setting] = {
        "block_m": 128,
        "block_n": 128 if wide == 128 else 64,
        "num_stages": 2,
        "rescale": "early",
    }
    if 32 < wide <= 64:
        tile = {"block_m": 192, "block_n": 128, "num_stages": 3, "rescale": "late"}
    plain: dict[str, Setting] = {"specialized": 0, "operands": "pointers", "packed": 0, "split_keys": 1}
    blocks = -(-found.rows[0] // 128) * product(found.batch)[0]
    if wide == 128 and blocks > sms and _is_plain(found):
        tile |= {"rescale": "late", "persistent": sms, "overlap": 1}
    apart = gluon_scaling.why_apart(found, graph.values[found.query].dtype)
    scaling = gluon_scaling.APART if apart else gluon_scaling.JOINED
    return {**tile, "num_warps": 4, "turns": 0, "scaling": scaling, **plain}


def _is_plain(found: softmax_product.SoftmaxProduct) -> bool:
    """Whether scores are scaled, and masked where they are causal, and nothing else."""
    _, scaling = found.factor()
    return all(node.name in scaling or node.operation == CAUSAL for node in found.between)


def _tile(found: Product, hardware: Hardware, halves: bool) -> _Tile:
    """The tile that suits a product's sizes and types."""
    some = halves and _FEW.m < found.m[0] <= _SOME.m and len(found.factors) == 1 and not found.batch
    if some and _tiles(found, _SOME) >= _BUSY * hardware.sms:
        return _SOME
    if len(found.factors) > 2:
        return _SEVERAL
    # sums kept in fp32 are a second tile, as is another product's; elements from elsewhere go through shared memory
    second = len(found.factors) > 1 or found.fp8 or bool(found.beside)
    known = _HALVES[second:] if halves else _TILES
    return min(known, key=lambda tile: _turns(found, tile, hardware.sms))


def _few(found: Product) -> bool:
    """Whether a product has so few rows that they are one tile."""
    return found.m[0] <= _FEW.m and not found.batch and len(found.factors) == 1


def _narrow(found: Product, sms: int) -> tuple[_Tile, int]:
    """The widest tile of few rows of which there are enough for all multiprocessors, and among how many programs the inner
    dimension is shared where even the narrowest are too few; each has slices for all of its stages."""
    for tile in _NARROW:
        if _tiles(found, tile) >= _BUSY * sms:
            return tile, 1
    split = 1
    while split * _tiles(found, tile) < _BUSY * sms and found.k[0] // (2 * split) >= tile.stages * tile.k:
        split *= 2
    return tile, split


def _turns(found: Product, tile: _Tile, sms: int) -> float:
    """Time for all tiles, in that of a multiplication and addition of the fastest one."""
    places = sms * tile.resident
    return -(-_tiles(found, tile) // places) * tile.resident * tile.m * tile.n / tile.speed


def _tiles(found: Product, tile: _Tile) -> int:
    return tiles_of(found, tile.m, tile.n)


def _shares(found: Product, tile: _Tile, sms: int) -> int:
    """Among how many programs the columns of a row of tiles are shared, each with at least one tile."""
    across = -(-found.n[0] // tile.n)
    down = _tiles(found, tile) // across
    split = 1
    while split * 2 <= across and down * split < 2 * sms * tile.resident:
        split *= 2
    return split
