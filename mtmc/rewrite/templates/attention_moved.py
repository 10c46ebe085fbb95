"""attention_moved: tiles of queries, keys and values that are elements of other tensors, read where they lie.

Keys in pages, which a table puts in order, heads that are repeated, windows that are rolled: what moves elements is an index
expression of the kernel, and nobody writes a copy in order.
"""

from __future__ import annotations

from typing import Protocol

from mtmc.rewrite.graph import Graph, Size, is_one, product, same
from mtmc.rewrite.index_maps import At
from mtmc.rewrite.places import Digit, Place, digits, number_place, one
from mtmc.rewrite.space import Group
from mtmc.rewrite.templates.elements import Elements, Variables
from mtmc.rewrite.templates.softmax_product import SoftmaxProduct
from mtmc.rewrite.templates.writer import Writer


class MovedAttention(Protocol):
    """What is asked of the attention that is being written, see `attention_operands.Operands`."""

    graph: Graph
    writer: Writer
    found: SoftmaxProduct


def write_tile(
    kernel: MovedAttention, variable: str, value: str, down: Group, across: Group, block: str, known: Variables
) -> None:
    """Lines that load a tile. down, across: the indices that run along the value's last two dimensions. block: the tile's
    shape. known: what stands in variables of the kernel. Raises: NotCovered."""
    writer, found = kernel.writer, kernel.found
    batch = Group("batch", product(found.batch), "")
    # The order of the groups is that of the value's dimensions.
    elements = Elements(writer, (batch, down, across), dict(known))
    text = elements.value(value, (*_matrix(kernel, value), _running(down), _running(across)))
    dtype = kernel.graph.values[value].dtype
    cast = "" if dtype == "float32" else f".to(tl.{dtype})"
    writer.line(f"{variable} = tl.broadcast_to({text}, [{block}]){cast}")


def _running(group: Group) -> Place:
    return one(Digit(group.index, (1,) * len(group.size), group.size, True))


def _matrix(kernel: MovedAttention, value: str) -> At:
    """Which of a value's matrices a program reads: its place along each dimension of the batch."""
    batch, ones = kernel.found.batch, (1,) * len(kernel.graph.variants)
    places = digits(one(Digit("batch", ones, product(batch), True)), batch)
    shape = kernel.graph.values[value].shape
    return tuple(_shared(place, own, whole) for place, own, whole in zip(places, shape, batch, strict=False))


def _shared(place: Place, own: Size, whole: Size) -> Place:
    if is_one(own):
        return number_place((0,) * len(own))
    if same(own, whole):
        return place
    return place.quotient(tuple(b // a for a, b in zip(own, whole, strict=True)))
