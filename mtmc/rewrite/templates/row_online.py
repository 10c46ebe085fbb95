"""row_online: the largest element of a row and the sum of exponentials of the distances to it, in one pass over the row.

Each lane keeps the largest m it has seen and s, the sum of exp(x - m) so far. One more element x:

    e = exp(-|x - m|), s becomes s + e where x <= m, else s * e + 1, and m the larger of both

and in the end the lanes are put together: M is the largest m, S the sum of s * exp(m - M). That is what a softmax, a
log-softmax, a logsumexp and a cross entropy need of a row before they can write anything.
"""

from __future__ import annotations

from mtmc.rewrite.body import Body, Node
from mtmc.rewrite.templates.row_extremes import EACH_ROW, combined, reduced
from mtmc.rewrite.templates.writer import Writer

LOWEST = "-3.4028234663852886e38"
"""What a lane starts from: the smallest fp32 number, because the distance of two infinities is no number."""


def top_of_exponentials(body: Body, node: Node) -> str | None:
    """The largest x, where a node is a sum of exp(x - largest x) over the same dimensions; else None."""
    exps = body.node(node.reads()[0])
    if node.operation != "sum" or exps is None or exps.kind != "map":
        return None
    if exps.operation == "tl.exp({0})":
        exps = body.node(exps.reads()[0]) if exps.reads() else None
    elif exps.operation != "tl.exp({0} - {1})":
        return None
    if exps is None or exps.operation not in ("{0} - {1}", "tl.exp({0} - {1})") or len(exps.reads()) != 2:
        return None
    x, top = exps.operands
    found = body.node(top) if isinstance(top, str) else None
    while found is not None and found.kind == "view":
        found = body.node(found.reads()[0])
    if found is None or found.kind != "reduce" or found.operation not in ("max", "amax"):
        return None
    return found.name if found.operands[0] == x and found.dims == node.dims else None


def start(writer: Writer, top: Node, total: Node) -> None:
    """Write what a loop starts with."""
    writer.line(f"{top.name}_acc = tl.full([BLOCK_ROWS, BLOCK_COLS], {LOWEST}, tl.float32)")
    writer.line(f"{total.name}_acc = tl.zeros([BLOCK_ROWS, BLOCK_COLS], tl.float32)")


def accumulate(writer: Writer, top: Node, total: Node, value: str) -> None:
    """Write what a loop does with one piece of the rows."""
    new, old, each, acc = f"{top.name}_new", f"{top.name}_acc", f"{total.name}_each", f"{total.name}_acc"
    writer.comment("the largest so far, and the sum of exponentials of the distances to it")
    writer.line(f'{new} = tl.where(mask, {value}, float("-inf"))')
    writer.line(f"{each} = tl.exp(-tl.abs({new} - {old}))")
    writer.line(f"{acc} = tl.where({new} > {old}, {acc} * {each} + 1.0, {acc} + {each})")
    writer.line(f"{old} = {combined(top.operation, old, new)}")


def alone(writer: Writer, top: Node, total: Node, value: str) -> None:
    """Write the sum of exponentials of one piece of the rows, which is held in registers, as its largest element is."""
    own, each = f"{top.name}_own", f"{total.name}_each"
    writer.line(f"{own} = {combined(top.operation, top.name, LOWEST)}")
    writer.line(f"{each} = tl.where(mask, tl.exp({value} - {own}), 0.0)")
    writer.line(f"{total.name} = tl.sum({each}, axis=1, keep_dims=True)")


def put_together(writer: Writer, top: Node, total: Node, tops: str, totals: str, along: str = EACH_ROW) -> None:
    """Write how lanes, or shares of a row, become one. tops, totals: variables. along: see `EACH_ROW`."""
    reduced(writer, top.operation, tops, top.name, floats=True, along=along)
    writer.line(f"{total.name} = tl.sum({totals} * tl.exp({tops} - {top.name}){along})")


def restore(writer: Writer, top: Node, total: Node) -> None:
    """Write what a row has for its largest element where all of them are minus infinity."""
    writer.line(f'{top.name} = tl.where({total.name} == 0.0, float("-inf"), {top.name})')
