"""rowwise: elementwise ops and reductions over the same rows: softmax, every norm, logsumexp, cross entropy are all this.

The reduced dimensions must be neighbours; what stands before them are the outer, behind them the inner dimensions. A row
is one (outer, inner) index, a column runs over the reduced dimensions. Three ways to go through a row: held in registers
("registers": a program loads its rows once), in several passes over a long row ("loop": one pass for each reduction that
waits for another), or held by some programs that wait for each other ("shared", see `row_shared`). `split` > 1 cuts each
row among several programs and adds a second kernel. "eviction_policy", see `eviction`, is of rows that are read once.
With "order" = "looked_up" programs of one place in all matrices that indices pick are at work together, see `row_order`.
"""

from __future__ import annotations

import math

from mtmc.rewrite.body import Body, Trailing
from mtmc.rewrite.graph import Graph, is_one, power_of_two_above, power_of_two_below, product
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.templates.launcher import Printed
from mtmc.rewrite.templates.row_launcher import RowLauncher
from mtmc.rewrite.templates.row_order import LOOKED_UP, Matrices, matrices
from mtmc.rewrite.templates.row_shared import SHARED, pieces_of, why_not_shared
from mtmc.rewrite.templates.rows import Layout, full_loads, lay_out, loops, why_not_split
from mtmc.rewrite.templates.shares import shares

MAX_SPLIT = 1024

MAX_REGISTER_COLUMNS = 16384
"""A row longer than this is not held in registers: with 32 warps that is 16 elements a thread, and few programs fit."""
SHORT, INTERLEAVED = 16, 32
"""Columns of a row, and rows that lie side by side, from which on a program goes over the columns one by one."""
MOST_ROWS, FEWEST_ROWS, ENOUGH = 1024, 128, 512
"""Of a program that does so: eight or one a thread; and programs that fill a GPU."""
SIDE_BY_SIDE, FEW_SIDE_BY_SIDE = 32, 8
"""Rows of a program where neighbours in memory are other rows, and where fewer than that are neighbours: more only hold
more in registers (65536 x 192 x 3, H200, estimated: 72 us with 32, 59 with 8)."""
FEW_PROGRAMS = 132
"""With fewer of 32 rows, that hold too many columns for registers, programs of 8 rows hold theirs."""
MANY_ROWS, ROWS_REDUCED, REDUCED_AT_ONCE = 32768, 4, 4096
"""Rows that are reduced to a few numbers each, and nothing else: with so many of them, a program takes some at once, since
what it waits for at its start and its end is as long as its loads (92160 rows of 2880, H200, estimated: 174 us to 135;
655360 rows of 128 numbers of 8 bits: 53 us with 8 rows, 27 with 32). So many elements, and four rows at least."""
TILE_BYTES, MOST_OF_MATRIX, ENOUGH_OF_MATRICES = 1 << 15, 32, 1024
"""Of matrices that are looked up: bytes that a program's four warps load, its rows at most, and programs for which there are
always rows. 256 bytes a thread: ptxas has 16 of its 20 loads on their way for sm_90, in 90 registers, and a row of 2880 bf16
numbers takes 752 instructions of a warp; with eight warps 976."""
CACHED_COLUMNS = 65536
"""Rows up to this are found in the cache when they are read again, if a program is as large as a multiprocessor: 132 rows
of fp32 numbers are 35 MB."""


LONG_COLUMNS, LARGE = 49152, 1 << 28
"""Columns of fp32 numbers, and numbers in all, above which programs that wait for each other hold rows at first. H100:
32768 rows of 65535 in 6.8 to 7.6 ms, in two loops 11.6; 512 rows of 32768 in 0.065 to 0.086, in two loops 0.064."""


MOMENTS_OF_FLOATS = 1024
"""Columns at a time of fp32 rows of which sums and squared distances are taken: one load of 16 bytes for each thread. Group
norm of 112 x 64 x 512 x 512 by 1024, 2048 and 4096 at a time, H200: 5.57, 7.03 and 7.14 ms, and shared by 64 programs a row
6.52; batch norm of 4.3 GB: 3.35 and 3.46 by 1024 and 2048."""


MAX_SPLIT_OF_TILES = 256
"""Programs of rows that lie side by side: each reads what all the others have found of 32 rows. A module whose batch norm is
of 32 channels, channels last, 63 million numbers, H200: by 256, 512 and 1024 programs 0.793, 0.865 and 0.942 ms with 32
columns at a time, 0.758, 0.775 and 0.869 with 64."""


STRETCH, MOST_BESIDE = 256, 8
"""Bytes, and groups. A transposed convolution, GELU and a norm of 8 groups of 8 channels, 128 images of 258 x 258, fp32: by
1, 4 and 8 groups a program, the last two with four programs a row, 9.95, 7.04 and 6.94 ms on an H100, and with one program a
row 7.96, 6.64 and 7.28 ms on an H200 (5.78 with four)."""


class Rowwise:
    """Elementwise ops and reductions over the same rows."""

    name = "rowwise"

    def matches(self, body: Body) -> bool:
        """Has a reduction and no matrix product."""
        kinds = {node.kind for node in body.nodes}
        return "reduce" in kinds and "dot" not in kinds

    def default(self, graph: Graph, body: Body) -> dict[str, int | str]:
        """Rows in registers where they fit, else a loop; more rows a program where rows are short, less than one where
        they are few and long."""
        layout = lay_out(graph, body)
        columns = max(layout.cols, default=1)
        if columns <= SHORT and layout.inner and layout.inner[0] >= INTERLEAVED and not _has_windows(body):
            return one_by_one(layout)
        inner = _side_by_side(graph, body, layout)
        looked_up = matrices(graph, body, layout)
        if looked_up is not None and columns <= MAX_REGISTER_COLUMNS and _reduces_alone(body, layout):
            return _of_matrices(looked_up, layout)
        if columns <= MAX_REGISTER_COLUMNS // inner:
            rows = inner if inner > 1 else power_of_two_below(max(1, min(16, 1024 // columns)))
            held = columns * rows
            if inner == 1 and layout.rows and layout.rows[0] >= MANY_ROWS and _reduces_alone(body, layout):
                rows = max(rows, _reduced_at_once(layout))
                held = min(columns * rows, max(columns, REDUCED_AT_ONCE))
            warps = register_warps(held)
            order = {"order": LOOKED_UP} if looked_up is not None else {}
            return {"passes": "registers", "block_rows": rows, "block_cols": 0, "num_warps": warps, "split": 1, **order}
        if _read_twice_from_memory(graph, body, layout):
            return sharing(pieces_of(layout)[0])
        loop, beside = looping(graph, body, layout), _groups_beside(graph, body, layout)
        if beside > 1:
            loop["block_cols"], inner = max(STRETCH, int(loop["block_cols"]) // beside), beside
        return {**loop, "block_rows": inner, "split": _split(body, layout, inner)}

    def emit(self, graph: Graph, body: Body, stage: Stage, name: str) -> Printed:
        """One kernel, or two where rows are split or a total over all rows is taken. Raises: NotCovered."""
        return RowLauncher(graph, body, stage, name).emit()


def _side_by_side(graph: Graph, body: Body, layout: Layout) -> int:
    """Rows that a program takes where neighbours in memory are other rows; 1 where they are columns."""
    columns = max(layout.cols, default=1)
    if is_one(layout.inner):
        across = columns <= MAX_REGISTER_COLUMNS // SIDE_BY_SIDE and _lies_across(graph, body, layout)
        return SIDE_BY_SIDE if across else 1
    few = not layout.rows or layout.rows[0] < SIDE_BY_SIDE * FEW_PROGRAMS
    too_long = columns > MAX_REGISTER_COLUMNS // SIDE_BY_SIDE
    held = too_long and columns <= MAX_REGISTER_COLUMNS // FEW_SIDE_BY_SIDE and few
    return FEW_SIDE_BY_SIDE if layout.inner[0] < FEW_SIDE_BY_SIDE or held else SIDE_BY_SIDE


def _lies_across(graph: Graph, body: Body, layout: Layout) -> bool:
    """Whether a view has the rows' elements, at the full shapes, whose neighbours in memory are other rows: some, one after
    the other."""
    for tensor in full_loads(graph, body, layout):
        sizes, steps = ([each[0] for each in of] for of in (tensor.shape, tensor.lying))
        first = len(sizes)
        while first and math.prod(sizes[first:]) < layout.cols[0]:
            first -= 1
        along = [step for size, step in zip(sizes[first:], steps[first:], strict=True) if size > 1]
        beside = [(size, step) for size, step in zip(sizes[:first], steps[:first], strict=True) if size > 1]
        if along and beside and beside[-1][0] >= FEW_SIDE_BY_SIDE and 0 < beside[-1][1] < min(along):
            return True
    return False


def _groups_beside(graph: Graph, body: Body, layout: Layout) -> int:
    """Groups of channels that a program takes where those of a position lie side by side: a stretch of `STRETCH` bytes,
    of which one group alone would leave most to programs that read them at another time. 1 where none lie so."""
    if not layout.before:
        return 1
    size = min(graph.values[value].element_bytes for value in body.loads)
    return min(
        power_of_two_below(layout.outer[0]), power_of_two_above(-(-STRETCH // (size * layout.inside[0]))), MOST_BESIDE
    )


def _of_matrices(found: Matrices, layout: Layout) -> dict[str, int | str]:
    """How rows of matrices that are looked up are reduced alone: as many a program as lie in its tile, of one matrix."""
    rows = TILE_BYTES // (found.element_bytes * power_of_two_above(max(layout.cols, default=1)))
    rows = max(1, min(rows, MOST_OF_MATRIX, power_of_two_below(max(1, layout.rows[0] // ENOUGH_OF_MATRICES))))
    held: dict[str, int | str] = {"passes": "registers", "block_rows": rows, "block_cols": 0, "num_warps": 4}
    return {**held, "split": 1, "order": LOOKED_UP}


def _reduced_at_once(layout: Layout) -> int:
    """Rows of a program that reduces them alone: as many as there are four of among `MANY_ROWS`, at most."""
    columns, enough = max(layout.cols, default=1), layout.rows[0] * ROWS_REDUCED // MANY_ROWS
    return power_of_two_below(min(max(ROWS_REDUCED, REDUCED_AT_ONCE // columns), enough))


def _reduces_alone(body: Body, layout: Layout) -> bool:
    """Whether no result has the rows' elements."""
    return all(layout.place.get(value) != "full" for value in body.stores)


def register_warps(elements: int) -> int:
    """Warps that hold some elements in registers: about 16 a thread, four loads of 16 bytes on their way."""
    return max(4, min(32, power_of_two_above(elements) // 512))


def sharing(piece: int) -> dict[str, int | str]:
    """How programs that wait for each other hold rows, each so many columns: 64 a thread. Fewer warps wait less for each
    other, and more programs for other rows."""
    return {"passes": SHARED, "block_rows": 1, "block_cols": piece, "num_warps": piece // 2048, "split": 1}


def _read_twice_from_memory(graph: Graph, body: Body, layout: Layout) -> bool:
    """Whether a loop in passes finds nothing in the cache: long rows of fp32 numbers, and far more than the cache holds."""
    rows, columns = (size[0] if size else 1 for size in (layout.rows, layout.cols))  # at the full shapes
    if columns <= LONG_COLUMNS or rows * columns < LARGE or why_not_shared(body, layout) or not pieces_of(layout):
        return False
    return len(loops(body, layout)) > 1 and _are_floats(graph, body, layout)


def _are_floats(graph: Graph, body: Body, layout: Layout) -> bool:
    """Whether all that is read of as many elements as the rows have is numbers of 32 bits."""
    return all(value.dtype == "float32" for value in full_loads(graph, body, layout))


def one_by_one(layout: Layout) -> dict[str, int | str]:
    """How to go over short rows whose neighbours in memory are other rows: a column of many rows at a time, so that each
    thread reads neighbours and adds up what it has read itself."""
    programs = max(1, layout.rows[0] // MOST_ROWS)
    rows = MOST_ROWS if programs >= ENOUGH else max(FEWEST_ROWS, power_of_two_below(max(1, layout.rows[0] // ENOUGH)))
    return {"passes": "loop", "block_rows": rows, "block_cols": 1, "num_warps": 4, "split": 1}


def _has_windows(body: Body) -> bool:
    return any(node.kind == "window" for node in body.nodes)


def looping(graph: Graph, body: Body, layout: Layout) -> dict[str, int | str]:
    """How to loop over rows: with so many columns at a time that each thread has a few loads on their way, and with all
    warps of a multiprocessor in one program where that lets the second loop find the row in the cache."""
    inner = SIDE_BY_SIDE if not is_one(layout.inner) else 1
    columns, passes = max(layout.cols, default=1), loops(body, layout)
    kept = sum(2 if node.operation == "deviations" or node.operation.startswith("arg") else 1 for node in passes[0][0])
    block, warps = 4096 if kept <= 1 else 2048, 8
    if kept > 1 and inner == 1 and not layout.before and _are_floats(graph, body, layout):
        block = MOMENTS_OF_FLOATS
    if inner == 1 and len(passes) > 1 and MAX_REGISTER_COLUMNS < columns <= CACHED_COLUMNS:
        block, warps = 8192, 32
    block = min(block, max(512, power_of_two_above(columns) // 4 * inner))
    segment = _segment(body, layout)
    if segment % 512 == 0:
        block = math.gcd(block, segment)
    return {"passes": "loop", "block_cols": block // inner, "num_warps": warps}


def _segment(body: Body, layout: Layout) -> int:
    """The fewest columns, one behind the other, for which full nodes read the same (a channel's pixels); 0 if none do."""
    if not is_one(layout.inner) or layout.lead:
        return 0
    maps = [node for node in body.nodes if node.kind == "map" and layout.place[node.name] == "full"]
    shared = [(node.shape, item.ones) for node in maps for item in node.operands if isinstance(item, Trailing)]
    found = [product(shape[-ones:])[0] for shape, ones in shared if 0 < ones < len(shape)]
    return min((count for count in found if count < layout.cols[0]), default=0)


def _split(body: Body, layout: Layout, block_rows: int) -> int:
    """Among how many programs each row is cut, so that there are enough of them and none has too little."""
    if why_not_split(body, layout):
        return 1
    programs, columns = -(-max(layout.rows, default=1) // block_rows), max(layout.cols, default=1)
    elements, least = columns * block_rows, (2 if layout.before else 4) * MAX_REGISTER_COLUMNS
    most = MAX_SPLIT if block_rows == 1 else MAX_SPLIT_OF_TILES
    return shares(programs, 4, lambda split: split <= most and elements // (split // 4) > least)
