"""softmax_product: what a body computes that is a product of a softmax of a product: attention, whoever writes it out."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from mtmc.rewrite.body import Body, Count, Node, NotCovered, Number, leading_to
from mtmc.rewrite.graph import Graph, Shape, Size, is_one, product, same
from mtmc.rewrite.operators.attention import CAUSAL, MASKED, SCALED_BY_WIDTH
from mtmc.rewrite.templates.softmax_weights import softmax_of

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
    table puts in order) or numbers of fewer bits times scales, read where they lie. scores: the first product; between:
    maps on it before the softmax; logits: what the softmax is taken of; result: the second product; after: maps on it.
    forgiving: whether a row of which all columns are masked gives 0, as in torch's function, and not NaN. weights,
    weighing: the softmax's result, and what multiplies it before the second product (see `softmax_weights`). sink: one more
    logit of each row, [..., 1], without a value; "" for none. Between products a view is the same matrices.
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
    weights: str = ""
    weighing: tuple[Node, ...] = ()
    sink: str = ""

    @property
    def causal(self) -> bool:
        """Whether columns behind a row's own are masked, so that programs need not look at them."""
        return any(node.operation == CAUSAL for node in self.between)

    @property
    def reshaped(self) -> bool:
        """Whether scores have other dimensions before the softmax than the product gave them."""
        return any(node.kind == "view" for node in self.between)

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
            if node.kind == "view":
                last = node.name
                maps.append(last)
                continue
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
    """Whether a body has two products, one made of the other, and an exponential between them."""
    dots = [node.name for node in body.nodes if node.kind == "dot"]
    if len(dots) != 2:
        return False
    between = leading_to(body, [dots[1]])
    return dots[0] in between and any("tl.exp" in node.operation for node in body.nodes if node.name in between)


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
    softmax = softmax_of(body, weights)
    logits = softmax.logits
    names = [node.name for node in body.nodes]
    between = tuple(node for node in body.nodes[names.index(scores.name) + 1 :] if _leads_to(body, node.name, logits))
    # What stands before the first product and is no part of it: masks, made of tensors from outside.
    masks = tuple(node for node in body.nodes[: names.index(scores.name)] if _leads_to(body, node.name, logits))
    after = tuple(node for node in body.nodes if _reads_from(body, node.name, result.name))
    maps = (*between, *masks, *after)
    factors = {read for node in softmax.weighing for read in node.reads()} | {softmax.sink} - {""}
    moving |= {node.name for node in body.nodes for name in factors if _leads_to(body, node.name, name)}
    own = {*softmax.nodes, *(node.name for node in softmax.weighing)}
    known = {key, value, scores.name, result.name, *own, *moving, *(node.name for node in maps)}
    others = [node.name for node in body.nodes if node.name not in known]
    if others:
        raise NotCovered(f"{others[0]} is no part of the attention")
    # Of these, what is less than the scores is computed where an element of it is needed.
    aside = {node.name for node in (*masks, *between) if not _fits(node, scores.shape)}
    aside -= {name for name in aside if _reads_from(body, name, scores.name)}
    between = _at_home(tuple(node for node in (*masks, *between) if node.name not in aside), logits)
    _check_maps(between, scores.shape, "before the softmax")
    _check_maps(softmax.weighing, scores.shape, "after the softmax")
    _check_maps(after, result.shape, "after the product")
    if any(value not in {result.name, *(node.name for node in after)} for value in body.stores):
        raise NotCovered("the weights are needed too")
    regions = _regions(graph, pieces[1], pieces[2], transposed)
    found = SoftmaxProduct(
        query, regions, transposed, scores.shape[:-2], scores.shape[-2], scores.shape[-1],
        graph.values[query].shape[-1], result.shape[-1], scores, between, logits, result, after, made,
        softmax.forgiving, softmax.weights, softmax.weighing, softmax.sink,
    )  # fmt: skip
    _check_operands(graph, found)
    if found.sink:
        _check_sink(graph, body, found)
    return found


def _pieces(graph: Graph, body: Body, value: str, axis: int | None) -> tuple[str, ...]:
    """The tensors that an operand consists of, one behind the other along an axis. Raises: NotCovered where it is made in
    the same kernel in another way than by moving elements."""
    node = body.node(value)
    joined = node is not None and node.operation == "join" and node.dims == (axis,)
    if node is not None and joined and len(node.reads()) <= MAX_REGIONS and not any(map(body.node, node.reads())):
        return node.reads()
    if not is_made(body, value, _CONVERTED if axis is not None else ()) or value not in graph.values:
        raise NotCovered("queries, keys or values that are made in the same kernel")
    return (value,)


_CONVERTED = ("{0}", "{0}.to(tl.float32)", "{0} * {1}")


def is_made(body: Body, value: str, maps: Collection[str] = _CONVERTED) -> bool:
    """Whether a value is elements of tensors from outside, at their places or others, or such numbers converted, or their
    product: 0 where they are (what stands outside of a tile must be). maps: what may be done with them."""
    node = body.node(value)
    if node is None:
        return True
    filled = node.fill is not None and not math.isnan(node.fill)
    moves = node.kind in ("view", "index") and not filled
    return (moves or node.operation in maps) and all(is_made(body, read, maps) for read in node.reads())


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
        if node.kind == "view" and node.shape[-1:] == shape[-1:] and same(product(node.shape), product(shape)):
            continue
        if node.kind != "map":
            raise NotCovered(f"{node.name} {where} is not elementwise")
        if not _fits(node, shape):
            raise NotCovered(f"{node.name} {where} has another shape")


def _at_home(nodes: Sequence[Node], logits: str) -> tuple[Node, ...]:
    """The steps that are taken on tiles of scores, without those of which nothing but indices is made."""
    needed = {logits}
    for node in reversed(nodes):
        needed |= set(node.reads()) if node.name in needed else set()
    return tuple(node for node in nodes if node.name in needed)


def _fits(node: Node, shape: Shape) -> bool:
    """Whether a node is a step over a whole shape, or over its last two dimensions, the same for all of the others."""
    whole = same(product(node.shape), product(shape))
    last = same(product(node.shape[:-2]), ()) and node.shape[-2:] == shape[-2:]
    return node.kind in ("map", "view") and (whole or last)


def _check_sink(graph: Graph, body: Body, found: SoftmaxProduct) -> None:
    node = body.node(found.sink)
    shape = graph.values[found.sink].shape if node is None else node.shape
    weights = body.node(found.weights)
    whole = weights is not None and weights.shape[-1] == found.columns
    if not whole or not is_one(shape[-1]) or not same(product(shape), product((*found.batch, found.rows))):
        raise NotCovered("more than one logit a row without a value")
    if _reads_from(body, found.sink, found.scores.name):
        raise NotCovered("a logit without a value that hangs on the scores")


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
