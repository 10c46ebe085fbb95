"""product_scales: what a product of 8-bit numbers adds up when they are scaled in groups along the inner dimension.

Where every slice lies in one group, the tensor cores multiply what lies in memory, and the sums are scaled. Elsewhere the
operands are scaled in fp32 before they are multiplied.
"""

from __future__ import annotations

from typing import Protocol

from mtmc.rewrite.body import NotCovered
from mtmc.rewrite.graph import Graph, Shape
from mtmc.rewrite.space import Group
from mtmc.rewrite.templates.elements import Elements, Variables, home
from mtmc.rewrite.templates.product import Product
from mtmc.rewrite.templates.writer import Writer


class ScaledProduct(Protocol):
    """What is asked of the product that is being written, see `product_operands.Operands`."""

    graph: Graph
    writer: Writer
    found: Product


def add_scaled(kernel: ScaledProduct) -> None:
    """Lines that add the scaled product of the tiles a and b at hand. Raises: NotCovered."""
    writer, found = kernel.writer, kernel.found
    name = found.dot.name
    writer.line("if IN_GROUPS:  # every slice lies in one group")
    writer.level += 1
    factors = [_scale(kernel, scale, side, "start", "") for scale, side, _ in found.scales]
    writer.line(f"{name} += {' * '.join(['tl.dot(a, b)', *factors])}")
    writer.level -= 1
    writer.line("else:")
    writer.level += 1
    tiles = {0: "a.to(tl.float32)", 1: "b.to(tl.float32)"}
    for scale, side, _ in found.scales:
        inner = ("ks[:, None]", "k_mask[:, None]") if side else ("ks[None, :]", "k_mask[None, :]")
        tiles[side] += f" * {_scale(kernel, scale, side, *inner)}"
    writer.line(f'{name} = tl.dot({tiles[0]}, {tiles[1]}, {name}, input_precision="ieee")')
    writer.level -= 1


def _scale(kernel: ScaledProduct, scale: str, side: int, inner: str, mask: str) -> str:
    """The scales of a tile's rows (side 0) or columns at a place along the inner dimension."""
    writer, found = kernel.writer, kernel.found
    outer = Group("cols", found.n, "col_mask") if side else Group("rows", found.m, "row_mask")
    along = Group(inner, found.k, mask)
    groups = (along, outer) if side and not found.transposed else (outer, along)
    variables: Variables = {}
    elements = Elements(writer, groups, variables)
    at = home(writer, _shape(kernel, scale), groups)
    if at is None:
        raise NotCovered(f"{scale} is not of its operand's shape")
    return elements.value(scale, at)


def _shape(kernel: ScaledProduct, scale: str) -> Shape:
    node = kernel.writer.body.node(scale)
    return kernel.graph.values[scale].shape if node is None else node.shape
