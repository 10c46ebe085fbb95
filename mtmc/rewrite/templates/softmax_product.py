"""softmax_product: what a body computes that is a product of a softmax of a product: attention, whoever writes it out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mtmc.rewrite.body import Body, Count, Node, NotCovered, Number
from mtmc.rewrite.graph import Graph, Shape, Size, is_one, product, same
from mtmc.rewrite.operators.attention import CAUSAL, MASKED, NONE_LEFT, SCALED_BY_WIDTH

MAX_BATCH_DIMS = 2
MAX_REGIONS = 4
MAX_WIDTH = 256
"""Of a head whose tiles of queries, keys and values fit a multiprocessor together; a wider one is taken in slices."""


@dataclass(frozen=True)
class Region:
    """Columns whose keys lie in one tensor and whose values lie in one.

    columns: how many. key, value: names of the tensors. own_keys, own_values: whether a tensor begins with this region,
    else it holds the columns of all regions.
    """

    columns: Size
    key: str
    value: str
    own_keys: bool
    own_values: bool


@dataclass(frozen=True)
class SoftmaxProduct:
    """Attention's parts.

    query: a value from outside, [batch..., rows, width]. regions: where keys, [batch..., columns, width] (or [batch...,
    width, columns] unless `transposed`), and values, [batch..., columns, out_width], lie: one, or several one behind the
    other. made: which of these are no tensors from outside, but elements of such at other places (pages of a cache that a
    table puts in order), read where they lie. scores: the first product; between: maps on it before the softmax; logits:
    what the softmax is taken of; result: the second product; after: maps on it. forgiving: whether a row of which all
    columns are masked gives 0, as in torch's function, and not NaN.
    """

    query: str
    regions: tuple[Region, ...]
    transposed: bool
    batch: Shape
    rows: Size
    columns: Size
    width: Size
    out_width: Size
    scores: Node
    between: tuple[Node, ...]
    logits: str
    result: Node
    after: tuple[Node, ...]
    made: frozenset[str] = frozenset()
    forgiving: bool = False

    @property
    def causal(self) -> bool:
        """Whether columns behind a row's own are masked, so that programs need not look at them."""
        return any(node.operation == CAUSAL for node in self.between)

    @property
    def masked(self) -> bool:
        """Whether all columns of a row may be masked, or its first ones: by anything but what leaves each row the first."""
        return any(node.operation != CAUSAL and node.name not in self.factor()[1] for node in self.between)

    def factor(self) -> tuple[float | None, tuple[str, ...]]:
        """A positive number that all scores are multiplied by before the softmax, and the names of the maps that do it.

        None for one over the root of the width. (1.0, ()) where there is anything but such maps and masks of columns.
        """
        last, number, root, maps = self.scores.name, 1.0, False, list[str]()
        made = {last}
        for node in self.between:
            if not made & set(node.reads()):
                continue  # makes a mask
            made.add(node.name)
            other = node.operands[1] if len(node.operands) > 1 else None
            if node.operands[0] != last or (len(node.reads()) > 1 and node.operation != MASKED):
                return 1.0, ()
            last = node.name
            if node.operation in (CAUSAL, MASKED):
                continue
            maps.append(node.name)
            if node.operation == SCALED_BY_WIDTH and other == Count(self.width) and not root:
                root = True
            elif node.operation in ("{0} * {1}", "{0} / {1}") and isinstance(other, Number) and other.value > 0:
                number = number * other.value if "*" in node.operation else number / other.value
            elif node.operation != "{0}":
                return 1.0, ()
        if root and number != 1.0:
            return 1.0, ()
        return None if root else number, tuple(maps)

    def quotient(self, sums: str, total: str) -> str:
        """The rows' results: sums of values over sums of weights."""
        found = f"{sums} / {total}"
        return f"tl.where({total} == 0.0, 0.0, {found})" if self.forgiving else found

    @property
    def wide(self) -> bool:
        """Whether heads are taken in slices, at some shapes at least."""
        return max((*self.width, *self.out_width)) > MAX_WIDTH

    @property
    def tensors(self) -> tuple[str, ...]:
        """Queries, keys and values, each once."""
        return tuple(dict.fromkeys((self.query, *(name for each in self.regions for name in (each.key, each.value)))))


def is_softmax_product(body: Body) -> bool:
    """Whether a body has two products and an exponential between them."""
    return sum(node.kind == "dot" for node in body.nodes) == 2 and any(
        "tl.exp" in node.operation for node in body.nodes
    )


def analyse(graph: Graph, body: Body) -> SoftmaxProduct:
    """The parts. Raises: NotCovered where the body is anything but attention with elementwise work around the scores and
    the result."""
    if not is_softmax_product(body):
        raise NotCovered("tensors one behind the other that are no keys or values")
    scores, result = (node for node in body.nodes if node.kind == "dot")
    query, key = scores.reads()
    weights, value = result.reads()
    transposed, axis = scores.operation == "a @ b.T", len(scores.shape) - 2
    pieces = [
        _pieces(graph, body, query, None),
        _pieces(graph, body, key, axis if transposed else axis + 1),
        _pieces(graph, body, value, axis),
    ]
    made = frozenset(name for names in pieces for name in names if body.node(name) is not None)
    moving = {node.name for node in body.nodes for name in made if _leads_to(body, node.name, name)}
    logits, softmax = _softmax(body, weights, len(result.shape) - 1)
    forgiving = any(node.operation == NONE_LEFT for node in body.nodes if node.name in softmax)
    names = [node.name for node in body.nodes]
    between = tuple(node for node in body.nodes[names.index(scores.name) + 1 :] if _leads_to(body, node.name, logits))
    # What stands before the first product and is no part of it: masks, made of tensors from outside.
    masks = tuple(node for node in body.nodes[: names.index(scores.name)] if _leads_to(body, node.name, logits))
    after = tuple(node for node in body.nodes if _reads_from(body, node.name, result.name))
    maps = (*between, *masks, *after)
    known = {key, value, scores.name, result.name, *softmax, *moving, *(node.name for node in maps)}
    others = [node.name for node in body.nodes if node.name not in known]
    if others:
        raise NotCovered(f"{others[0]} is no part of the attention")
    # Of these, what is less than the scores is computed where an element of it is needed.
    aside = {node.name for node in (*masks, *between) if not _fits(node, scores.shape)}
    aside -= {name for name in aside if _reads_from(body, name, scores.name)}
    between = tuple(node for node in (*masks, *between) if node.name not in aside)
    _check_maps(between, scores.shape, "before the softmax")
    _check_maps(after, result.shape, "after the product")
    if any(value not in {result.name, *(node.name for node in after)} for value in body.stores):
        raise NotCovered("the weights are needed too")
    regions = _regions(graph, pieces[1], pieces[2], transposed)
    found = SoftmaxProduct(
        query, regions, transposed, scores.shape[:-2], scores.shape[-2], scores.shape[-1],
        graph.values[query].shape[-1], result.shape[-1], scores, between, logits, result, after, made, forgiving,
    )  # fmt: skip
    _check_operands(graph, found)
    return found


def _pieces(graph: Graph, body: Body, value: str, axis: int | None) -> tuple[str, ...]:
    """The tensors that an operand consists of, one behind the other along an axis. Raises: NotCovered where it is made in
    the same kernel in another way than by moving elements."""
    node = body.node(value)
    joined = node is not None and node.operation == "join" and node.dims == (axis,)
    if node is not None and joined and len(node.reads()) <= MAX_REGIONS and not any(map(body.node, node.reads())):
        return node.reads()
    if not _is_moved(body, value) or value not in graph.values:
        raise NotCovered("queries, keys or values that are made in the same kernel")
    return (value,)


def _is_moved(body: Body, value: str) -> bool:
    """Whether a value is elements of tensors from outside, at their places or others."""
    node = body.node(value)
    if node is None:
        return True
    filled = node.fill is not None and not math.isnan(node.fill)  # what stands outside of a tile must be 0
    return node.kind in ("view", "index") and not filled and all(_is_moved(body, read) for read in node.reads())


def _regions(graph: Graph, keys: tuple[str, ...], values: tuple[str, ...], transposed: bool) -> tuple[Region, ...]:
    """The regions of columns. Raises: NotCovered where keys and values are cut at different places."""
    key_sizes = tuple(graph.values[name].shape[-2 if transposed else -1] for name in keys)
    value_sizes = tuple(graph.values[name].shape[-2] for name in values)
    sizes = key_sizes if len(keys) > 1 else value_sizes
    if len(keys) > 1 and len(values) > 1 and key_sizes != value_sizes:
        raise NotCovered("keys and values in regions of different sizes")
    count, own = len(sizes), (len(keys) > 1, len(values) > 1)
    keys, values = (names if len(names) == count else names * count for names in (keys, values))
    return tuple(Region(*each, *own) for each in zip(sizes, keys, values, strict=True))


def _softmax(body: Body, weights: str, axis: int) -> tuple[str, list[str]]:
    """The values that the softmax is taken of, and the names of its nodes. Raises: NotCovered."""
    names = []
    node = _map(body, weights, "{0}", optional=True)
    while node is not None:  # copies, dropout that drops nothing
        names.append(weights)
        weights = node.reads()[0]
        node = _map(body, weights, "{0}", optional=True)
    left = _map(body, weights, NONE_LEFT, optional=True)
    if left is not None:
        names.append(weights)
        weights = left.reads()[0]
    quotient = _map(body, weights, "{0} / {1}")
    assert quotient is not None
    exps, total = (_known(body, name) for name in quotient.reads())
    shifted = _known(body, exps.reads()[0])
    if exps.operation != "tl.exp({0})" or shifted.operation != "{0} - {1}" or len(shifted.reads()) != 2:
        raise NotCovered("weights that are no softmax")
    logits, top = shifted.reads()[0], _known(body, shifted.reads()[1])
    if left is not None and left.reads()[1] != top.name:
        raise NotCovered("weights that are no softmax")
    of_row = [(total, ("sum",), exps.name), (top, ("max", "amax"), logits)]
    if any((node.kind, node.reads(), node.dims) != ("reduce", (read,), (axis,)) or node.operation not in operations
           for node, operations, read in of_row):  # fmt: skip
        raise NotCovered("weights that are no softmax over the columns")
    return logits, [*names, weights, exps.name, total.name, shifted.name, top.name]


def _known(body: Body, name: str) -> Node:
    node = body.node(name)
    if node is None:
        raise NotCovered("weights that come from outside")
    return node


def _map(body: Body, name: str, operation: str, optional: bool = False) -> Node | None:
    node = body.node(name)
    if node is not None and node.kind == "map" and node.operation == operation:
        return node
    if optional:
        return None
    raise NotCovered("weights that are no softmax")


def _leads_to(body: Body, name: str, target: str) -> bool:
    """Whether a node is `target` or goes into it, not by way of a product."""
    if name == target:
        return True
    return any(
        name in node.reads() and node.kind != "dot" and _leads_to(body, node.name, target) for node in body.nodes
        if node.kind in ("map", "view", "index")
    )  # fmt: skip


def _reads_from(body: Body, name: str, source: str) -> bool:
    node = body.node(name)
    return node is not None and any(read == source or _reads_from(body, read, source) for read in node.reads())


def _check_maps(nodes: Sequence[Node], shape: Shape, where: str) -> None:
    """Every one elementwise, over the whole shape or something that is broadcast into it along the batch."""
    for node in nodes:
        if node.kind != "map":
            raise NotCovered(f"{node.name} {where} is not elementwise")
        if not _fits(node, shape):
            raise NotCovered(f"{node.name} {where} has another shape")


def _fits(node: Node, shape: Shape) -> bool:
    """Whether a node is a step over a whole shape, or over its last two dimensions, the same for all of the others."""
    whole = same(product(node.shape), product(shape))
    last = same(product(node.shape[:-2]), ()) and node.shape[-2:] == shape[-2:]
    return node.kind == "map" and (whole or last)


def _check_operands(graph: Graph, found: SoftmaxProduct) -> None:
    tensors = [graph.values[name] for name in found.tensors]
    if len({tensor.dtype for tensor in tensors}) != 1:
        raise NotCovered("queries, keys and values of different dtypes")
    if not 1 <= len(found.batch) <= MAX_BATCH_DIMS or len({len(tensor.shape) for tensor in tensors}) != 1:
        raise NotCovered("attention with more or fewer than one or two batch dimensions")
    for tensor in tensors[1:]:
        for own, whole in zip(tensor.shape[:-2], found.batch, strict=True):
            if not is_one(own) and any(b % a for a, b in zip(own, whole, strict=True)):
                raise NotCovered("heads of queries that are no multiple of the heads of keys")
