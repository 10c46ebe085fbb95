"""product_statistics: a norm, or other work on whole rows, before a product: what is known of each row before its tiles.

A program owns rows of the left operand from end to end, so it can find their means and sums itself: it looks at its rows
once for every reduction that waits for another, and then makes each tile of the left operand from what lies in memory, as
it does with elementwise work. The rows are looked at again for every block of columns, so this is for few rows, where it
saves a launch, and for products that memory limits: these wait for what writing the rows and reading them again takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from mtmc.rewrite.body import Body, Node, NotCovered
from mtmc.rewrite.graph import Shape, Size, is_one
from mtmc.rewrite.space import Group
from mtmc.rewrite.templates.pointwise import Variables, load_once, write_maps
from mtmc.rewrite.templates.row_extremes import IDENTITY, combined, reduced
from mtmc.rewrite.templates.writer import Writer

MOST_ELEMENTS = 2**17
"""Of the rows that a program reduces itself, of which it owns 64 at most. An SM reads 64 bytes a clock from the cache: of 16
bits each they take 2.4 us at 1.7 GHz, about what a launch costs."""
OWN_ROWS = 64
MOST_ROWS = 128
"""Of the left operand: with more, several programs look at rows for each block of columns."""
MOST_WEIGHTS = 2**18
"""Of the right operand, with more rows than that: half a MiB of 16 bits, from any cache. A row then is 2 n k operations for
n + k numbers of 2 bytes, at most 256 a byte where n = k. Memory limits that on an H100, whose tensor cores do 295 while it
moves a byte."""
REDUCTIONS = ("sum", "deviations", "max", "amax", "amin")


class RowsOfProduct(Protocol):
    """What is asked of the product that is being written, see `product_operands.Operands`."""

    writer: Writer
    body: Body
    n_k: str

    def left_groups(self) -> tuple[Group, ...]: ...
    def load_left(self) -> None: ...
    def left_variables(self, shape: Shape) -> Variables: ...
    @property
    def statistics(self) -> tuple[Node, ...]: ...
    @property
    def before(self) -> tuple[Node, ...]: ...


@dataclass(frozen=True)
class Making:
    """What makes a left operand, each in order: what is known of its rows, the work on its elements, and beside it what is
    of fewer elements (1 + a weight), which is computed where the work needs it."""

    statistics: tuple[Node, ...] = ()
    before: tuple[Node, ...] = ()
    beside: tuple[Node, ...] = ()

    @property
    def all(self) -> tuple[Node, ...]:
        """All of them."""
        return (*self.statistics, *self.before, *self.beside)


def made_of(body: Body, value: str, k: Size) -> Making:
    """What makes a left operand. k: number of elements of a row. Raises: NotCovered where there is other work than that."""
    needed, found = {value}, list[Node]()
    for node in reversed(body.nodes):
        if node.name not in needed:
            continue
        if node.kind not in ("map", "reduce"):
            raise NotCovered(f"{node.name} before the product is not elementwise")
        found.append(node)
        needed |= set(node.reads())
    found.reverse()
    if not found:
        return Making()
    rows = [node for node in found if node.shape and is_one(node.shape[-1]) and not is_one(k)]
    whole = [node for node in found if node not in rows]
    if any(node.kind == "reduce" for node in whole):
        raise NotCovered("rows before the product that are reduced to less than a number each")
    for node in rows:
        if node.kind == "reduce":
            _check(body, node)
    if not any(node.kind == "reduce" for node in rows):
        rows, whole = [], found
    full = [node for node in whole if node.shape == found[-1].shape]
    beside = [node for node in whole if node not in full]
    own = {node.name for node in (*rows, *full)}
    if any(own & set(node.reads()) for node in beside):
        raise NotCovered("work before the product that broadcasts")
    return Making(tuple(rows), tuple(full), tuple(beside))


def check(body: Body, made: Making, rows: Size, n: Size, k: Size) -> None:
    """Raises: NotCovered where such work does not pay, or is needed elsewhere too. Work on elements is done again there."""
    own = {node.name for node in made.all}
    if own & set(body.stores):
        raise NotCovered("the left operand is also needed elsewhere")
    if not made.statistics:
        return
    if rows[0] > MOST_ROWS and n[0] * k[0] > MOST_WEIGHTS:
        raise NotCovered("a norm before a product of many rows that tensor cores limit")
    if min(rows[0], OWN_ROWS) * k[0] > MOST_ELEMENTS:
        raise NotCovered("a norm before a product of long rows, which each block of columns looks at again")
    others = [node for node in body.nodes if node.name not in own and node.kind != "dot"]
    if any(own & set(node.reads()) for node in others):
        raise NotCovered("the normalized operand is also needed elsewhere")


def _check(body: Body, node: Node) -> None:
    operand = body.node(node.reads()[0])
    last = len(node.shape) - 1
    if node.operation not in REDUCTIONS or node.dims != (last,):
        raise NotCovered(f"{node.name} before the product is not one number for each row")
    if operand is not None and operand.compute == "int":
        raise NotCovered(f"{node.name} before the product is of whole numbers")


def write_statistics(kernel: RowsOfProduct) -> Variables:
    """Lines that find what is known of each row. Returns: the variables that hold it."""
    known: Variables = {}
    waiting = list(kernel.statistics)
    while waiting:
        ready = [node for node in waiting if node.kind == "map" and _reads_from(kernel, node) <= known.keys()]
        if ready:
            rows = tuple(group for group in kernel.left_groups() if group.index == "rows")
            write_maps(kernel.writer, [node.name for node in ready[:1]], rows, known)
            waiting.remove(ready[0])
            continue
        together = [node for node in waiting if node.kind == "reduce" and _reads_from(kernel, node) <= known.keys()]
        _write_loop(kernel, together, known)
        waiting = [node for node in waiting if node not in together]
    names = {node.name for node in kernel.statistics}
    return {key: variable for key, variable in known.items() if key in names}


def _reads_from(kernel: RowsOfProduct, node: Node) -> set[str]:
    """The numbers of rows that a node hangs on, straight or through work on elements."""
    rows, found, todo = {each.name for each in kernel.statistics}, set[str](), list(node.reads())
    while todo:
        name = todo.pop()
        made = kernel.body.node(name)
        if name in rows:
            found.add(name)
        elif made is not None:
            todo += made.reads()
    return found


def _needed(kernel: RowsOfProduct, reductions: Sequence[Node]) -> list[str]:
    """The work on elements that reductions hang on, in order."""
    needed, found = {node.reads()[0] for node in reductions}, list[str]()
    for node in reversed(kernel.before):
        if node.name in needed:
            found.append(node.name)
            needed |= set(node.reads())
    return found[::-1]


def _write_loop(kernel: RowsOfProduct, reductions: Sequence[Node], known: Variables) -> None:
    """One look at the rows, for all reductions that are ready for it."""
    writer = kernel.writer
    for node in reductions:
        writer.line(f"{node.name} = tl.full([BLOCK_M, 1], {IDENTITY[node.operation]}, tl.float32)")
    writer.line(f"for start in range(0, {kernel.n_k}, BLOCK_K):")
    writer.level += 1
    writer.line("ks = start + tl.arange(0, BLOCK_K)")
    writer.line(f"k_mask = (ks < {kernel.n_k}) | EVEN_K")
    kernel.load_left()
    shape = kernel.before[-1].shape
    variables = {**known, **kernel.left_variables(shape)}
    write_maps(writer, _needed(kernel, reductions), kernel.left_groups(), variables)
    inside = "row_mask & k_mask[None, :]"
    for node in reductions:
        name, read = node.name, node.reads()[0]
        value = variables[read] if read in variables else _loaded(kernel, read, shape, variables)
        if node.operation == "deviations":
            writer.line(f"{name}_apart = tl.where({inside}, {value} - {variables[node.reads()[1]]}, 0.0)")
            writer.line(f"{name} += tl.sum({name}_apart * {name}_apart, axis=1, keep_dims=True)")
            continue
        guarded = f"tl.where({inside}, {value}, {IDENTITY[node.operation]})"
        reduced(writer, node.operation, guarded, f"{name}_block", floats=True)
        writer.line(f"{name} = {combined(node.operation, name, f'{name}_block')}")
    writer.level -= 1
    known.update({node.name: node.name for node in reductions})


def _loaded(kernel: RowsOfProduct, value: str, shape: Shape, variables: Variables) -> str:
    """The variable of a value from outside: the left operand's tile, or another tensor of as many rows, whose squares (say)
    an earlier kernel has made."""
    if (value, shape) in variables:
        return variables[(value, shape)]
    return load_once(kernel.writer, value, kernel.writer.tensor(value).shape, kernel.left_groups(), variables)
