"""scaled: products of scaled numbers of 8 bits become scaled products of them, which the tensor cores make as they are.

    sum over k of (a[m, k] s[m]) (b[n, k] t[n]) = s[m] t[n] sum over k of a[m, k] b[n, k]

A scale that is the same along the inner dimension k goes behind the product. One that is the same over groups of
neighbours along k becomes a further operand of the product, whose kernel multiplies what it adds up of each group by it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from mtmc.rewrite.body import Body, Node, Number, Operand, broadcast
from mtmc.rewrite.graph import Graph, Shape, Size, is_one, product, same
from mtmc.rewrite.index_maps import Expanded, Permuted, Repeated

_SWAP = Permuted((1, 0))


@dataclass(frozen=True)
class _Scale:
    """What an operand is multiplied by. shape: that of the multiplication. k_last: whether k is its last dimension there.
    above: the shapes under which its result is seen then, and where the two dimensions of it change places ("")."""

    operand: Operand
    shape: Shape
    k_last: bool
    above: tuple[Shape | str, ...]


@dataclass(frozen=True)
class _Operand:
    """An operand of a product: what lies in 8 bits, its scales, and whether k is the last dimension of what lies there."""

    source: str
    scales: tuple[_Scale, ...]
    k_last: bool


def after_product(graph: Graph, body: Body) -> Body:
    """The body with the scales of its product's operands behind the product, where both operands are of 8 bits and it has
    one product; else the body as it is."""
    dots = [node for node in body.nodes if node.kind == "dot"]
    if len(dots) != 1 or len(dots[0].operands) != 2:
        return body
    [dot] = dots
    sides = (
        _stripped(graph, body, dot.reads()[0], True),
        _stripped(graph, body, dot.reads()[1], dot.operation == "a @ b.T"),
    )
    left, right = sides
    if left is None or right is None or not left.k_last or not any(side.scales for side in (left, right)):
        return body
    shape = _shape(graph, body, dot.reads()[1])
    if len(shape) != 2 or right.source == left.source:
        return body
    if _shape(graph, body, right.source) != (shape if right.k_last == (dot.operation == "a @ b.T") else shape[::-1]):
        return body
    rewriting = _Rewriting(graph, body, dot)
    if not rewriting.under(left, _shape(graph, body, dot.reads()[0])):
        return body
    left = replace(left, source=rewriting.left)
    if not all(rewriting.take(side, number) for number, side in enumerate((left, right))):
        return body
    return rewriting.body("a @ b.T" if right.k_last else "a @ b", left.source, right.source)


def _shape(graph: Graph, body: Body, operand: Operand) -> Shape:
    if not isinstance(operand, str):
        return ()
    node = body.node(operand)
    return graph.values[operand].shape if node is None else node.shape


def _stripped(graph: Graph, body: Body, name: str, k_last: bool) -> _Operand | None:
    """An operand without its scales; None where it is made of no numbers of 8 bits, or in another way."""
    tensor, node = graph.values.get(name), body.node(name)
    if tensor is not None and tensor.is_fp8 and (node is None or node.kind == "map"):
        return _Operand(name, (), k_last)
    if node is None:
        return None
    if node.kind == "map" and node.operation == "{0}" and isinstance(node.operands[0], str):
        return _stripped(graph, body, node.operands[0], k_last)
    if node.kind == "view":
        found = _stripped(graph, body, node.reads()[0], k_last)
        return None if found is None else _seen(found, node.shape)
    if node.kind == "index" and node.index == _SWAP:
        found = _stripped(graph, body, node.reads()[0], not k_last)
        return None if found is None else _seen(found, "")
    if node.kind == "map" and node.operation == "{0} * {1}":
        for chain, other in (node.operands, node.operands[::-1]):
            found = None
            if isinstance(chain, str) and _shape(graph, body, chain) == node.shape:
                found = _stripped(graph, body, chain, k_last)
            if found is not None and isinstance(other, (str, Number)):
                return replace(found, scales=(*found.scales, _Scale(other, node.shape, k_last, ())))
    return None


def _seen(found: _Operand, shape: Shape | str) -> _Operand:
    return replace(found, scales=tuple(replace(scale, above=(*scale.above, shape)) for scale in found.scales))


class _Rewriting:
    """A body in the making: what is added to it, and the product's further operands."""

    def __init__(self, graph: Graph, body: Body, dot: Node) -> None:
        self.graph, self.old, self.dot = graph, body, dot
        self.nodes: list[Node] = []
        self.behind: list[Operand] = []
        self.grouped: list[tuple[str, int, Size]] = []

    def under(self, left: _Operand, shape: Shape) -> bool:
        """Read the left operand's source under the operand's shape; whether that can be done."""
        self.left, own = left.source, _shape(self.graph, self.old, left.source)
        if own == shape:
            return True
        if self.old.node(left.source) is not None or not self.graph.values[left.source].contiguous:
            return False
        self.left = self._add("view", (left.source,), shape)
        return same(product(own), product(shape))

    def take(self, side: _Operand, number: int) -> bool:
        """Take the scales of the left (0) or right (1) operand over; whether that could be done."""
        source = self._shape_of(side.source)
        n_k = source[-1] if side.k_last else source[0]
        return all(self._scale(scale, source, side.k_last, n_k, number) for scale in side.scales)

    def _scale(self, scale: _Scale, source: Shape, k_last: bool, n_k: Size, number: int) -> bool:
        shape = _shape(self.graph, self.old, scale.operand)
        if not shape or all(is_one(size) for size in shape):
            one = scale.operand if len(shape) <= 1 else self._add("view", (scale.operand,), ((1,) * len(n_k),))
            self.behind.append(one)
            return True
        assert isinstance(scale.operand, str)
        plain = len(scale.shape) == len(source)
        along = shape[-1] if scale.k_last else shape[-len(scale.shape)] if len(shape) == len(scale.shape) else (1,)
        if plain and is_one(along):
            if number == 0 or not scale.k_last:
                self.behind.append(scale.operand)
            else:
                self.behind.append(self._add("view", (scale.operand,), (shape[0],)))
            return True
        group = self._group(scale, shape, n_k)
        if group is None:
            return False
        name = scale.operand
        if shape != scale.shape:
            name = self._add("index", (name,), scale.shape, Expanded())
        for above in scale.above:
            if isinstance(above, str):
                name = self._swapped(name)
            elif above != self._shape_of(name):
                name = self._add("view", (name,), above)
        if k_last != (number == 0 or self.dot.operation == "a @ b.T"):
            name = self._swapped(name)
        if self._shape_of(name) != source:
            return False
        self.grouped.append((name, number, group))
        return True

    def _swapped(self, name: str) -> str:
        return self._add("index", (name,), self._shape_of(name)[::-1], _SWAP)

    def _group(self, scale: _Scale, shape: Shape, n_k: Size) -> Size | None:
        """Neighbours along k of which a scale is the same; None where that is not known."""
        lead = len(scale.shape) - len(shape)
        if scale.k_last and len(scale.shape) > 2 and lead == 0:  # [rows, groups, each], say
            group: Shape = ()
            for size, own in zip(reversed(scale.shape), reversed(shape), strict=True):
                if not is_one(own):
                    break
                group = (size, *group)
            found = product(group)
            whole = found and all(k % each == 0 for k, each in zip(n_k, found, strict=True))
            return found if whole else None
        axis = len(shape) - 1 if scale.k_last else 0
        node = self.old.node(str(scale.operand))
        while node is not None and node.kind in ("index", "map") and lead == 0:
            if node.kind == "index" and isinstance(node.index, Repeated) and node.index.each:
                if node.index.dim == axis:
                    return node.index.times
            elif node.kind == "index" or node.operation != "{0}":
                return None
            node = self.old.node(node.reads()[0])
        return None

    def _shape_of(self, name: str) -> Shape:
        made = next((node for node in self.nodes if node.name == name), None)
        return made.shape if made is not None else _shape(self.graph, self.old, name)

    def _add(self, kind: str, operands: tuple[Operand, ...], shape: Shape, index: object = None) -> str:
        name = f"{self.dot.name}_scale{len(self.nodes) + 1}"
        self.nodes.append(Node(name, kind, kind, operands, shape, "float", flops=0, index=index))  # type: ignore[arg-type]
        return name

    def body(self, operation: str, left: str, right: str) -> Body:
        """The new body, without the nodes that nothing needs any more."""
        dot = self.dot
        names, sides = [name for name, _, _ in self.grouped], [side for _, side, _ in self.grouped]
        groups = tuple(group for _, _, group in self.grouped)
        plain = replace(
            dot, name=f"{dot.name}_plain" if self.behind else dot.name, operation=operation,
            operands=(left, right, *names), dims=tuple(sides), space=groups,
        )  # fmt: skip
        made, last = [plain], plain.name
        for number, scale in enumerate(self.behind, start=1):
            name = dot.name if number == len(self.behind) else f"{dot.name}_scaled{number}"
            shape = broadcast([dot.shape, self._shape_of(scale) if isinstance(scale, str) else ()])
            made.append(Node(name, "map", "{0} * {1}", (last, scale), shape, "float"))
            last = name
        at = self.old.nodes.index(dot)
        nodes = [*self.old.nodes[:at], *self.nodes, *made, *self.old.nodes[at + 1 :]]
        return pruned(nodes, self.old.stores)


def pruned(nodes: list[Node], stores: tuple[str, ...]) -> Body:
    """The body of the nodes that its results need."""
    needed = set(stores)
    for node in reversed(nodes):
        if node.name in needed:
            needed |= set(node.reads())
    kept = tuple(node for node in nodes if node.name in needed)
    names = {node.name for node in kept}
    loads = dict.fromkeys(read for node in kept for read in node.reads() if read not in names)
    return Body(kept, tuple(loads), stores)


def scales_of(dot: Node) -> Iterator[tuple[str, int, Size]]:
    """Further operands of a product: name, side (0 left, 1 right), and how many neighbours along k have one scale."""
    yield from zip(dot.reads()[2:], dot.dims, dot.space, strict=True)
