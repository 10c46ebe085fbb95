"""row_passes: how a row is reduced: at once where it is held in registers, or piece by piece where it is looped over.

A sum of squared distances to the mean ("deviations") needs the mean. Over pieces, each lane keeps the mean and the
deviations of the columns it has seen (Welford's update), and in the end the lanes are put together (Chan's formula):

    n = n1 + n2, deviations = d1 + d2 + n1 (m1 - m)^2 + n2 (m2 - m)^2, m the mean of both

so a variance takes one pass over memory, without the cancellation that a sum of squares has.
"""

from __future__ import annotations

from dataclasses import dataclass

from mtmc.rewrite.body import Body, Node, Trailing
from mtmc.rewrite.space import Group, bare
from mtmc.rewrite.templates.pointwise import Variables, load_once
from mtmc.rewrite.templates.row_extremes import EACH_ROW, PLACES, accumulator, combined, first_place, reduced
from mtmc.rewrite.templates.writer import Writer


def together(writer: Writer, node: Node, values: str, count: str, along: str = EACH_ROW) -> None:
    """All values of a reduction as one: `{name}`. along: see `EACH_ROW`; a product is that of each row."""
    if node.operation != "prod":
        reduced(writer, node.operation, values, node.name, accumulator(writer.body, node)[1] == "tl.float32", along)
        return
    zero = accumulator(writer.body, node)[0].replace("1", "0")
    writer.line(f"{node.name}_run = tl.cumprod({values}, axis=1)  # the last of them is the product of all")
    last = f"tl.arange(0, {count})[None, :] == {count} - 1"
    writer.line(f"{node.name} = tl.sum(tl.where({last}, {node.name}_run, {zero}), axis=1, keep_dims=True)")


_PICKED = "tl.where({cols} == {1}, {0}, 0.0)"


def picked(body: Body, node: Node) -> Node | None:
    """What a reduction sums up, where that is one element of each row, straight from outside; else None."""
    found = body.node(node.reads()[0])
    if node.operation != "sum" or found is None or found.operation != _PICKED or found.name in body.stores:
        return None
    value, _ = found.operands
    return found if isinstance(value, str) and body.node(value) is None else None


def pick(writer: Writer, node: Node, found: Node, groups: tuple[Group, ...], variables: Variables, cols: str) -> None:
    """Load that element alone: no look at all others is needed."""
    value, item = found.operands
    assert isinstance(value, str) and isinstance(item, str | Trailing)
    place, inside = load_once(writer, item, found.shape, groups, variables), f"{node.name}_inside"
    writer.line(f"{inside} = row_mask & ({place} >= 0) & ({place} < {cols})")
    chosen = tuple(Group(place if group.index == "cols" else group.index, group.size, "") for group in groups)
    offset = bare(writer.access(value, found.shape, chosen).offset)
    address = f"{writer.pointer(value)} + {offset}"
    writer.line(f"{node.name} = tl.load({address}, mask={inside}, other=0.0).to(tl.float32)")
    variables[node.name] = node.name


@dataclass(frozen=True)
class Pass:
    """A loop over columns: from `first` up to `last` (expressions)."""

    first: str
    last: str

    @property
    def width(self) -> str:
        """Number of columns, at least 0."""
        return self.last if self.first == "0" else f"tl.maximum({self.last} - {self.first}, 0)"


def whole(writer: Writer, node: Node, value: str, variables: Variables, cols: str) -> None:
    """Reduce rows that are held in registers."""
    name, guarded = node.name, _guarded(writer, node, value)
    if node.operation == "deviations":
        mean = variables[node.reads()[1]]
        writer.line(f"{name}_apart = tl.where(mask, {value} - {mean}, 0.0)")
        writer.line(f"{name} = tl.sum({name}_apart * {name}_apart, axis=1, keep_dims=True)")
    elif node.operation in PLACES:
        writer.line(f"{name}_each = {guarded}")
        first_place(writer, node, f"{name}_each", "cols", cols)
    else:
        together(writer, node, guarded, "BLOCK_COLS")
    variables[name] = name


def deviations_alone(writer: Writer, node: Node, value: str, cols: str, total: str = "") -> None:
    """Squared distances of one piece of the rows, which is held in registers, to its own mean, `{name}_centre`. total: the
    piece's sum, where that is known."""
    name, width = node.name, f"tl.minimum({cols} - start, BLOCK_COLS)"
    total = total or f"tl.sum({_guarded(writer, node, value)}, axis=1, keep_dims=True)"
    writer.line(f"{name}_centre = {total} / {width}")
    writer.line(f"{name}_apart = tl.where(mask, {value} - {name}_centre, 0.0)")
    writer.line(f"{name} = tl.sum({name}_apart * {name}_apart, axis=1, keep_dims=True)")


def _guarded(writer: Writer, node: Node, value: str) -> str:
    """What a reduction reads, or what changes nothing where no column is: rows that are none are never stored."""
    if node.operation in ("sum", "deviations") and writer.blank is not None and value in writer.blank:
        return value
    return f"tl.where(mask, {value}, {accumulator(writer.body, node)[0]})"


def start(writer: Writer, node: Node) -> None:
    """Write what a reduction starts a loop with."""
    identity, dtype = accumulator(writer.body, node)
    writer.line(f"{node.name}_acc = tl.full([BLOCK_ROWS, BLOCK_COLS], {identity}, {dtype})")
    if node.operation == "deviations":
        writer.line(f"{node.name}_mean = tl.zeros([BLOCK_ROWS, BLOCK_COLS], tl.float32)")
    elif node.operation.startswith("arg"):
        writer.line(f"{node.name}_at = tl.zeros([BLOCK_ROWS, BLOCK_COLS], tl.int32)")


def accumulate(writer: Writer, node: Node, value: str, loop: Pass) -> None:
    """Write what a reduction does with one piece of the rows."""
    name, guarded = node.name, _guarded(writer, node, value)
    if node.operation == "deviations":
        done = "start" if loop.first == "0" else f"(start - {loop.first})"
        writer.comment("each lane's mean and squared distances to it, one more column a turn")
        writer.line(f"{name}_new = tl.where(mask, {value}, {name}_mean)")
        writer.line(f"{name}_apart = {name}_new - {name}_mean")
        writer.line(f"{name}_mean += {name}_apart * (1.0 / ({done} // BLOCK_COLS + 1))")
        writer.line(f"{name}_acc += {name}_apart * ({name}_new - {name}_mean)")
    elif node.operation.startswith("arg"):
        better = f"{name}_new {'>' if node.operation == 'argmax' else '<'} {name}_acc"
        if accumulator(writer.body, node)[1] == "tl.float32":  # the first NaN is beaten by none
            better = f"({better}) | (({name}_new != {name}_new) & ({name}_acc == {name}_acc))"
        writer.line(f"{name}_new = {guarded}")
        writer.line(f"{name}_at = tl.where({better}, cols, {name}_at)")
        writer.line(f"{name}_acc = " + combined(node.operation, f"{name}_acc", f"{name}_new"))
    else:
        writer.line(f"{name}_acc = " + combined(node.operation, f"{name}_acc", guarded))


def finish(writer: Writer, node: Node, loop: Pass) -> None:
    """Write how the lanes of a loop are put together."""
    name = node.name
    if node.operation == "deviations":
        writer.comment("a lane has seen every BLOCK_COLS-th column; now all lanes as one")
        writer.line(f"{name}_seen = tl.cdiv({loop.width} - tl.arange(0, BLOCK_COLS)[None, :], BLOCK_COLS)")
        put_together(writer, name, f"{name}_mean", f"{name}_acc", f"{name}_seen", loop.width)
    elif node.operation.startswith("arg"):
        first_place(writer, node, f"{name}_acc", f"{name}_at", loop.last)
    else:
        together(writer, node, f"{name}_acc", "BLOCK_COLS")


def put_together(
    writer: Writer, name: str, means: str, deviations: str, counts: str, total: str, along: str = EACH_ROW
) -> None:
    """Deviations of parts as one: the squared distances of the parts' means to the mean of all come in addition.

    means, deviations, counts: variables. total: number of columns. along: see `EACH_ROW`. Leaves the mean in
    `{name}_centre`.
    """
    writer.line(f"{name}_weighed = {means} * {counts}")
    writer.line(f"{name}_centre = tl.sum({name}_weighed{along}) / {at_least_one(total)}")
    together_around(writer, name, means, deviations, counts, along)


def at_least_one(count: str) -> str:
    """A number of columns as a divisor: none where a program has no share of a row."""
    return count if count.isidentifier() else f"tl.maximum({count}, 1)"


def together_around(writer: Writer, name: str, means: str, deviations: str, counts: str, along: str = EACH_ROW) -> None:
    """As `put_together`, where the mean of all is known: `{name}_centre`."""
    writer.line(f"{name}_off = {means} - {name}_centre")
    writer.line(f"{name}_all = {deviations} + {counts} * {name}_off * {name}_off")
    writer.line(f"{name} = tl.sum({name}_all{along})")
