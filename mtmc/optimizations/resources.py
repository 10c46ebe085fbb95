"""resources: what a schedule asks of the hardware, as far as it can be told without compiling."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mtmc.outcome import Outcome
from mtmc.rewrite.expansion import build
from mtmc.rewrite.graph import FP8, Graph, Op, Ref, power_of_two_above
from mtmc.rewrite.operators.attention import ATTENTION
from mtmc.rewrite.operators.products import PRODUCTS as MULTIPLYING
from mtmc.rewrite.operators.table import table
from mtmc.rewrite.plan import Stage, plan_from_json
from mtmc.rewrite.templates import product as products
from mtmc.rewrite.templates.gluon_text import is_gluon, needed_registers
from mtmc.rewrite.templates.gluon_tiles import GROUP_ROWS
from mtmc.rewrite.templates.product_loads import left_tiles
from mtmc.rewrite.templates.rows import rows_of
from mtmc.rewrite.templates.softmax_product import analyse
from mtmc.rewrite.templates.window_rows import rows_of_windows

_GROWS = ("block_m", "block_n", "block_k", "block_v", "num_stages", "block_rows", "block_cols")
"""Settings that ask for more shared memory or registers the larger they are."""

PRODUCTS = ("matmul", "convolution", "attention")
"""Templates whose kernels multiply tiles."""

MAX_ELEMENTS_A_THREAD = 128
"""Of at most 255 registers a thread: above this, a kernel that holds its elements spills nearly all of them."""


ELEMENTS_A_REGISTER = 2 / 3
"""Of a kernel in Gluon, at most: the rest are addresses, largest scores, and weights in 16 bits."""


def shared_bytes(graph: Graph, stage: Stage) -> int:
    """Shared memory of a stage with a product in bytes: `num_stages` copies of one tile of each operand.

    num_stages * (loads * block_m * block_k + products * block_k * block_n) * bytes an element, where so many tiles are
    loaded for one of the left operand (`product_loads.left_tiles`), and block_m * block_n / parts * bytes for a result
    that is written through a descriptor while the next tile is read, as by persistent programs and in Gluon; for attention
    (block_m * width + num_stages * block_n * (width + out_width)) * bytes, widths rounded up to powers of two, and block_m *
    out_width * bytes for the results of persistent programs in Gluon, block_m * width * bytes for the next queries of those
    that overlap; where heads are taken in slices (num_stages * (block_m + block_n) * block_k + block_n * block_v) * bytes;
    0 for other templates.
    """
    if stage.template not in PRODUCTS:
        return 0
    if stage.template == "attention" and "block_v" in dict(stage.schedule):
        m, n, k, v = (stage.number(name) for name in ("block_m", "block_n", "block_k", "block_v"))
        return (stage.number("num_stages") * (m + n) * k + n * v) * element_bytes(graph, stage)
    if stage.template == "attention":
        width, out_width = _widths(graph, stage)
        tiles = stage.number("num_stages") * stage.number("block_n") * (width + out_width)
        schedule = dict(stage.schedule)
        made = out_width if is_gluon(stage) and schedule.get("persistent") else 0
        following = width if is_gluon(stage) and schedule.get("overlap") else 0
        return (stage.number("block_m") * (width + made + following) + tiles) * element_bytes(graph, stage)
    m, n, k = (stage.number(name) for name in ("block_m", "block_n", "block_k"))
    schedule = dict(stage.schedule)
    kept = schedule.get("results") == "descriptors" and (schedule.get("persistent") or schedule.get("specialized"))
    kept = kept or is_gluon(stage)
    stored = m * n // int(schedule.get("epilogue", 1)) if kept else 0
    loads = left_tiles(graph, stage.ops) if stage.template == "matmul" else 1
    tiles = stage.number("num_stages") * (loads * m * k + products_of(graph, stage) * k * n)
    return (tiles + stored) * element_bytes(graph, stage)


def products_of(graph: Graph, stage: Stage) -> int:
    """Products of one left operand that a stage makes, each with a tile of its own."""
    if stage.template != "matmul":
        return 1
    return max(1, sum(graph.by_name[name].target in MULTIPLYING for name in stage.ops))


def elements_a_thread(graph: Graph, stage: Stage) -> float:
    """Elements that each thread of a kernel holds at once: of the product's tile, of its rows, or of its block.

    products * block_m * block_n / threads for products, and block_m * out_width / threads more for attention (block_v in
    place of out_width where that is less); block_rows * block_cols / threads for rows (the whole row, rounded up to a power
    of two, where it is held in registers). Where loads have warps of their own, twice the others make the product, and in
    Gluon as many groups as there are.
    """
    threads = 32 * stage.number("num_warps") * (2 if dict(stage.schedule).get("specialized") else 1)
    if is_gluon(stage):
        threads *= stage.number("block_m") // GROUP_ROWS
    if stage.template in PRODUCTS:
        more = _widths(graph, stage)[1] if stage.template == "attention" else 0
        more = min(more, int(dict(stage.schedule).get("block_v", more)))
        columns = products_of(graph, stage) * stage.number("block_n") + more
        return stage.number("block_m") * columns / threads
    if stage.template in ("rowwise", "scan"):
        columns = stage.number("block_cols")
        if stage.template == "rowwise" and stage.setting("passes") == "registers":
            layout = rows_of(graph, build(graph, stage.ops, table), stage)
            columns = power_of_two_above(max(1, max(layout.cols, default=1)))
        if stage.template == "rowwise":
            columns = max(columns, stage.number("split"))  # the shares of a row are read at once
        return stage.number("block_rows") * columns / threads
    return stage.number("block") * rows_of_windows(stage) / threads


def most_elements(stage: Stage) -> float:
    """Elements that a thread may hold: the groups of a kernel in Gluon have a number of registers of their own."""
    if not is_gluon(stage):
        return MAX_ELEMENTS_A_THREAD
    return ELEMENTS_A_REGISTER * needed_registers(stage.number("block_m") // GROUP_ROWS)[0]


def _widths(graph: Graph, stage: Stage) -> tuple[int, int]:
    """Of an attention's heads: of queries and keys, and of values; the full shapes', rounded up to powers of two from 16."""
    found = analyse(graph, build(graph, stage.ops, table))
    return max(16, power_of_two_above(found.width[0])), max(16, power_of_two_above(found.out_width[0]))


def element_bytes(graph: Graph, stage: Stage) -> int:
    """Of an element of a product's operands: 4 where one of them is fp32, else 2; 1 where 8-bit numbers are multiplied, also
    where the reference says that they are made wide and scaled first."""
    some = stage.template == "matmul" and _reads_8_bits(graph, stage)
    if some and products.analyse(graph, build(graph, stage.ops, table)).of_8_bits:
        return 1
    operands = {ref for name in stage.ops for ref in _multiplied(graph.by_name[name])}
    dtypes = {graph.values[ref].dtype for ref in operands if ref in graph.values}
    return 4 if "float32" in dtypes else 2


def _reads_8_bits(graph: Graph, stage: Stage) -> bool:
    """Whether an operation of a stage takes 8-bit numbers."""
    refs = {ref for name in stage.ops for ref in graph.by_name[name].refs()}
    return any(graph.values[ref].dtype in (*FP8, "int8") for ref in refs if ref in graph.values)


def _multiplied(op: Op) -> tuple[str, ...]:
    """The values whose elements an op multiplies: no bias, mask or scale, and none where it makes no product. A softmax in
    fp32 between two products of halves is no tile of theirs."""
    if op.target not in {*MULTIPLYING, *ATTENTION} and "conv" not in op.target:
        return ()
    if op.target.startswith("aten.einsum"):
        return op.refs()
    first = 1 if op.target == "aten.addmm.default" else 0
    count = 3 if op.target in ATTENTION else 2
    return tuple(item.name for item in op.args[first : first + count] if isinstance(item, Ref))


def blamed(graph: Graph, failures: Sequence[tuple[str | None, Outcome]]) -> tuple[Stage, ...]:
    """The stages that made versions fail for lack of resources.

    It is the stage whose kernel the diagnosis names, else the one with the largest need of shared memory.
    """
    found = []
    for plan, outcome in failures:
        if plan is None or outcome.diagnosis is None:
            continue
        kernels = [stage for stage in plan_from_json(plan).stages if not stage.is_torch]
        kernels = [
            stage for stage in kernels if all(op in graph.by_name for op in stage.ops)
        ]  # the same simplifications
        text = f"{outcome.diagnosis.message} {outcome.diagnosis.excerpt}"
        named = [stage for stage in kernels if any(f"{name}_kernel" in text for name in (stage.title, stage.name))]
        found += named or sorted(kernels, key=lambda stage: shared_bytes(graph, stage))[-1:]
    return tuple(dict.fromkeys(found))


def asks_as_much(stage: Stage, failed: Iterable[Stage]) -> bool:
    """Whether a stage asks for at least what a failed one over the same ops asked for."""
    return any(_at_least(stage, other) for other in failed)


def _at_least(stage: Stage, other: Stage) -> bool:
    if (stage.ops, stage.template) != (other.ops, other.template):
        return False
    mine, theirs = dict(stage.schedule), dict(other.schedule)
    if any(mine[name] != theirs.get(name) for name in mine if name in ("precision", "passes", "loop")):
        return False
    return all(int(mine[name]) >= int(theirs[name]) for name in _GROWS if name in mine)
