"""expansion: the ops that a kernel covers, expanded into nodes: its body."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from mtmc.rewrite.body import Body, NotCovered
from mtmc.rewrite.builder import Builder, Expand
from mtmc.rewrite.graph import IN_ORDER, Graph, Op
from mtmc.rewrite.numbers import made_of_numbers
from mtmc.rewrite.repeated_rows import repeated_rows
from mtmc.rewrite.scaled import after_product
from mtmc.rewrite.totals import by_rows
from mtmc.rewrite.turned_rows import turned_rows
from mtmc.rewrite.written_out import written_out


def build(graph: Graph, names: Sequence[str], table: Callable[[str], Expand | None]) -> Body:
    """The body of a kernel that covers the ops `names` (in graph order).

    table: target -> expansion, or None. Raises: NotCovered naming the op, or a value that has no elements at some shapes,
    where there is nothing to compute and no stride to speak of.
    """
    found = _found(graph, tuple(names), table)
    if isinstance(found, Body):
        return found
    raise NotCovered(*found.args)


@lru_cache(maxsize=16384)
def _found(graph: Graph, names: tuple[str, ...], table: Callable[[str], Expand | None]) -> Body | NotCovered:
    """What `build` gives or raises. A search asks for the same kernels in most of its versions: in a network of 500 ops the
    versions of one step ask for a thousand."""
    try:
        return _expanded(graph, names, table)
    except NotCovered as reason:
        return NotCovered(*reason.args)  # without its traceback, which holds on to all that was at work


def _expanded(graph: Graph, names: Sequence[str], table: Callable[[str], Expand | None]) -> Body:
    """See `build`. Raises: NotCovered."""
    for op in (graph.by_name[name] for name in names):
        for value in (*op.outputs, *op.refs()):
            if value in graph.used and value in graph.values and any(0 in size for size in graph.values[value].shape):
                raise NotCovered(f"{value} has no elements")
    before = made_of_numbers(graph, names)
    try:
        return _built(graph, names, table, before)
    except NotCovered:
        if not before:
            raise
    return _built(graph, names, table, [])


def _built(graph: Graph, names: Sequence[str], table: Callable[[str], Expand | None], before: Sequence[Op]) -> Body:
    """before: ops that the kernel does besides, since they are made of numbers. Raises: NotCovered."""
    builder = Builder(graph)
    _take_in(builder, before, table)
    for name in names:
        _expand(builder, graph.by_name[name], table)
    body = _prune(graph, builder, set(names))
    made = {out for op in before for out in op.outputs if out in builder.nodes}
    if made and (not body.loads or any(node.kind != "map" and made & set(node.reads()) for node in body.nodes)):
        raise NotCovered("what is made of numbers is not read by elementwise work beside a tensor")
    return body


def _expand(builder: Builder, op: Op, table: Callable[[str], Expand | None]) -> None:
    """Add the nodes of an op. Raises: NotCovered."""
    expand = table(op.target)
    if expand is None:
        raise NotCovered(f"no kernel template covers {op.target}")
    builder.begin(op)
    expand(builder, op)


def _take_in(builder: Builder, ops: Sequence[Op], table: Callable[[str], Expand | None]) -> None:
    """Add the nodes of ops that are made of numbers; of none where one is not covered, or needs more than numbers."""
    before = dict(builder.nodes)
    try:
        for op in ops:
            _expand(builder, op, table)
        added = [node for name, node in builder.nodes.items() if name not in before]
        if any(node.kind != "map" or not builder.of_numbers(node) for node in added):
            raise NotCovered("more than elementwise work on numbers")
    except NotCovered:
        builder.nodes = before


def _prune(graph: Graph, builder: Builder, covered: set[str]) -> Body:
    stores = graph.leaving(covered)
    for value in stores:
        targets = [graph.by_name[name].target for name in graph.readers(value)]
        if not graph.values[value].contiguous and any(target.startswith("aten.as_strided") for target in targets):
            raise NotCovered(f"{value} is read by its strides, and kernels write results in order")
    for op in (graph.by_name[name] for name in covered):
        if op.target == IN_ORDER and any(covered.intersection(graph.readers(value)) for value in op.outputs):
            raise NotCovered(f"{op.name}, which is copied to be read in order, together with what reads it")
    missing = [value for value in stores if value not in builder.nodes]
    if missing:
        raise NotCovered(f"value {missing[0]} is used but no kernel gives it")
    needed = set(stores)
    for node in reversed(builder.nodes.values()):
        if node.name in needed:
            needed |= set(node.reads())
    nodes = tuple(node for node in builder.nodes.values() if node.name in needed)
    loads = [read for node in nodes for read in node.reads() if read not in builder.nodes]
    body = after_product(graph, Body(nodes, tuple(dict.fromkeys(loads)), tuple(stores)))
    return turned_rows(graph, repeated_rows(graph, by_rows(graph, written_out(graph, body))))
