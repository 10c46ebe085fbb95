"""joins: tensors that are joined (`torch.cat`, `torch.stack`) by the kernels that make them, each in its place.

A call whose stage says so is no call: its result is made before its operands, those that kernels make are written into their
part of it, and what is left of it are numbers that are filled in, and copies of what comes from the library or from outside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from mtmc.rewrite.body import NotCovered, Part
from mtmc.rewrite.graph import Graph, Op
from mtmc.rewrite.packing import packed_stages
from mtmc.rewrite.plan import Plan, Stage
from mtmc.rewrite.printing import print_stage
from mtmc.rewrite.templates.channels_last import is_channels_last

CAT, STACK = "aten.cat.default", "aten.stack.default"
JOINED = "joined"
IN_PLACE = {JOINED: "in_place"}
"""The setting of a call's stage by which kernels write its operands into its result."""
_FILLED = {"zeros": 0, "zeros_like": 0, "new_zeros": 0, "ones": 1, "ones_like": 1, "new_ones": 1}
_FULL = {"full": 1, "full_like": 1, "new_full": 2}
"""Calls that make tensors of one number: the number, or which argument it is."""


@dataclass(frozen=True)
class Join:
    """A call whose result kernels write. dim: along which it joins. written: the operands that they write. last: whether the
    result lies channels last."""

    op: Op
    dim: int
    written: tuple[str, ...]
    last: bool = False

    @property
    def operands(self) -> tuple[str, ...]:
        """What it joins, in order."""
        return self.op.refs()

    def number(self, graph: Graph, value: str) -> float | None:
        """The number that all elements of an operand are, None where it is none or of another dtype."""
        alike = graph.values[value].dtype == graph.values[self.op.outputs[0]].dtype
        return number_of(graph.by_name[graph.producer[value]]) if alike and value in graph.producer else None

    def filled(self, graph: Graph) -> tuple[str, ...]:
        """The operands that are numbers."""
        left = (value for value in self.operands if value not in self.written)
        return tuple(value for value in left if self.number(graph, value) is not None)

    def copied(self, graph: Graph) -> tuple[str, ...]:
        """The operands that are left to be copied."""
        done = {*self.written, *self.filled(graph)}
        return tuple(value for value in self.operands if value not in done)


def number_of(op: Op) -> float | None:
    """The number that all elements of what an op makes are, None where it is none or not known to be."""
    name = op.target.split(".")[1]
    at = _FULL.get(name, len(op.args))
    found = op.args[at] if at < len(op.args) else _FILLED.get(name)
    return found if isinstance(found, (int, float)) else None


def is_in_place(stage: Stage) -> bool:
    """Whether a stage is a call whose operands kernels write into its result."""
    return stage.is_torch and dict(stage.schedule).get(JOINED) == IN_PLACE[JOINED]


@lru_cache(maxsize=256)
def joins_of(graph: Graph, plan: Plan) -> Mapping[str, Join]:
    """The calls of which kernels write operands into the result, by their ops."""
    kept = packed_stages(graph, plan) if plan.packed else []
    stages = [stage for stage in plan.stages if stage not in kept]
    kernels = [stage for stage in stages if not stage.is_torch]
    makers = {value: stage for stage in kernels for value in graph.flow(stage.ops)[0]}
    calls = (graph.by_name[stage.ops[0]] for stage in stages if is_in_place(stage))
    joins = {op.name: join for op in calls if (join := _join(graph, op, makers)) is not None}
    for stage in kernels:
        lost = _lost(graph, joins, stage)
        if lost:
            left = [replace(join, written=tuple(x for x in join.written if x not in lost)) for join in joins.values()]
            joins = {join.op.name: join for join in left if join.written}
    return joins


def _join(graph: Graph, op: Op, makers: Mapping[str, Stage]) -> Join | None:
    """A call that joins tensors with those operands as written that nothing else reads; None where there is none.

    makers: the stages of kernels by what they make.
    """
    if op.target not in (CAT, STACK) or not graph.values[op.outputs[0]].contiguous:
        return None
    result, operands = graph.values[op.outputs[0]], op.refs()
    rank = len(result.shape) - (op.target == STACK)
    dim = op.args[1] if len(op.args) > 1 else op.kwargs.get("dim", 0)
    ranks = {len(graph.values[value].shape) for value in operands}  # torch joins an empty row to anything
    if ranks != {rank} or not isinstance(dim, int):
        return None
    written = tuple(
        value
        for value in operands
        if value in makers
        and graph.values[value].dtype == result.dtype
        and list(graph.readers(value)) == [op.name]
        and operands.count(value) == 1
        and value not in graph.results()
    )
    stages = {makers[value] for value in written}
    last = op.target == CAT and any(set(_last(graph, stage)) & set(written) for stage in stages)
    return Join(op, dim % len(result.shape), written, last) if written else None


def _last(graph: Graph, stage: Stage) -> tuple[str, ...]:
    """What of a kernel lies channels last."""
    return print_stage(graph, stage, stage.title).last if is_channels_last(stage) else ()


def parts_of(graph: Graph, joins: Mapping[str, Join], stage: Stage) -> tuple[Part, ...]:
    """What a kernel writes into parts of larger tensors."""
    makes = graph.leaving(stage.ops) if joins and not stage.is_torch else []
    dims = {value: join.dim for join in joins.values() for value in join.written}
    return tuple(Part(value, dims[value], dims[value] - 1) for value in makes if value in dims)


def _lost(graph: Graph, joins: Mapping[str, Join], stage: Stage) -> set[str]:
    """What a kernel cannot write into parts: all, or what lies otherwise than the rest of the larger tensor."""
    parts = parts_of(graph, joins, stage)
    last = {value for join in joins.values() if join.last for value in join.written}
    try:
        found = print_stage(graph, stage, stage.title, parts)
    except NotCovered:
        return {part.value for part in parts}
    return {part.value for part in parts if (part.value in found.last) != (part.value in last)}
