"""body: what one kernel computes, as a list of nodes in order.

An op of the graph becomes one or more nodes: a softmax is a maximum, a difference, an exponential, a sum and a quotient.
A node is a map (elementwise expression), a reduction over some dimensions, or a dot (matrix product).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from mtmc.rewrite.graph import Graph, Ref, Shape, Size, Tensor, Varying, is_number, is_one
from mtmc.rewrite.index_maps import IndexMap

Compute = Literal["float", "int", "bool"]
"""What a value is inside a kernel: all floating dtypes are computed in fp32."""


GROUPED = "a @ b[group]"
"""Operation of a product whose left operand has groups of rows, and its right one a matrix for each; a third operand says
where groups end."""


class NotCovered(Exception):
    """An op (or this use of it) that no kernel template covers; it stays a torch call. The text says why."""


@dataclass(frozen=True)
class Number:
    """A number written into the kernel's text."""

    value: float


@dataclass(frozen=True)
class Trailing:
    """A value from outside read with `ones` dimensions of size 1 appended, so that it lines up with leading ones."""

    value: str
    ones: int


@dataclass(frozen=True)
class Count:
    """A size, less a constant, used as a number: the divisor of a mean."""

    size: Size
    less: int = 0


@dataclass(frozen=True)
class Index:
    """The position along a dimension of the node's shape, counted from the last (1): a row or column number."""

    axis: int


Operand = str | Trailing | Number | Varying | Count | Index


@dataclass(frozen=True)
class Window:
    """Which positions of the operand a position of the result reads, one entry a spatial dimension:

        position * stride - padding + tap * dilation, tap from 0 to size - 1

    and for a transposed convolution the other way: its operand's position takes the result's place in this equation.
    ceil: whether the last window may reach over the end. adaptive: windows are as even shares of the operand as there
    can be, `size` is the widest. counted: what a mean divides by: "all" taps, those up to the end of the padding
    ("padded"), or those on elements ("inside"). groups: of a convolution's channels. last: how many dimensions stand behind
    the spatial ones in a body that goes over memory in that order: the channels, or groups and the channels of each.
    """

    size: tuple[Size, ...]
    stride: tuple[Size, ...]
    padding: tuple[Size, ...]
    dilation: tuple[Size, ...]
    ceil: bool = False
    adaptive: bool = False
    counted: str = "all"
    groups: Size = ()
    last: int = 0


@dataclass(frozen=True)
class Node:
    """One step inside a kernel.

    name: its variable. kind: "map", "reduce", "dot", "view" (the same elements under another shape), "window" (pooling or
    convolution; its operation is "max", "sum", "mean", "weighted sum", "convolution" or "transposed convolution"), "scan"
    (its operation is "cumsum", "cumprod" or "logcumsumexp"), "index" (elements of its operands at other places; its
    operation is what that is called: "flip", "join", "slice") or "order" (the elements along a dimension in their order,
    all or the first few; its operation is "values" or "places", where they stood) or "scatter" (the first operand, changed
    by elements of the second at the places that the others hold; its operation is "set", "add", "amax" or "amin"), "rank"
    (how many elements of a mask hold before each one that does, in all of the tensor; -1 for those that do not) or "bag"
    (the "sum", "mean" or "max" of some rows of the first operand, from the number on that the second one holds up to that
    of the third; those count for which the fourth holds, if there is one).
    operation: for a map the expression with {0}, {1}, ...; for a reduction "sum", "prod", "amax", "amin", "argmax",
    "argmin", "max" (an amax that may pass over NaN) or "deviations": the sum of squared distances to the mean, which is
    its second operand.
    operands: names of nodes or of values from outside, and numbers.
    shape: logical shape of the result (of a reduction: with the reduced dimensions removed, or 1 if keepdim).
    dims: of the operand's shape that are reduced, scanned, flipped, joined or ordered. falling: whether the largest comes
    first. flops: per element of the result (map) or
    of the operand (reduce). index: which elements they are. fill: what stands where none of them does, None where one
    always does, NaN for whole numbers too. space: of a scatter, the shape of which each element goes to the place that
    `index` gives for it.
    """

    name: str
    kind: Literal["map", "reduce", "dot", "view", "window", "scan", "index", "order", "scatter", "rank", "bag"]
    operation: str
    operands: tuple[Operand, ...]
    shape: Shape
    compute: Compute
    dims: tuple[int, ...] = ()
    flops: int = 1
    window: Window | None = None
    index: IndexMap | None = None
    fill: float | None = None
    falling: bool = False
    space: Shape = ()

    def reads(self) -> tuple[str, ...]:
        """Names of the nodes or values it reads."""
        names = [operand.value if isinstance(operand, Trailing) else operand for operand in self.operands]
        return tuple(name for name in names if isinstance(name, str))


@dataclass(frozen=True)
class Part:
    """A result that is a part of a larger tensor, in memory that the launcher is given (see `joins`).

    dim: from there on its elements lie one behind the other, in the order in which the kernel goes over them. axis: whose
    stride leads from each index of what is before to the next.
    """

    value: str
    dim: int
    axis: int


@dataclass(frozen=True)
class Body:
    """All nodes of a kernel, the values it loads and the values it stores, each in order. parts: of the stores. rounded:
    stores that are rounded to TF32 (see `made_rounded`)."""

    nodes: tuple[Node, ...]
    loads: tuple[str, ...]
    stores: tuple[str, ...]
    parts: tuple[Part, ...] = ()
    rounded: tuple[str, ...] = ()

    def part(self, value: str) -> Part | None:
        """What a result is a part of, None where it is a tensor of its own."""
        return next((part for part in self.parts if part.value == value), None)

    def node(self, name: str) -> Node | None:
        """The node of this name, or None if it is a value from outside."""
        return next((node for node in self.nodes if node.name == name), None)


def less_own_maximum(body: Body) -> bool:
    """Whether a product is taken less the largest of such products, as in the softmax of scaled numbers.

    A compiler may multiply and subtract in one step, without rounding in between. For numbers of 1e9 what is left of the
    largest is then not 0 but what rounding took from it, some 30 either way, and its exponential anything. Scores of
    attention, which are products of matrices themselves, are another matter: see `attention_shares.factor_line`.
    """
    largest = {node.name: node.operands[0] for node in body.nodes if node.kind == "reduce" and node.operation == "max"}
    for node in body.nodes:
        if (
            node.kind == "map"
            and "{0} - {1}" in node.operation
            and largest.get(str(node.operands[1])) == node.operands[0]
        ):
            made = body.node(str(node.operands[0]))
            while made is not None and made.kind == "map" and made.operation == "{0}":
                made = body.node(str(made.operands[0]))
            if made is not None and made.kind == "map" and {"*", "/"} & set(made.operation):
                return not _made_of_product(body, made.name)
    return False


def _made_of_product(body: Body, value: str) -> bool:
    """Whether a product of matrices is among what makes a value."""
    node = body.node(value)
    return node is not None and (node.kind == "dot" or any(_made_of_product(body, each) for each in node.reads()))


def maps_into(body: Body, value: str, what: str) -> tuple[Node, ...]:
    """The nodes that make a value, in order. what: they come before. Raises: NotCovered where one is not elementwise."""
    needed, found = {value}, []
    for node in reversed(body.nodes):
        if node.name in needed:
            if node.kind != "map":
                raise NotCovered(f"{node.name} before the {what} is not elementwise")
            found.append(node)
            needed |= set(node.reads())
    return tuple(reversed(found))


def shape_of(graph: Graph, body: Body, item: Operand) -> Shape:
    """The shape of a node, or of a value from outside."""
    assert isinstance(item, str)
    node = body.node(item)
    return graph.values[item].shape if node is None else node.shape


def compute_kind(tensor: Tensor) -> Compute:
    """Compute kind of a tensor from outside. Raises: NotCovered for complex, fp64 and the like."""
    if tensor.is_float:
        return "float"
    if tensor.dtype == "bool":
        return "bool"
    if tensor.dtype in ("int64", "int32", "int16", "int8", "uint8"):
        return "int"
    raise NotCovered(f"kernels do not compute on {tensor.dtype}")


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """Broadcast shape, at every variant. Raises: NotCovered where sizes do not fit (which torch would refuse too)."""
    rank = max((len(shape) for shape in shapes), default=0)
    result = []
    for axis in range(rank):
        sizes = [shape[axis - rank + len(shape)] for shape in shapes if axis - rank + len(shape) >= 0]
        wide = [size for size in sizes if not is_one(size)]
        if len(set(wide)) > 1:
            raise NotCovered(f"sizes {sorted(set(wide))} do not broadcast")
        result.append(wide[0] if wide else sizes[0])
    return tuple(result)


def leading_to(body: Body, names: Iterable[str]) -> set[str]:
    """What some values are made of, themselves included."""
    needed = set(names)
    for node in reversed(body.nodes):
        if node.name in needed:
            needed |= set(node.reads())
    return needed


def folded(graph: Graph, item: Operand) -> Operand:
    """A tensor that forward makes of a single number is that number."""
    op = graph.by_name.get(graph.producer.get(item, "")) if isinstance(item, str) else None
    if op is not None and is_number(op):
        return Number(float(op.args[0]) if graph.values[op.outputs[0]].is_float else op.args[0])
    return item


def operand(argument: object) -> Operand:
    """An op's argument as an operand. Raises: NotCovered for anything but a tensor or a number."""
    if isinstance(argument, Ref):
        return argument.name
    if isinstance(argument, Varying):
        return argument
    if isinstance(argument, (bool, int, float)):
        return Number(argument)
    raise NotCovered(f"argument {argument!r} is neither a tensor nor a number")
