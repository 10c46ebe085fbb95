"""product_prologue: an operand of a product, made tile by tile of what lies in memory: weights of few bits, scaled.

Integers of 8 bits, or two of 4 in a byte, are read as they are and become numbers in registers, on their way to the tensor
cores; what the reference writes out is never written. Two values of each byte that it puts side by side (a stack along a
last dimension of 2) are worked out for half of the places and interleaved.

A left operand may be made of elements at other places, too (permuted, of parts, of less than its elements). Either may be
one of a batch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from mtmc.rewrite.body import Body, Node
from mtmc.rewrite.graph import Size, product, same
from mtmc.rewrite.space import Group
from mtmc.rewrite.templates.pointwise import Variables, write_maps
from mtmc.rewrite.templates.product import Product
from mtmc.rewrite.templates.writer import Writer


class TiledProduct(Protocol):
    """What is asked of the product that is being written, see `product_operands.Operands`."""

    body: Body
    writer: Writer
    found: Product
    n_n: str

    def left_groups(self) -> tuple[Group, ...]: ...


def sources(body: Body, nodes: Sequence[Node]) -> tuple[str, ...]:
    """The values from outside that an operand is made of, each once. nodes: what makes it."""
    reads = (read for node in nodes for read in node.reads() if body.node(read) is None)
    return tuple(dict.fromkeys(reads))


def write_left(kernel: TiledProduct) -> None:
    """Lines that make the left operand's tile, a, at `ks`."""
    writer, found = kernel.writer, kernel.found
    variables: Variables = {}
    names = _at_home(found.made, (found.left,), product(writer.tensor(found.left).shape))
    write_maps(writer, names, kernel.left_groups(), variables)
    # What lies outside the bounds must stay 0 whatever the work made of it.
    tile = f"tl.where(row_mask & k_mask[None, :], {variables[found.left]}, 0.0)"
    writer.line(f"a = {tile}.to({writer.pointer(found.right)}.dtype.element_ty)")


def write_right(kernel: TiledProduct, start: str, last: str) -> None:
    """Lines that make the right operand's tile, b, of the slices from `start` on. last: where the slices end."""
    writer, found = kernel.writer, kernel.found
    variables: Variables = {}
    columns: tuple[str, str] = ("cols", "col_mask")
    inner = ("ks[:, None]", "k_mask[:, None]")
    if found.transposed:  # as it lies in memory, the inner dimension last
        writer.line("ns = block_n * BLOCK_N + tl.arange(0, BLOCK_N)[:, None]")
        writer.line(f"n_mask = (ns < {kernel.n_n}) | EVEN_N")
        columns, inner = ("ns", "n_mask"), ("ks[None, :]", "k_mask[None, :]")
    across, down = Group(columns[0], found.n, columns[1]), Group(inner[0], found.k, inner[1])
    groups: tuple[Group, ...] = (across, down) if found.transposed else (down, across)
    if found.batch:
        groups = (Group("batch", product(found.batch), ""), *groups)
    joined = _interleaved(kernel)
    if joined is not None:
        half = product(joined.shape[1:-1])
        writer.line(f"halves = {start} // 2 + tl.arange(0, BLOCK_K // 2)")
        writer.line(f"half_mask = (halves < {last} // 2) | EVEN_K")
        pairs: Variables = {}
        names = _at_home(found.prologue, joined.reads(), product((found.n, half)))
        write_maps(writer, names, (across, Group("halves[None, :]", half, "half_mask[None, :]")), pairs)
        low, high = (pairs[read] for read in joined.reads())
        writer.line(f"{joined.name} = tl.interleave({low}, {high})")
        variables[joined.name] = joined.name
    names, before = (
        _at_home(found.prologue, (found.right,), product((*found.batch, found.n, found.k)), joined),
        len(writer.lines),
    )
    write_maps(writer, names, groups, variables)
    writer.lines[before:] = _once_a_group(writer.lines[before:], start)
    # What lies outside the bounds must stay 0 whatever the work made of it.
    tile = f"tl.where({columns[1]} & {inner[1]}, {variables[found.right]}, 0.0)"
    tile = f"{tile}.to({writer.pointer(found.left)}.dtype.element_ty)"
    writer.line(f"b = tl.trans({tile})" if found.transposed else f"b = {tile}")


def _once_a_group(lines: list[str], start: str) -> list[str]:
    """The same lines, but for what belongs to groups of neighbours along the inner dimension: where a slice lies in one
    group, one number of each column is loaded for all of it."""
    found, names = list[str](), list[str]()
    for line in lines:
        group = _GROUP.fullmatch(line)
        if group is not None:
            space, name, size = group.groups()
            names.append(name)
            found.append(f"{space}{name} = {start} // {size} if {size} % BLOCK_K == 0 else ks[None, :] // {size}")
            found.append(f"{space}{name}_mask = True if {size} % BLOCK_K == 0 else k_mask[None, :]")
            continue
        address = line.partition(", mask=")[0]
        own = [name for name in names if re.search(rf"\b{name}\b", address)]
        alone = len(own) == 1 and "tl.load(" in line and not re.search(r"\bks\b", address)
        found.append(line.replace("k_mask[None, :]", f"{own[0]}_mask") if alone else line)
    return found


_GROUP = re.compile(r"( *)(\w+) = \(?ks\[None, :\]\)? // (\w+)")


def _at_home(nodes: Sequence[Node], wanted: tuple[str, ...], space: Size, known: Node | None = None) -> list[str]:
    """The nodes with as many elements as the space, in order, that lead to what is wanted. known: one whose value is at
    hand."""
    needed, found = set(wanted), list[str]()
    for node in reversed(nodes):
        if node.name not in needed or not same(product(node.shape), space):
            continue
        if known is None or node.name != known.name:
            found.append(node.name)
            needed |= set(node.reads()) if node.kind != "index" else set()
    return list(reversed(found))


def _interleaved(kernel: TiledProduct) -> Node | None:
    """The node that puts two values of each byte side by side, if one does and all else comes after it."""
    found = kernel.found
    nodes = [node for node in found.prologue if node.kind == "index"]
    if len(nodes) != 1 or not found.transposed or found.batch:
        return None
    [node] = nodes
    pair = node.operation == "join" and len(node.reads()) == 2 and node.dims == (len(node.shape) - 1,)
    if not pair or not same(node.shape[0], found.n) or len(node.shape) < 3:
        return None
    halves = all(kernel.body.node(read) is not None and same(_last(kernel, read), _one(node)) for read in node.reads())
    return node if halves and all(size % 2 == 0 for size in found.k) else None


def _last(kernel: TiledProduct, name: str) -> Size:
    node = kernel.body.node(name)
    assert node is not None
    return node.shape[-1]


def _one(node: Node) -> Size:
    return (1,) * len(node.shape[-1])
