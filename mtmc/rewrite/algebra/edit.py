"""edit: changing a graph: new ops in front of one, whose result they replace; what nothing reads any more is left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mtmc.rewrite.algebra.laid_out import laid_out, results_of
from mtmc.rewrite.body import Node, NotCovered
from mtmc.rewrite.expansion import build
from mtmc.rewrite.graph import Graph, Op, Ref, Shape, Tensor, Varying, is_dense, lie_alike

CASTS, SOFTMAXES = ("aten.to.dtype", "aten._to_copy.default"), ("aten.softmax.int", "aten._softmax.default")
"""Targets of ops that several rules look for."""


@dataclass(frozen=True)
class Finding:
    """A rule that fits. sentence: what is equal to what. ops: of the graph, that it replaces. graph: without them."""

    sentence: str
    ops: tuple[str, ...]
    graph: Graph


Rule = Callable[[Graph, Op], Finding | None]
"""Looks at the ops that end with the given one."""


class Editor:
    """New ops in front of `op`, in the order in which they are added."""

    def __init__(self, graph: Graph, op: Op) -> None:
        self.graph, self.op = graph, op
        self._ops: list[Op] = []
        self._values: dict[str, Tensor] = {}

    def tensor(self, item: Ref) -> Tensor:
        """What is known of a value, old or new."""
        return self._values.get(item.name) or self.graph.values[item.name]

    def add(
        self,
        target: str,
        args: tuple[Any, ...],
        shape: Shape,
        hint: str,
        kwargs: Mapping[str, Any] | None = None,
        strides: Shape = (),
        dtype: str = "",
    ) -> Ref:
        """Add an op and return its result. strides: () where it is contiguous. dtype: "" for that of the replaced result."""
        name = self._name(hint)
        self._ops.append(Op(name, target, args, dict(kwargs or {}), (name,), self.op.line))
        self._values[name] = Tensor(shape, dtype or self.graph.values[self.op.outputs[0]].dtype, not strides, strides)
        return Ref(name)

    def pair(
        self, target: str, args: tuple[Any, ...], shape: Shape, hints: tuple[str, str], kwargs: Mapping[str, Any]
    ) -> tuple[Ref, Ref]:
        """Add an op with two results of one shape and of the replaced result's dtype."""
        dtype = self.graph.values[self.op.outputs[0]].dtype
        first, second = names = (self._name(hints[0]), self._name(hints[1]))
        self._ops.append(Op(first, target, args, dict(kwargs), names, self.op.line))
        self._values |= dict.fromkeys(names, Tensor(shape, dtype, True))
        return Ref(first), Ref(second)

    def _name(self, hint: str) -> str:
        taken = {*self.graph.by_name, *self.graph.values, *self._values}
        base = name = f"{self.op.name}_{hint}"
        number = 1
        while name in taken:
            number += 1
            name = f"{base}{number}"
        return name

    def shaped(self, item: Ref, shape: Shape) -> Ref:
        """The same elements under another shape: a view that may lie as the operand does, or a copy."""
        tensor = self.tensor(item)
        if tensor.shape == shape:
            return item
        made = self.add("aten.reshape.default", (item, sizes(shape)), shape, "shaped", dtype=tensor.dtype)
        self._ask()
        return made

    def called(
        self, target: str, args: tuple[Any, ...], hint: str, kwargs: Mapping[str, Any] | None = None
    ) -> Ref | None:
        """Add an op whose result is and lies as torch says; None where torch refuses its operands."""
        made = self.add(target, args, (), hint, kwargs)
        return made if self._ask() else None

    def _ask(self) -> bool:
        """Ask torch for the form of what the newest op makes; no where it refuses."""
        known = results_of(self._ops[-1], {**self.graph.values, **self._values}, len(self.graph.variants))
        self._values |= known or {}
        return known is not None

    def permuted(self, item: Ref, order: Sequence[int], hint: str) -> Ref:
        """A view with the dimensions in another order."""
        if list(order) == list(range(len(order))):
            return item
        tensor = self.tensor(item)
        shape, lying = (tuple(each[dim] for dim in order) for each in (tensor.shape, tensor.lying))
        strides = () if is_dense(shape, lying) else lying
        return self.add("aten.permute.default", (item, tuple(order)), shape, hint, strides=strides, dtype=tensor.dtype)

    def columns(self, weight: Ref, item: Ref, bias: Any, shape: Shape, hint: str) -> Ref:
        """A layer of the last dimension but one: the weight times what lies there, and the bias of each row, if there is
        one. shape: of the result."""
        made = self.add("aten.matmul.default", (weight, item), shape, hint)
        if not isinstance(bias, Ref):
            return made
        column = self.add("aten.unsqueeze.default", (bias, 1), (shape[-2], (1,) * len(shape[-1])), f"{hint}_bias")
        return self.add("aten.add.Tensor", (made, column), shape, f"{hint}_sum")

    def finish(self, sentence: str, ops: tuple[str, ...], by: Ref, *others: Ref) -> Finding | None:
        """The graph with the op's first results replaced, by as many; None where these would not be the same tensors."""
        pairs = dict(zip(self.op.outputs, (by, *others), strict=False))
        if not all(self._fits(old, new) for old, new in pairs.items()):
            return None
        rest = self.op.outputs[len(pairs) :]
        if any(self.graph.readers(value) or value in self.graph.results() for value in rest):
            return None
        return self.replaced(sentence, ops, pairs)

    def relaid(self, sentence: str, ops: tuple[str, ...], by: Ref, copies: bool = True) -> Finding | None:
        """The graph with the op's result replaced by one that may lie in another way: with what is made of it as that lies
        then, or, if it may, with a copy in order; None where neither gives what forward's results are."""
        old = self.graph.values[self.op.outputs[0]]
        found = self.replaced(sentence, ops, {self.op.outputs[0]: by})
        if lie_alike(self.tensor(by), old):
            return found
        lying = laid_out(found.graph, [by.name])
        if lying is not None:
            return replace(found, graph=lying)
        if not copies:
            return None
        copy = self.add("aten.contiguous.default", (by,), old.shape, "in_order")
        return self.finish(sentence, ops, copy)

    def replaced(self, sentence: str, ops: tuple[str, ...], pairs: Mapping[str, Ref]) -> Finding:
        """The graph with other values (`pairs`: old name -> new value) in the places of some, whatever their form, and
        without the op itself."""
        listed: list[Op] = []
        for op in self.graph.ops:
            if op.name == self.op.name:
                listed += self._ops
            else:
                args, kwargs = exchanged(op.args, pairs), exchanged(dict(op.kwargs), pairs)
                listed.append(replace(op, args=args, kwargs=kwargs))
        output = exchanged(self.graph.output, pairs)
        names = {old: new.name for old, new in pairs.items()}
        mutations = tuple(replace(each, value=names.get(each.value, each.value)) for each in self.graph.mutations)
        made = replace(
            self.graph,
            ops=_live(listed, (output, tuple(Ref(each.value) for each in mutations))),
            output=output,
            mutations=mutations,
            shared=frozenset(names.get(value, value) for value in self.graph.shared),
            values={**self.graph.values, **self._values},
            found=(*self.graph.found, sentence),
        )
        return Finding(sentence, ops, made)

    def _fits(self, old: str, by: Ref) -> bool:
        """Whether a value is the same tensor as an old one, as far as those know that read it."""
        before, after = self.graph.values[old], self.tensor(by)
        if (before.shape, before.dtype, before.contiguous) != (after.shape, after.dtype, after.contiguous):
            return False
        # else forward would return one of its own inputs
        return old not in self.graph.results() or by.name in self._values or by.name in self.graph.producer


def number_of(size: Sequence[int]) -> int | Varying:
    """A number at every set of sizes as the argument of an op."""
    return size[0] if len(set(size)) == 1 else Varying(tuple(size))


def sizes(shape: Shape) -> tuple[int | Varying, ...]:
    """A shape as the argument of an op."""
    return tuple(map(number_of, shape))


def producer(graph: Graph, item: Any, *targets: str) -> Op | None:
    """The op that makes a value, where it is one of these (of any, where none is given) and nothing else reads what it
    makes."""
    if not isinstance(item, Ref) or item.name not in graph.producer:
        return None
    op = graph.by_name[graph.producer[item.name]]
    if (targets and op.target not in targets) or item.name != op.outputs[0] or item.name in graph.results():
        return None
    return op if len(graph.readers(item.name)) == 1 else None


def of_module(graph: Graph, value: str) -> bool:
    """Whether a value is a parameter or made of parameters alone."""
    if value not in graph.producer:
        return value in graph.parameters
    reads = graph.reads[graph.producer[value]]
    return bool(reads) and all(of_module(graph, ref) for ref in reads)


def nodes_of(graph: Graph, name: str) -> tuple[Node, ...]:
    """The nodes of an op's kernel; none where no kernel covers it."""
    from mtmc.rewrite.operators.table import table

    try:
        return build(graph, (name,), table).nodes
    except NotCovered:
        return ()


def same_elsewhere(shape: Shape, other: Shape, dims: tuple[int, ...]) -> bool:
    """Whether two shapes agree but for these dimensions."""
    return len(shape) == len(other) and all(
        a == b for axis, (a, b) in enumerate(zip(shape, other, strict=True)) if axis not in dims
    )


def exchanged(item: Any, pairs: Mapping[str, Ref]) -> Any:
    """An argument with other values in the places of some."""
    if isinstance(item, Ref):
        return pairs.get(item.name, item)
    if isinstance(item, dict):
        return {key: exchanged(part, pairs) for key, part in item.items()}
    if isinstance(item, (tuple, list)):
        return type(item)(exchanged(part, pairs) for part in item)
    return item


def _live(ops: list[Op], results: Any) -> tuple[Op, ...]:
    """The ops whose results are used. results: what forward returns and leaves behind."""
    last = Op("", "", (results,), {}, (), None)
    needed, live = set(last.refs()), []
    for op in reversed(ops):
        if needed & set(op.outputs):
            live.append(op)
            needed |= set(op.refs())
    return tuple(reversed(live))
