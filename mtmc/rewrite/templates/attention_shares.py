"""attention_shares: attention of few queries over many keys, as in decoding: who shares the keys, and who shares a program.

"split_keys" > 1: so many programs share the keys of a block of queries, each writes what it found, and a second kernel
puts it together (flash-decoding, Dao et al. 2023). "packed": the heads of queries that share a head of keys stand in the
rows of one program, which reads the keys once for all of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from mtmc.rewrite.body import Body, NotCovered
from mtmc.rewrite.graph import Graph, Shape, is_one, product, same
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.space import Group
from mtmc.rewrite.templates.pointwise import Variables, write_maps
from mtmc.rewrite.templates.softmax_product import SoftmaxProduct
from mtmc.rewrite.templates.writer import Writer

SHARES = ("parts", "tops", "totals")
"""What programs that share keys write: weighted sums of values, largest scores, sums of weights."""


class SharedAttention(Protocol):
    """What is asked of the attention that is being written, see `attention_kernel.Kernel`."""

    graph: Graph
    body: Body
    writer: Writer
    found: SoftmaxProduct
    batch: Shape
    split: int
    n_rows: str


LOG2_E = 1.4426950408889634
"""Powers of two are what the hardware computes."""


def factor_line(writer: Writer, found: SoftmaxProduct) -> str:
    """What scores are multiplied by to be powers of two.

    The largest score is taken away first, and then is multiplied: what is left of the largest is 0 exactly. The other way
    round a compiler joins the product with the subtraction and rounds once, and for scores of 1e9 (of which the largest is
    rounded by itself) hundreds are left, whose power of two is infinite.
    """
    number, _ = found.factor()
    if number is None:
        return f"factor = {LOG2_E} / tl.sqrt({writer.size(found.width)} + 0.0)"
    return f"factor = {LOG2_E * number!r}"


def split_of(stage: Stage) -> int:
    """Programs that share the keys of a block of queries."""
    return int(dict(stage.schedule).get("split_keys", 1))


def is_packed(stage: Stage) -> bool:
    """Whether a program has the rows of all heads that share its keys."""
    return bool(dict(stage.schedule).get("packed", 0))


def can_pack(graph: Graph, found: SoftmaxProduct) -> bool:
    """Whether neighbouring heads of queries share keys and values."""
    region = found.regions[0]
    if len(found.regions) > 1 or len(found.batch) != 2 or found.causal or found.wide:
        return False
    key, value = (graph.values[name].shape[1] for name in (region.key, region.value))
    if found.query in found.made:
        return False
    return same(key, value) and not is_one(key) and not same(key, found.batch[1])


def check(graph: Graph, found: SoftmaxProduct, stage: Stage, pointers: bool) -> None:
    """Raises: NotCovered where heads cannot be packed, or keys not be shared."""
    if is_packed(stage) and not (can_pack(graph, found) and pointers):
        raise NotCovered("heads packed that share no keys, or that descriptors tell apart")
    if split_of(stage) > 1 and (len(found.regions) > 1 or found.causal or found.wide or not pointers):
        raise NotCovered("keys shared among programs where they are masked by rows, in several tensors, or wide")
    if split_of(stage) > 1 and dict(stage.schedule).get("masks") != "edges":
        raise NotCovered("keys shared among programs in a loop that masks all of them")


def packed(graph: Graph, found: SoftmaxProduct) -> SoftmaxProduct:
    """The same attention with as many heads as there are of keys."""
    return replace(found, batch=(found.batch[0], graph.values[found.regions[0].key].shape[1]))


def packed_rows(kernel: SharedAttention, rows: str) -> str:
    """Lines that count a program's rows through the heads that it has. Returns: the name of their number.

    heads, positions: of a row, the number of its head among all of the batch, and its own there.
    """
    query, key, writer = kernel.found.query, kernel.found.regions[0].key, kernel.writer
    if key in kernel.found.made:
        each = [writer.size(kernel.graph.values[value].shape[1]) for value in (query, key)]
        writer.line(f"heads_each = {' // '.join(each)}")
    else:
        shares = zip(*(writer.tensor(value).shape[1] for value in (query, key)), strict=True)
        writer.argument("heads_each", f"{query}.shape[1] // {key}.shape[1]", tuple(a // b for a, b in shares))
    writer.comment("the heads that share their keys stand one below the other")
    writer.line(f"n_packed = heads_each * {rows}")
    return "n_packed"


def packed_queries(writer: Writer, found: SoftmaxProduct, rows: str) -> tuple[str, str]:
    """Pointer to the first of a program's heads, and where its rows lie from there."""
    query, groups = found.query, writer.size(found.batch[1])
    first, second, third = (writer.stride(query, axis) for axis in range(3))
    base = f"{writer.pointer(query)} + (batch // {groups}) * {first} + (batch % {groups} * heads_each) * {second}"
    return base, f"(rows // {rows}) * {second} + (rows % {rows}) * {third}"


def row_numbers(kernel: SharedAttention, rows: str) -> None:
    """Lines with the number of each packed row's head among all of the batch, and of its query there."""
    groups, heads = (kernel.writer.size(size) for size in (kernel.found.batch[1], kernel.batch[1]))
    kernel.writer.line(f"heads = batch // {groups} * {heads} + batch % {groups} * heads_each + rows // {rows}")
    kernel.writer.line(f"positions = rows % {rows}")


def own_share(kernel: SharedAttention, bounded: bool) -> None:
    """The columns of a program that shares them: from `first` to `last`, whole blocks but for the last one's. bounded:
    whether `first` and `last` say already which are shared."""
    writer, columns = kernel.writer, kernel.writer.size(kernel.found.columns)
    if bounded:
        writer.line(f"share = tl.cdiv(tl.cdiv(last - first, BLOCK_N), {kernel.split}) * BLOCK_N")
        writer.line("first = tl.minimum(first + tl.program_id(2) * share, last)")
        writer.line("last = tl.minimum(first + share, last)")
        return
    writer.line(f"share = tl.cdiv(tl.cdiv({columns}, BLOCK_N), {kernel.split}) * BLOCK_N")
    writer.line("first = tl.minimum(tl.program_id(2) * share, n_cols)")
    writer.line("last = tl.minimum(first + share, n_cols)")


def store_share(kernel: SharedAttention, batches: str) -> None:
    """What a program found in its columns. batches: how many there are."""
    writer, name = kernel.writer, kernel.found.result.name
    writer.line(f"place = (tl.program_id(2) * {batches} + batch) * {kernel.n_rows} + rows")
    writer.line(f"tl.store(parts + place * OUT_WIDTH + outer, {name}, mask=row_mask & (outer < OUT_WIDTH))")
    writer.line("tl.store(tops + place, top, mask=row_mask)")
    writer.line("tl.store(totals + place, total, mask=row_mask)")


def combine(kernel: SharedAttention, name: str) -> Writer:
    """The second kernel: a program puts one row together and does what comes after the product."""
    graph, found = kernel.graph, kernel.found
    writer = Writer(graph, kernel.body, f"{name}_combine_kernel")
    writer.line("row = tl.program_id(0)")
    writer.widen("row")
    writer.line("place = tl.arange(0, SPLIT)[:, None] * tl.num_programs(0) + row")
    writer.line("outer = tl.arange(0, BLOCK_V)[None, :]")
    writer.line("out_mask = outer < OUT_WIDTH")
    writer.line("top = tl.load(tops + place)")
    writer.line("largest = tl.max(top, axis=0, keep_dims=True)")
    writer.comment("a row of which all columns are masked has no largest score")
    writer.line(factor_line(writer, found))
    writer.line('scale = tl.exp2((top - tl.where(largest == float("-inf"), 0.0, largest)) * factor)')
    writer.line("total = tl.sum(tl.load(totals + place) * scale, axis=0, keep_dims=True)")
    writer.line("part = tl.load(parts + place * OUT_WIDTH + outer, mask=out_mask, other=0.0)")
    result = found.result.name
    writer.line(f"{result} = tl.sum(part * scale, axis=0, keep_dims=True)")
    writer.line(f"{result} = {found.quotient(result, 'total')}")
    variables: Variables = {result: result}
    if found.after:
        rows = writer.preset(found.rows, "n_rows")
        writer.line(f"batch = row // {rows}")
        writer.line(f"rows = row % {rows}")
    groups = (Group("rows", found.rows, ""), Group("outer", found.out_width, "out_mask"))
    for node in found.after:
        alone = len(node.shape) <= 2 or same(product(node.shape[:-2]), ())
        own = groups if alone else (Group("batch", product(kernel.batch), ""), *groups)
        write_maps(writer, [node.name], own, variables)
    for value in kernel.body.stores:
        writer.store(value, variables[value], "row * OUT_WIDTH + outer", "out_mask")
    return writer
