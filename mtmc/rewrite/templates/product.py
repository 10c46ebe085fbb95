"""product: what a body with a matrix product multiplies, and what it does before and after.

There may be several products of one left operand with matrices of one shape, as the two of a gated MLP: a tile of the left
operand is then read once for all of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from mtmc.rewrite.body import GROUPED, Body, Index, Node, NotCovered, Number, leading_to
from mtmc.rewrite.graph import FP8, Graph, Shape, Size, Tensor, is_dense, product, same
from mtmc.rewrite.scaled import scales_of
from mtmc.rewrite.templates.product_rows import row_work
from mtmc.rewrite.templates.product_statistics import Making, check, made_of

ELEMENTS = ("map", "view", "index")
"""Kinds of nodes of which each element can be known by itself, wherever it is needed."""
MAX_BATCH_DIMS = 4


MAX_FACTORS = 3
"""Products that one kernel makes: each has a tile of its own in registers."""


@dataclass(frozen=True)
class Factor:
    """A product and its right operand, a value from outside: [k, n], or [n, k] if transposed."""

    dot: Node
    right: str
    transposed: bool


@dataclass(frozen=True)
class Product:
    """What a body multiplies.

    left: a value from outside, unless the kernel makes it; a matrix may be that of all products of a batch. factors: what it
    is multiplied by, mostly one; a layer's weights may be those of a whole batch, too. batch: batch dimensions (empty: one
    product, with the left's leading dimensions folded into rows). m, n, k: sizes. statistics: what is known of each row of
    the left operand before its elements are (see `product_statistics`); before: maps on the left operand; made: what makes
    it where that is more, and it is no value from outside; prologue: what makes the right operand, likewise; after: the
    rest, without what is computed where an element of it is needed: scales of groups, and other work on less than the
    product. dtype: in which tiles are multiplied. scales: of groups of neighbours along k, see `scaled.scales_of`. offsets:
    where groups of rows end that have a right operand each, and groups: how many there are (see `product_groups`); "" and ()
    where all rows have one. beside: what is computed where an element of it is needed.
    """

    left: str
    factors: tuple[Factor, ...]
    batch: Shape
    m: Size
    n: Size
    k: Size
    before: tuple[Node, ...]
    after: tuple[Node, ...]
    reduces: bool
    prologue: tuple[Node, ...] = ()
    dtype: str = ""
    scales: tuple[tuple[str, int, Size], ...] = ()
    statistics: tuple[Node, ...] = ()
    offsets: str = ""
    groups: Size = ()
    made: tuple[Node, ...] = ()
    beside: tuple[Node, ...] = ()

    @property
    def fp8(self) -> bool:
        """Whether the tensor cores multiply numbers of 8 bits."""
        return self.dtype in FP8

    @property
    def whole_numbers(self) -> bool:
        """Whether they multiply whole numbers of 8 bits."""
        return self.dtype == "int8"

    @property
    def of_8_bits(self) -> bool:
        """Whether the tensor cores multiply numbers of 8 bits, of either kind."""
        return self.fp8 or self.whole_numbers

    @property
    def short(self) -> bool:
        """Whether they multiply numbers of 16 or 8 bits."""
        return self.dtype in ("float16", "bfloat16") or self.of_8_bits

    @property
    def dot(self) -> Node:
        """The first product."""
        return self.factors[0].dot

    @property
    def right(self) -> str:
        """The first product's right operand."""
        return self.factors[0].right

    @property
    def transposed(self) -> bool:
        """Whether the right operands are [n, k]."""
        return self.factors[0].transposed

    def tiles_of(self, value: str, right: bool = False) -> str:
        """What the descriptor of an operand's or a result's tiles is called. right: of a right operand, whose tiles are
        others than the left one's though it be the same tensor."""
        return f"{value}_right_tiles" if right and value == self.left else f"{value}_tiles"


def analyse(graph: Graph, body: Body) -> Product:
    """The product of a body, or the products of one operand. Raises: NotCovered where there is more than that, with work
    before and after."""
    dots = [node for node in body.nodes if node.kind == "dot"]
    factors = tuple(Factor(dot, dot.reads()[1], dot.operation == "a @ b.T") for dot in dots)
    left = dots[0].reads()[0]
    _check_factors(graph, body, factors, left)
    under = _under_view(graph, body, left)
    making, source, elsewhere = (Making(), under, ()) if under else _left(graph, body, left)
    statistics, before = making.statistics, making.before
    prologue = _prologue(body, factors[0].right, "right") if body.node(factors[0].right) is not None else ()
    grouped = dots[0].operation == GROUPED
    scales = () if grouped else tuple(scales_of(dots[0]))
    made = graph.values.get(left)
    dtype = made.dtype if made is not None and made.is_fp8 else graph.values[source].dtype
    operands = (*dots, *making.all, *elsewhere, *prologue)
    aside = _aside(body, operands, left if under else "")
    if dtype not in FP8 and (_all_as_large(aside, dots[0]) or any(node.kind == "reduce" for node in body.nodes)):
        aside = ()  # the kernel goes over these
    others = (*operands, *aside)
    after = tuple(node for node in body.nodes if node not in others and not (under and node.name == left))
    a, transposed = graph.values[source], factors[0].transposed
    b = graph.values.get(factors[0].right) or Tensor(_shape_of(graph, body, factors[0].right), dtype, True)
    if dtype != b.dtype and not {dtype, b.dtype} <= FP8.keys():
        raise NotCovered(f"a product of {dtype} and {b.dtype}")
    if scales and (len(factors) > 1 or prologue):
        raise NotCovered("scales of groups beside work on the right operand, or for several products")
    across = transposed and not grouped and not elsewhere and _lies_across(a)
    batched = across or (len(b.shape) > 2 and not grouped)
    if elsewhere and (scales or grouped):
        raise NotCovered("a left operand made in the kernel, with scales or in groups of rows")
    if grouped and (prologue or under or statistics or dtype in FP8 or len(a.shape) != 2):
        raise NotCovered("groups of rows beside work on right operands, rows that are reduced, or 8-bit numbers")
    if batched and len(a.shape) == 2 and before:
        raise NotCovered("work on the left operand that all products of a batch share")
    if prologue and (before or elsewhere or (batched and (len(a.shape) == 2 or dtype in FP8))):
        raise NotCovered("work on the right operand of products that share the left one, or on both operands")
    batch = (a.shape[:-2] or b.shape[:-2]) if batched else ()
    if prologue and batch and b.shape[:-2] != batch:
        raise NotCovered("work on a right operand that several products of a batch share")
    if len(batch) > MAX_BATCH_DIMS:
        raise NotCovered(f"more than {MAX_BATCH_DIMS} batch dimensions")
    shape = _shape_of(graph, body, left) if under else a.shape
    m = shape[-2] if batched else product(shape[:-1])
    n, k = (b.shape[-2], b.shape[-1]) if transposed else (b.shape[-1], b.shape[-2])
    if not batched and len(shape) > 2 and not a.contiguous and not elsewhere:
        raise NotCovered("a left operand whose leading dimensions cannot be folded")
    reduces = bool(row_work(body, dots[0], after, n).reductions)
    if reduces and (len(factors) > 1 or statistics):
        raise NotCovered("several products whose columns are reduced, or rows that are reduced for each of them")
    if statistics and (batched or prologue or dtype in FP8):
        raise NotCovered("rows that are reduced before products of a batch, of 8 bits or of what is made in the kernel")
    if grouped and reduces:
        raise NotCovered("reductions over the columns of a product of groups")
    check(body, making, m, n, k)
    if dtype == "int8" and (reduces or elsewhere or prologue or making.all or len(factors) > 1):
        raise NotCovered("products of whole numbers beside work on operands, or whose columns are reduced")
    groups = (dots[0].reads()[2], b.shape[0]) if grouped else ("", ())
    rest = (scales, statistics, *groups, elsewhere, aside)
    return Product(source, factors, batch, m, n, k, before, after, reduces, prologue, dtype, *rest)


def _left(graph: Graph, body: Body, left: str) -> tuple[Making, str, tuple[Node, ...]]:
    """What makes a left operand, and the value from outside whose tiles are loaded for that; or, where it is made of
    elements at other places or of another type, the nodes that do so, and the operand itself. Raises: NotCovered."""
    made = graph.values.get(left)
    try:
        making = made_of(body, left, _shape_of(graph, body, left)[-1])
        source = _source(graph, body, left, making.before)
        cast = made is not None and not made.is_fp8 and made.dtype != graph.values[source].dtype
        if making.statistics or not cast:
            return making, source, ()
    except NotCovered:
        if made is None or any(node.kind not in ELEMENTS for node in _makers(body, left)):
            raise
    nodes = _prologue(body, left, "left")
    values = {value for node in nodes for value in (node.name, *node.reads()) if value in graph.values}
    if any(graph.values[value].is_fp8 for value in values):
        raise NotCovered("a left operand made in the kernel of 8-bit numbers, which tensor cores multiply themselves")
    return Making(), left, nodes


def _under_view(graph: Graph, body: Body, left: str) -> str:
    """The value from outside, in order in memory, that an 8-bit left operand is a view of; "" where it is none."""
    node = body.node(left)
    value = node.reads()[0] if node is not None and node.kind == "view" else ""
    tensor = graph.values.get(value)
    return value if body.node(value) is None and tensor is not None and tensor.contiguous and tensor.is_fp8 else ""


def _lies_across(left: Tensor) -> bool:
    """Whether the rows of a left operand are no rows of one matrix: a layer of it is a product for each of a batch."""
    return len(left.shape) > 2 and not left.contiguous


def _shape_of(graph: Graph, body: Body, name: str) -> Shape:
    node = body.node(name)
    return graph.values[name].shape if node is None else node.shape


def _aside(body: Body, first: Sequence[Node], view: str) -> tuple[Node, ...]:
    """What is computed where an element of it is needed: all that neither makes operands (or is what they are made to)
    nor hangs on the product. first: the nodes that do. view: under which the left operand is read."""
    behind, found = {view, *(node.name for node in first)}, list[Node]()
    for node in body.nodes:
        if behind & set(node.reads()) or node.kind not in ELEMENTS or node.name in body.stores:
            behind.add(node.name)
        elif node not in first and node.name != view:
            found.append(node)
    return tuple(found)


def _all_as_large(nodes: Sequence[Node], dot: Node) -> bool:
    """Whether all nodes have as many elements as a product."""
    return all(same(product(node.shape), product(dot.shape)) for node in nodes)


def _makers(body: Body, name: str) -> list[Node]:
    """The nodes that make a node, and itself, in order."""
    needed = leading_to(body, [name])
    return [node for node in body.nodes if node.name in needed]


def _prologue(body: Body, operand: str, side: str) -> tuple[Node, ...]:
    """The nodes that make an operand, in order. side: "left" or "right". Raises: NotCovered where one is more than work on
    elements, or is needed elsewhere."""
    found = _makers(body, operand)
    for node in found:
        if node.kind not in ELEMENTS:
            raise NotCovered(f"{node.name} before the product is not elementwise")
    names = {node.name for node in found}
    others = [node for node in body.nodes if node.name not in names and node.kind != "dot"]
    if names & set(body.stores) or any(names & set(node.reads()) for node in others):
        raise NotCovered(f"the {side} operand is also needed elsewhere")
    return tuple(found)


def _check_factors(graph: Graph, body: Body, factors: tuple[Factor, ...], left: str) -> None:
    """Raises: NotCovered where products cannot share the tiles of one left operand."""
    if len(factors) > MAX_FACTORS:
        raise NotCovered(f"more than {MAX_FACTORS} matrix products in one kernel")
    for factor in factors:
        if body.node(factor.right) is not None and len(factors) > 1:
            raise NotCovered("work on the right operands of several products")
    first, *others = factors
    grouped = first.dot.operation == GROUPED
    if grouped and body.node(first.dot.reads()[2]) is not None:
        raise NotCovered("ends of groups that are made in the same kernel")
    for factor in others:
        if {factor.dot.operation, first.dot.operation} >= {GROUPED} and factor.dot.reads()[2:] != first.dot.reads()[2:]:
            raise NotCovered("products of other groups")
        mine, own = graph.values[first.right], graph.values[factor.right]
        if factor.dot.reads()[0] != left or (mine.shape, mine.dtype) != (own.shape, own.dtype):
            raise NotCovered("more than one matrix product in one kernel")
        if factor.transposed != first.transposed or factor.right == first.right:
            raise NotCovered("matrices that lie in different ways, or are the same")


def _source(graph: Graph, body: Body, left: str, before: tuple[Node, ...]) -> str:
    """The value from outside that the left operand is made of: the first of the full shape (others are broadcast)."""
    if not before:
        if body.node(left) is not None:
            raise NotCovered("a product of a product")
        return left
    shape = before[-1].shape
    if any(node.shape != shape for node in before):
        raise NotCovered("work before the product that broadcasts")
    for node in before:
        for operand in node.operands:
            if isinstance(operand, str) and body.node(operand) is None and graph.values[operand].shape == shape:
                return operand
    raise NotCovered("work before the product whose operands are all broadcast")


def triangle(found: Product) -> str:
    """Where only a triangle of the product is kept: whether a tile has elements of it, as an expression; else ""."""
    readers = [node for node in found.after if found.dot.name in node.reads()]
    alone = len(readers) == 1 and readers[0].kind == "map" and not found.offsets
    match = _TRIANGLE.fullmatch(readers[0].operation) if alone else None
    diagonal = readers[0].operands[-1] if match else None
    if match is None or not isinstance(diagonal, Number) or readers[0].operands[1:3] != (Index(1), Index(2)):
        return ""
    corner = "block_n * BLOCK_N - BLOCK_M + 1" if match[1] == "<=" else "block_n * BLOCK_N + BLOCK_N - 1"
    return f"{corner} - block_m * BLOCK_M {match[1]} {diagonal.value}"


_TRIANGLE = re.compile(r"tl\.where\(\{1\} - \{2\} (<=|>=) \{3\}, \{0\}, 0\.0\)")


def tiles_of(found: Product, rows: int, columns: int) -> int:
    """Tiles of so many rows and columns that the results have at the full shapes, of all products of a batch."""
    batch = product(found.batch)[0] if found.batch else 1
    return batch * -(-found.m[0] // rows) * -(-found.n[0] // columns)


def can_transpose(graph: Graph, body: Body, found: Product) -> bool:
    """Whether the kernel can be given a copy of the right operand with its inner dimension last, for each product one."""
    reads = [read for node in body.nodes for read in node.reads()]
    own = found.right not in graph.values or graph.values[found.right].shape[:-2] == found.batch
    return (
        own
        and not found.transposed
        and not found.prologue
        and not found.offsets
        and len(found.factors) == 1
        and reads.count(found.right) == 1
    )


def describable(graph: Graph, found: Product, transposed_copy: bool) -> bool:
    """Whether the rows of both operands begin at multiples of 16 bytes, at the full shapes, and they are matrices.

    transposed_copy: whether the kernel gets the right operand as [n, k], whatever it is.
    """
    if found.prologue or found.made:
        return False
    size = graph.values[found.left].float_bytes
    last = found.transposed or transposed_copy or rights_across(graph, found)
    rows = (found.k, found.k if last else found.n)
    return lie_as_matrices(graph, found) and not any(length[0] * size % 16 for length in rows)


def lie_as_matrices(graph: Graph, found: Product) -> bool:
    """Whether each operand, as the reference has it, is a contiguous matrix, or one of each product of a batch, one after
    the other, which is a matrix of more rows."""
    left, rights = graph.values[found.left], [graph.values[factor.right] for factor in found.factors]
    if rights_across(graph, found):
        return left.contiguous and _is_flat(left, found)
    return all(tensor.contiguous and _is_flat(tensor, found) for tensor in (left, *rights))


def rights_across(graph: Graph, found: Product) -> bool:
    """Whether the matrices of groups lie across, all of them: [groups, k, n] in the order of [groups, n, k], as a layer's
    weights do."""
    return bool(found.offsets) and all(_dense_across(graph.values[factor.right]) for factor in found.factors)


def _dense_across(tensor: Tensor) -> bool:
    if tensor.contiguous or len(tensor.shape) != 3:
        return False
    groups, down, across = tensor.shape
    return is_dense((groups, across, down), tuple(tensor.strides[axis] for axis in (0, 2, 1)))


def _is_flat(tensor: Tensor, found: Product) -> bool:
    if not found.batch:
        return len(tensor.shape) > 1
    return len(tensor.shape) == 2 or tensor.shape[:-2] == found.batch
