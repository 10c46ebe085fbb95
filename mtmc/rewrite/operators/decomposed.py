"""decomposed: an op without an expansion of its own, by torch's decomposition of it into ops that have one.

torch's decomposition is traced under fake tensors at every exported variant. The traces must be the same sequence of ops;
they are merged as exports are, and each op of them is expanded through the same table, so that it may be decomposed too.
"""

from __future__ import annotations

import copy
from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from mtmc.rewrite.body import NotCovered
from mtmc.rewrite.builder import Builder, Expand
from mtmc.rewrite.graph import CONSTANT, Graph, Op, Ref, Tensor
from mtmc.rewrite.operators.decomposition import Decomposition, Input, decomposition
from mtmc.rewrite.operators.typed import kind_of, typed

DEEPEST = 6
"""Decompositions within each other."""
_SAME = ("aten.alias.default", "aten.detach.default", "aten.lift_fresh_copy.default", "aten.lift_fresh.default")
_BINARY = "add sub mul div eq ne lt le gt ge fmod remainder bitwise_and bitwise_or bitwise_xor"
_ALIKE = (
    "abs acos acosh asin asinh atan atan2 atanh ceil cos cosh erf exp exp2 expm1 floor fmax fmin isfinite log log10 log1p "
    "log2 maximum minimum neg reciprocal round rsqrt sign signbit sin sinh sqrt tan tanh trunc"
)
_PRIMS = {
    **{f"prims.{name}.default": f"aten.{name}.Tensor" for name in _BINARY.split()},
    **{f"prims.{name}.default": f"aten.{name}.default" for name in _ALIKE.split()},
    "prims.convert_element_type.default": "aten._to_copy.default",
    "prims.pow.default": "aten.pow.Tensor_Tensor",
    "prims.where.default": "aten.where.self",
}
"""What some decompositions name instead of ATen's ops, and the op that takes the same arguments."""
_LEFT = ("lstm", "gru", "rnn_", "scaled_dot_product", "rand", "dropout", "bernoulli", "normal", "convolution", "_like")
"""Parts of the names of ops that are left alone: long loops, random numbers, products that have templates."""


def decomposed(target: str, table: Callable[[str], Expand | None]) -> Expand | None:
    """The expansion of an op by its decomposition; None for what is no ATen op, or is left alone."""
    if target == CONSTANT or not target.startswith("aten.") or any(word in target for word in _LEFT):
        return None

    def expand(builder: Builder, op: Op) -> None:
        variants = len(builder.graph.variants)
        inputs: list[str] = []
        args, kwargs = (_abstract(builder, item, inputs) for item in (op.args, tuple(sorted(op.kwargs.items()))))
        found = decomposition(target, args, kwargs, repr((args, kwargs)), variants)
        if isinstance(found, str):
            raise NotCovered(found)
        if builder.depth >= DEEPEST:
            raise NotCovered(f"{target} is decomposed too often")
        try:
            _expand(builder, op, found, inputs, table)
        except _MissingPartError as error:
            raise NotCovered(f"{error}, a part of {target}") from None

    return expand


def _expand(
    builder: Builder, op: Op, found: Decomposition, inputs: list[str], table: Callable[[str], Expand | None]
) -> None:
    """Add the nodes of a decomposition's ops, whose results take the names of the op's."""
    names = dict(zip(found.inputs, inputs, strict=True))
    taken = set(names)
    for result, output in zip(found.results, op.outputs, strict=True):
        if isinstance(result, Ref) and result.name not in taken:
            names[result.name] = output
            taken.add(result.name)
    for name in found.values:
        names.setdefault(name, f"{op.name}_{name}")
    outer = builder.graph
    used = {names[name] for each in found.ops for name in each.refs()}
    used |= {output for output in op.outputs if output in outer.used}
    values = {names[name]: value for name, value in found.values.items() if names[name] not in outer.values}
    builder.graph = _with(outer, values, frozenset(used))
    builder.depth += 1
    try:
        for each in found.ops:
            _expand_one(builder, _renamed(each, names), table)
        for result, output in zip(found.results, op.outputs, strict=True):
            if isinstance(result, Ref) and names[result.name] != output:
                _same(builder, names[result.name], output)
    finally:
        builder.graph = outer
        builder.depth -= 1
    builder.begin(op)


def _expand_one(builder: Builder, op: Op, table: Callable[[str], Expand | None]) -> None:
    if op.target in _SAME:
        _same(builder, op.args[0].name, op.outputs[0])
        return
    target = _PRIMS.get(op.target, op.target)
    expand = table(target)
    if expand is None:
        raise _MissingPartError(f"no kernel template covers {op.target}")
    builder.begin(op)
    expand(builder, replace(op, target=target))


class _MissingPartError(NotCovered):
    """A part of a decomposition has no expansion."""


def _same(builder: Builder, value: str, name: str) -> None:
    dtype = builder.graph.values[name].dtype
    builder.map("{0}", typed(builder, value, dtype), compute=kind_of(dtype), name=name, flops=0)


def _with(graph: Graph, values: Mapping[str, Tensor], used: frozenset[str]) -> Graph:
    """The graph with some values more."""
    wider = copy.copy(graph)
    vars(wider)["values"] = ChainMap(dict(values), dict(graph.values))
    vars(wider)["used"] = graph.used | used
    return wider


def _renamed(op: Op, names: Mapping[str, str]) -> Op:
    def there(item: Any) -> Any:
        if isinstance(item, Ref):
            return Ref(names[item.name])
        return tuple(there(part) for part in item) if isinstance(item, tuple) else item

    kwargs = {key: there(value) for key, value in op.kwargs.items()}
    outputs = tuple(names[output] for output in op.outputs)
    return Op(outputs[0], op.target, there(op.args), kwargs, outputs, None)


def _abstract(builder: Builder, item: Any, inputs: list[str]) -> Any:
    """Arguments with what is known of a tensor in place of its name. inputs: gets the names."""
    if isinstance(item, Ref):
        inputs.append(item.name)
        known = builder.graph.values[item.name]
        return Input(builder.shape(item.name), known.dtype, known.strides)
    if isinstance(item, tuple):
        return tuple(_abstract(builder, part, inputs) for part in item)
    return item
