"""gluon_product: the same product as matmul.py's, printed in Gluon for Hopper (the kernel: gluon_product_kernel.py).

Settings: block_m, 128; block_n, columns of a tile, 256 of all products together at most; block_k, columns of a slice of the
left operand; num_stages, slices in shared memory at once; epilogue, parts in which a tile is worked on and stored;
persistent, programs that make several tiles each, 0 for one a tile; group_m and order: see matmul.py.

The launcher copies what a descriptor cannot say (rows that do not begin at multiples of 16 bytes; of the result, too), and
refuses a GPU that is no Hopper.
"""

from __future__ import annotations

from mtmc.rewrite.body import Body, NotCovered
from mtmc.rewrite.graph import Graph, Varying
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.templates.gluon_product_kernel import MOST_COLUMNS, ROWS, GluonProductKernel
from mtmc.rewrite.templates.gluon_text import ALIGNED, MADE, copy_lines, guard_lines, result_lines, tile_functions
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
from mtmc.rewrite.templates.product import Product, analyse, lie_as_matrices

CONSTANTS = ("WIDE", "GROUP_M")
SLICES, WIDTHS = (32, 64, 128), (64, 128, 256)
"""What a slice and a tile may have of columns."""
MOST_FACTORS = 2


def emit(graph: Graph, body: Body, stage: Stage, name: str) -> Printed:
    """The kernel and its launcher. Raises: NotCovered where the body or the schedule is more than it can do."""
    check(graph, body, stage)
    kernel, scope, spare = GluonProductKernel(graph, body, stage, name), scope_of(graph, body), dict[str, Varying]()
    text, found, writer = kernel.text(CONSTANTS), kernel.found, kernel.writer
    (result,), rights = body.stores, [factor.right for factor in found.factors]
    writer.contiguous |= {found.left, *rights}
    m, n = (size_expression(*each, scope, spare) for each in ((found.m, "n_m"), (found.n, "n_n")))
    lines = [*guard_lines(found.left), *contiguous_lines(writer), allocation(graph, body, result, scope, spare)]
    block = (kernel.columns, kernel.inner) if found.transposed else (kernel.inner, kernel.columns)
    made = [(found.left, GROUP_ROWS, kernel.inner), *((right, *block) for right in rights)]
    for table, (value, rows, columns) in zip(kernel.tables, made, strict=False):
        lines.append(f"    {table} = {name}_tiles({_flat(graph, value)}, {rows}, {columns})")
    lines += result_lines(name, _flat(graph, result))
    lines.append(f"    {kernel.tables[-1]} = {name}_tiles({MADE}, {GROUP_ROWS}, {kernel.columns // kernel.parts})")
    tiles = f"triton.cdiv({m}, {ROWS}) * triton.cdiv({n}, {kernel.columns})"
    persistent = int(dict(stage.schedule).get("persistent", 0))
    grid = (f"min({persistent}, {tiles})" if persistent else tiles,)
    sizes = ", ".join(f"{value}.numel()" for value in (*body.loads, result))
    constants = (f"max({sizes}) >= 2**31", str(stage.number("group_m")))
    launch = Launch(f"{name}_kernel", writer, (), kernel.tables, grid, tuple(zip(CONSTANTS, constants, strict=True)), 4)
    lines += [*launch_lines(launch, scope, spare), *copy_lines(_flat(graph, result))]
    load_and_store, describe = tile_functions(name, graph.values[found.left].dtype)
    return printed(body, name, [load_and_store, text, describe], lines, spare)


def _flat(graph: Graph, value: str) -> str:
    """Expression of a contiguous value as a matrix."""
    return value if len(graph.values[value].shape) == 2 else f"{value}.view(-1, {value}.shape[-1])"


def check(graph: Graph, body: Body, stage: Stage) -> None:
    """Raises: NotCovered where a product, or a schedule, is none that the Gluon kernel can do."""
    found, schedule = analyse(graph, body), dict(stage.schedule)
    if why := why_not(graph, body, found):
        raise NotCovered(f"a Gluon kernel of {why}")
    parts = schedule.get("epilogue", 1)
    if stage.number("block_m") != ROWS or stage.number("num_warps") != 4 or parts not in (1, 2):
        raise NotCovered(
            f"a Gluon kernel of a product with other than {ROWS} rows by groups of four warps, in two parts at most"
        )
    if stage.number("block_n") not in WIDTHS or len(found.factors) * stage.number("block_n") > MOST_COLUMNS:
        raise NotCovered(f"a Gluon kernel of a product with such blocks of columns, or more than {MOST_COLUMNS} in all")
    if stage.number("block_k") not in SLICES or stage.number("num_stages") < 2:
        raise NotCovered("a Gluon kernel of a product with such slices")
    plain = {"split_k": 1, "split_n": 1, "stream_k": 0, "specialized": 0, "swapped": 0, "symmetric": 0}
    if any(schedule.get(name, value) != value for name, value in plain.items()):
        raise NotCovered("a Gluon kernel of a product that is shared, turned, or leaves its warps to the compiler")
    if schedule.get("right", "as_is") != "as_is":
        raise NotCovered("a Gluon kernel of a right operand that is copied")


def why_not(graph: Graph, body: Body, found: Product) -> str:
    """What keeps a product from being written in Gluon, whatever its schedule; "" where nothing does."""
    operands = [graph.values[value] for value in (found.left, *(factor.right for factor in found.factors))]
    if found.dtype not in ("float16", "bfloat16") or any(each.dtype != found.dtype for each in operands):
        return "other than numbers of 16 bits"
    if found.batch or found.offsets or found.reduces or len(found.factors) > MOST_FACTORS:
        return "a batch, of groups, of more than two products, or of one that is reduced"
    if found.before or found.made or found.prologue or found.statistics or found.scales or found.beside:
        return "operands that are made in the kernel, or beside other work"
    if not lie_as_matrices(graph, found) or any(len(each.shape) != 2 for each in operands[1:]):
        return "operands that are no contiguous matrices"
    if len(body.stores) != 1 or body.part(body.stores[0]) is not None:
        return "several results, or of a part of one"
    result = graph.values[body.stores[0]]
    if result.dtype != found.dtype or not result.contiguous:
        return "a result of another type or order"
    if any(node.kind != "map" for node in found.after):
        return "a result whose elements are moved"
    if found.n[0] % ALIGNED or found.k[0] % ALIGNED:  # at other shapes they are copied
        return "rows that do not begin at multiples of 16 bytes"
    return ""
