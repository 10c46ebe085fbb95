"""gluon_attention: the same attention as attention.py's, printed in Gluon for Hopper (the kernel: gluon_kernel.py).

Settings: block_m, 64 rows for each group of warps (128, 192 or 256); block_n, columns of a block; num_stages, blocks in
shared memory at once; turns, whether groups start their products one after the other; rescale, whether earlier sums are
scaled before the next scores are started or, "late", while they are computed; scaling, "apart" or "joined": see
gluon_scaling.py; keys, "forward" or "backward": see gluon_keys.py; persistent, programs that make several blocks of queries
each, 0 for one a block; overlap, 1 where such a program begins the next block before it ends one: see gluon_overlap.py.

The launcher copies what a descriptor cannot say (rows that do not begin at multiples of 16 bytes), and refuses a GPU that
is no Hopper.
"""

from __future__ import annotations

from mtmc.rewrite.body import Body, NotCovered
from mtmc.rewrite.folding import INDENT
from mtmc.rewrite.graph import Graph, Varying, power_of_two_above, product
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.templates import attention_tiles as tiles
from mtmc.rewrite.templates import gluon_scaling
from mtmc.rewrite.templates.gluon_kernel import GluonKernel
from mtmc.rewrite.templates.gluon_overlap import OverlappedKernel, overlaps
from mtmc.rewrite.templates.gluon_text import (
    ALIGNED,
    CONSUMERS,
    MADE,
    copy_lines,
    guard_lines,
    result_lines,
    tile_functions,
)
from mtmc.rewrite.templates.gluon_tiles import GROUP_ROWS
from mtmc.rewrite.templates.launcher import (
    Launch,
    Printed,
    allocation,
    contiguous_lines,
    launch_lines,
    printed,
    scope_of,
    size_expression,
)
from mtmc.rewrite.templates.shares import crowded
from mtmc.rewrite.templates.softmax_product import analyse

CONSTANTS = ("WIDE", "EVEN", "BLOCK_K")


def emit(graph: Graph, body: Body, stage: Stage, name: str) -> Printed:
    """The kernel and its launcher. Raises: NotCovered where the body or the schedule is more than it can do."""
    check(graph, body, stage)
    made_by = OverlappedKernel if overlaps(dict(stage.schedule)) else GluonKernel
    kernel, scope, spare = made_by(graph, body, stage, name), scope_of(graph, body), dict[str, Varying]()
    text, found, writer = kernel.text(CONSTANTS), kernel.found, kernel.writer
    writer.contiguous |= {value for value in found.tensors if graph.values[value].contiguous}
    query, region, (result,) = found.query, found.regions[0], body.stores
    columns = size_expression(found.columns, "n_cols", scope, spare)
    rows = size_expression(found.rows, "n_rows", scope, spare)
    grid = (
        f"triton.cdiv({rows}, {kernel.groups * GROUP_ROWS})",
        size_expression(product(found.batch), "n_batch", scope, spare),
    )
    lines = guard_lines(query)
    lines += contiguous_lines(writer)
    lines += [allocation(graph, body, result, scope, spare)]
    lines.append(f"{INDENT}width = max(16, triton.next_power_of_2({query}.shape[-1]))")
    key = region.key if found.transposed else f"{region.key}.transpose(-2, -1)"
    lines += result_lines(name, result)
    made = ((query, GROUP_ROWS), (key, kernel.columns), (region.value, kernel.columns), (MADE, GROUP_ROWS))
    for table, (value, count) in zip(tiles.TABLES, made, strict=True):
        lines.append(f"{INDENT}{table} = {name}_tiles({value}, {count}, width)")
    sizes = ", ".join(f"{value}.numel()" for value in (*body.loads, *body.stores))
    constants = (f"max({sizes}) >= 2**31", f"({columns}) % {kernel.columns} == 0", "width")
    launch = Launch(
        f"{name}_kernel",
        writer,
        (),
        tiles.TABLES,
        kernel.programs.grid(grid, crowded(found.batch)),
        tuple(zip(CONSTANTS, constants, strict=True)),
        4,
    )
    lines += [*launch_lines(launch, scope, spare), *copy_lines(result)]
    load_and_store, describe = tile_functions(name, graph.values[query].dtype)
    texts = [load_and_store, text, describe]
    return printed(body, name, texts, lines, spare)


def padded(width: int) -> int:
    """Columns of a tile of a head's width."""
    return max(16, power_of_two_above(width))


def check(graph: Graph, body: Body, stage: Stage) -> None:
    """Raises: NotCovered where an attention, or a schedule, is none that the Gluon kernel can do."""
    found, schedule = analyse(graph, body), dict(stage.schedule)
    if graph.values[found.query].dtype not in ("float16", "bfloat16"):
        raise NotCovered("a Gluon kernel of other than numbers of 16 bits")
    lies_across = not found.transposed and graph.values[found.regions[0].key].contiguous
    weighed = any(node.operation != "{0}" for node in found.weighing)
    if found.wide or found.made or found.reshaped or weighed or found.sink or len(found.regions) > 1 or lies_across:
        raise NotCovered(
            "a Gluon kernel of wide heads, sinks, weights times scales, or keys in several tensors or the other way"
        )
    if found.width[0] % ALIGNED or found.out_width[0] % ALIGNED:  # at other shapes they are copied
        raise NotCovered("a Gluon kernel of rows that do not begin at multiples of 16 bytes")
    if [padded(size) for size in found.width] != [padded(size) for size in found.out_width]:
        raise NotCovered("a Gluon kernel of keys and values of different widths")
    if len(body.stores) != 1 or graph.values[body.stores[0]].dtype != graph.values[found.query].dtype:
        raise NotCovered("a Gluon kernel of several results, or of one of another type")
    if stage.number("block_m") // GROUP_ROWS not in CONSUMERS or stage.number("block_m") % GROUP_ROWS:
        raise NotCovered("a Gluon kernel with other than two to four groups of 64 rows")
    gluon_scaling.check(found, graph.values[found.query].dtype, schedule)
    if stage.number("num_warps") != 4 or stage.number("block_n") not in (32, 64, 128, 256):
        raise NotCovered("a Gluon kernel with groups of other than four warps, or such blocks of columns")
    if any(
        schedule.get(name, plain) != plain for name, plain in (("split_keys", 1), ("packed", 0), ("specialized", 0))
    ):
        raise NotCovered("a Gluon kernel that shares keys, packs heads, or leaves its warps to the compiler")
