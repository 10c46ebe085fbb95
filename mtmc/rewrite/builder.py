"""builder: collects the nodes of a kernel while ops are expanded (`expansion` makes its body of them)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from mtmc.rewrite.body import (
    GROUPED,
    Compute,
    Count,
    Index,
    Node,
    NotCovered,
    Number,
    Operand,
    Trailing,
    Window,
    broadcast,
    compute_kind,
    folded,
)
from mtmc.rewrite.graph import Graph, Op, Shape, Varying, is_one
from mtmc.rewrite.index_maps import IndexMap


class Builder:
    """Collects nodes; what an op's expansion writes with."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: dict[str, Node] = {}
        self._made: dict[Node, str] = {}
        self._count = 0
        self._op = ""
        self.depth = 0
        """Of decompositions within each other."""

    def begin(self, op: Op) -> None:
        """Start the expansion of an op: helper nodes are named after it."""
        self._op, self._count = op.name, 0

    def _name(self, hint: str, final: str | None) -> str:
        if final is not None:
            return final
        base = f"{self._op}_{hint}"
        name, number = base, 1
        while name in self.nodes or name in self.graph.values:
            number += 1
            name = f"{base}{number}"
        return name

    def shape(self, operand: Operand) -> Shape:
        """Logical shape of an operand; () for a number."""
        if isinstance(operand, Trailing):
            shape = self.graph.values[operand.value].shape
            return (*shape, *(tuple(1 for _ in self.graph.variants) for _ in range(operand.ones)))
        if not isinstance(operand, str):
            return ()
        return self.nodes[operand].shape if operand in self.nodes else self.graph.values[operand].shape

    def compute(self, operand: Operand) -> Compute:
        """What an operand is inside the kernel. Raises: NotCovered for a dtype that kernels do not compute on."""
        if isinstance(operand, Number):
            return "int" if isinstance(operand.value, int) else "float"
        if isinstance(operand, (Varying, Count)):
            return "float"
        if isinstance(operand, Index):
            return "int"
        if isinstance(operand, Trailing):
            return compute_kind(self.graph.values[operand.value])
        if operand in self.nodes:
            return self.nodes[operand].compute
        return compute_kind(self.graph.values[operand])

    def floating(self, operand: Operand) -> Operand:
        """The operand as floating-point numbers: itself, or a mask or whole numbers converted."""
        operand = folded(self.graph, operand)
        if not isinstance(operand, (str, Trailing)) or self.compute(operand) == "float":
            return operand
        return self.map("{0}.to(tl.float32)", operand, hint="float")

    def map(
        self,
        operation: str,
        *operands: Operand,
        compute: Compute = "float",
        name: str | None = None,
        hint: str = "t",
        flops: int = 1,
    ) -> str:
        """Add an elementwise node over the broadcast shape of its operands; returns its name."""
        items = tuple(folded(self.graph, operand) for operand in operands)
        shape = broadcast([self.shape(operand) for operand in items])
        items = tuple(self._spread(item, shape) for item in items)
        return self._added(Node(self._name(hint, name), "map", operation, items, shape, compute, flops=flops), name)

    def _spread(self, item: Operand, shape: Shape) -> Operand:
        """Where an operand is made of numbers alone and broadcasts to a shape: the same over the whole shape."""
        node = self.nodes.get(item) if isinstance(item, str) else None
        if node is None or node.kind != "map" or node.shape == shape or not self.of_numbers(node):
            return item
        if any(isinstance(operand, Index) and is_one(node.shape[-operand.axis]) for operand in node.operands):
            return item
        operands = tuple(self._spread(operand, shape) for operand in node.operands)
        wide = replace(node, name=self._name("wide", None), operands=operands, shape=shape)
        self.nodes[wide.name] = wide
        return wide.name

    def of_numbers(self, node: Node) -> bool:
        """Whether a node is computed from numbers and places alone."""
        reads = [self.nodes.get(name) for name in node.reads()]
        return all(read is not None and read.kind == "map" and self.of_numbers(read) for read in reads)

    def reduce(
        self,
        operation: str,
        operand: str,
        dims: Sequence[int],
        keepdim: bool,
        name: str | None = None,
        hint: str = "r",
        also: tuple[str, ...] = (),
    ) -> str:
        """Add a reduction over `dims` of the operand's shape; returns its name. also: further operands ("deviations")."""
        shape = self.shape(operand)
        axes = tuple(sorted(dim % len(shape) for dim in dims)) if shape else ()
        ones = tuple(1 for _ in self.graph.variants)
        kept = tuple(ones if axis in axes else size for axis, size in enumerate(shape) if keepdim or axis not in axes)
        compute: Compute = "int" if operation.startswith("arg") or self.compute(operand) == "int" else "float"
        return self._added(
            Node(self._name(hint, name), "reduce", operation, (operand, *also), kept, compute, axes), name
        )

    def _added(self, node: Node, final: str | None) -> str:
        """Add a node, or find the one that computes the same where its own name (`final`) is not asked for. Numbers are not
        looked at: 0.0 and -0.0 are equal and not the same."""
        self.nodes[node.name] = node
        if not all(isinstance(operand, (str, Count)) for operand in node.operands) or not node.reads():
            return node.name
        same = self._made.setdefault(replace(node, name=""), node.name)
        if final is not None or same == node.name or same not in self.nodes:
            return node.name
        del self.nodes[node.name]
        return same

    def view(self, operand: str, shape: Shape, name: str | None = None, hint: str = "view") -> str:
        """Add the same elements, in the same order, under another shape; numbers are made under that shape."""
        moved = self._under(operand, shape, name, hint)
        if moved is not None:
            return moved
        node = Node(self._name(hint, name), "view", "", (operand,), shape, self.compute(operand), flops=0)
        self.nodes[node.name] = node
        return node.name

    def _under(self, operand: Operand, shape: Shape, name: str | None, hint: str) -> str | None:
        """Numbers under a shape that differs by dimensions of size 1: a mask of places broadcasts as it is read. None where
        it is something else, or the shape another."""
        node = self.nodes.get(operand) if isinstance(operand, str) else None
        if node is None or node.kind != "map" or not self.of_numbers(node):
            return None
        old = [axis for axis, size in enumerate(node.shape) if not is_one(size)]
        new = [axis for axis, size in enumerate(shape) if not is_one(size)]
        if [node.shape[axis] for axis in old] != [shape[axis] for axis in new]:
            return None
        places = {len(node.shape) - a: len(shape) - b for a, b in zip(old, new, strict=True)}
        operands: list[Operand] = []
        for item in node.operands:
            if isinstance(item, Index):
                operands.append(Index(places[item.axis]) if item.axis in places else Number(0))
            elif isinstance(item, str):
                moved = self._under(self._spread(item, node.shape), shape, None, hint)
                if moved is None:
                    return None
                operands.append(moved)
            else:
                operands.append(item)
        made = replace(node, name=self._name(hint, name), operands=tuple(operands), shape=shape)
        self.nodes[made.name] = made
        return made.name

    def window(
        self, operation: str, operands: tuple[str, ...], shape: Shape, window: Window, name: str | None = None
    ) -> str:
        """Add a pooling or convolution of the first operand (by the second); returns its name."""
        hint = "max" if operation == "max" else "sum"
        node = Node(self._name(hint, name), "window", operation, operands, shape, "float", window=window)
        self.nodes[node.name] = node
        return node.name

    def scan(self, operation: str, operand: str, dim: int, name: str) -> str:
        """Add a running sum or product over one dimension; returns its name."""
        node = Node(name, "scan", operation, (operand,), self.shape(operand), self.compute(operand), (dim,))
        self.nodes[node.name] = node
        return node.name

    def index(
        self,
        operation: str,
        index: IndexMap,
        operands: Sequence[str],
        shape: Shape,
        name: str | None = None,
        dims: tuple[int, ...] = (),
        fill: float | None = None,
    ) -> str:
        """Add elements of the operands at other places; returns its name. The first operand says of which kind they are."""
        compute = self.compute(operands[0])
        node = Node(
            self._name(operation, name),
            "index",
            operation,
            tuple(operands),
            shape,
            compute,
            dims,
            flops=0,
            index=index,
            fill=fill,
        )
        self.nodes[node.name] = node
        return node.name

    def place(self, axis: int, shape: Shape, hint: str = "place", dtype: str = "int32") -> str:
        """Add the position along a dimension of a shape, counted from the last (1), as a tensor of size 1 in all others."""
        ones = (1,) * len(self.graph.variants)
        own = tuple(size if at == len(shape) - axis else ones for at, size in enumerate(shape))
        node = Node(self._name(hint, None), "map", f"tl.cast({{0}}, tl.{dtype})", (Index(axis),), own, "int", flops=0)
        self.nodes[node.name] = node
        return node.name

    def order(self, what: str, operand: str, dim: int, shape: Shape, falling: bool, name: str) -> str:
        """Add the "values" along a dimension in their order, or the "places" where they stood; returns its name.

        shape: of the result: as many of the first as it has. falling: whether the largest comes first.
        """
        compute: Compute = "int" if what == "places" else self.compute(operand)
        node = Node(name, "order", what, (operand,), shape, compute, (dim,), falling=falling)
        self.nodes[node.name] = node
        return node.name

    def matrix(self, entry: str, operands: tuple[Operand, ...], shape: Shape, compute: Compute = "float") -> str:
        """Add a matrix whose entries are an expression over places and numbers; returns its name."""
        node = Node(self._name("matrix", None), "map", entry, operands, shape, compute)
        self.nodes[node.name] = node
        return node.name

    def rank(self, mask: str) -> str:
        """Add how many elements of a mask hold before each that does, -1 for those that do not; returns its name."""
        node = Node(self._name("rank", None), "rank", "", (mask,), self.shape(mask), "int")
        self.nodes[node.name] = node
        return node.name

    def bag(self, operation: str, operands: Sequence[str], shape: Shape, name: str) -> str:
        """Add what bags of rows amount to, see `Node`; returns its name."""
        node = Node(name, "bag", operation, tuple(operands), shape, "float")
        self.nodes[node.name] = node
        return node.name

    def scatter(
        self,
        operation: str,
        base: str,
        source: Operand,
        places: Sequence[str],
        index: IndexMap,
        space: Shape,
        name: str,
    ) -> str:
        """Add a tensor changed at some places: each element of `space` takes that of the source to where `index` says.

        places: what holds the indices. index: gives the place in the base for one in `space`.
        """
        operands = (base, source, *places)
        shape, compute = self.shape(base), self.compute(base)
        node = Node(name, "scatter", operation, operands, shape, compute, index=index, space=space)
        self.nodes[node.name] = node
        return node.name

    def trailing(self, value: str, ones: int) -> Operand:
        """A value from outside read with `ones` size-1 dimensions appended. Raises: NotCovered if made in this kernel."""
        if ones == 0:
            return value
        if value in self.nodes:
            raise NotCovered(f"{value} is made in the same kernel and cannot be read under another shape")
        return Trailing(value, ones)

    def dot(
        self,
        left: str,
        right: str,
        transposed: bool,
        shape: Shape,
        name: str | None = None,
        offsets: str | None = None,
        compute: Compute = "float",
    ) -> str:
        """Add a matrix product left @ right (right.T if transposed). offsets: where groups of the left operand's rows end,
        each of which has a matrix of its own. compute: what it adds up."""
        operation = GROUPED if offsets is not None else "a @ b.T" if transposed else "a @ b"
        operands = (left, right) if offsets is None else (left, right, offsets)
        node = Node(self._name("dot", name), "dot", operation, operands, shape, compute, flops=2)
        self.nodes[node.name] = node
        return node.name


Expand = Callable[[Builder, Op], None]
"""Adds an op's nodes; the last one for each output bears the output's name."""
