"""join: kernels write their results where a call joins them, and the call is none any more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from mtmc.action import Action, Region, make_action
from mtmc.errors import CoderError
from mtmc.optimizations.kind import Optimization
from mtmc.optimizations.merging import saved_logit
from mtmc.optimizations.move import Move
from mtmc.optimizations.version import Version
from mtmc.protocols import Observation
from mtmc.rewrite.graph import Graph, Op
from mtmc.rewrite.joins import CAT, IN_PLACE, STACK, is_in_place, joins_of, number_of
from mtmc.rewrite.operators.table import FREE
from mtmc.rewrite.plan import Plan, Stage, in_order
from mtmc.rewrite.source import print_plan
from mtmc.rewrite.templates.product_tiles import BY_LAUNCHER

PAGE = """\
# join

Kernels write their results straight into the tensor that `torch.cat` or `torch.stack` would copy them to.

## What it does
The result of the call is allocated before its operands are made. A kernel whose result only the call reads is given
its slice, and stores with the slice's strides. Numbers (a column of zeros) are filled in, and operands that the library
makes or that come from outside are copied into their slices. Where kernels write all operands, nothing is left of the
call.

## When it pays
Where a kernel makes an operand that no kernel of the join can make as well: scans, norms, products, convolutions (the
layers of a DenseNet, an Inception or a U-Net), which then keep their channels last through the join. An exclusive
cumsum of 32768 x 32768 fp32 numbers moves 8.6 GB in place of 17.2: the join read and wrote all of them once more. What
elementwise kernels make is better joined inside of one kernel (`fuse`), which costs nothing at all.

## When it harms
- Many operands from outside: one copy each, where the call is one launch for all.
- Slices that begin and step at addresses that are no multiples of 16 bytes are stored element by element. Writes of
  whole rows still fill their sectors, but narrow slices, a few elements of each row, do not.
"""


class Join(Optimization):
    """Kernels write their parts of what is joined."""

    kind = "join"
    page = PAGE
    weight = 3.0
    changes = ("kernels", "bytes_moved")

    def legal(self, version: Version) -> Iterator[Move]:
        """One move for each call that joins results of kernels, alone or in a kernel with what is nothing or elementwise,
        and one for all of them."""
        calls: list[Stage] = []
        saved = 0
        for stage in version.plan.stages:
            op = version.graph.by_name[stage.ops[-1]]
            if op.target not in (CAT, STACK) or is_in_place(stage):
                continue
            child = _joined(version, stage, op)
            found = joins_of(version.graph, child).get(op.name) if child is not None else None
            if child is None or found is None or not _gains(version, stage, found.written):
                continue
            if _prints(version, child):
                calls.append(stage)
                saved += len(found.written)
                yield self._move(version, stage, child, [version.graph.producer[value] for value in found.written])
        if len(calls) > 1:
            region = replace(version.region(*calls), name=f"{calls[0].ops[-1]} to {calls[-1].ops[-1]}")
            sentence = f"have {saved} results written where {len(calls)} calls join them"
            action = make_action(self.kind, region, sentence, saved=saved, calls=len(calls))
            yield Move(action, partial(_all_joined, version, calls))

    def _move(self, version: Version, call: Stage, child: Plan, names: Sequence[str]) -> Move:
        stages = [call, *map(child.stage_of, names)]
        region = Region.spanning(call.ops[-1], [version.regions[each] for each in stages if each in version.regions])
        sentence = f"have {_listed(names)} written where {call.ops[-1]} joins them"
        return Move(make_action(self.kind, region, sentence, saved=len(names)), lambda: child)

    def logit(self, observation: Observation, action: Action, actions: Sequence[Action]) -> float:
        """Each operand that is not copied is a fusion of two kernels."""
        return saved_logit(action)


def _joined(version: Version, stage: Stage, op: Op) -> Plan | None:
    """The plan with a call done in place. What else its kernel does becomes stages of their own: views and numbers calls of
    torch, all that leads to one operand a kernel. None where operands have work in common, or where there is other work."""
    graph, plan = version.graph, version.plan
    call, rest = Stage((op.name,)).scheduled(IN_PLACE), [name for name in stage.ops if name != op.name]
    if graph.leaving(stage.ops) != list(op.outputs):
        return None
    parts = [call]
    while rest:
        ops = _leading_to(graph, rest)
        kernel = Stage(ops) if _is_free(graph, ops[-1]) else version.as_kernel(ops, {})
        if kernel is None or not (kernel.is_torch or graph.reads[op.name].issuperset(graph.leaving(ops))):
            return None
        rest = [name for name in rest if name not in ops]
        parts.append(kernel)
    kept = [_by_pointers(graph, each, op) for each in plan.stages if each != stage]
    return replace(plan, stages=tuple(in_order(graph, [*kept, *parts])))


def _all_joined(version: Version, calls: Sequence[Stage]) -> Plan:
    """The plan with all these calls done in place, but for those that the ones before are in the way of."""
    for stage in calls:
        still = stage in version.plan.stages
        child = _joined(version, stage, version.graph.by_name[stage.ops[-1]]) if still else None
        version = version if child is None else replace(version, plan=child)
    return version.plan


def _by_pointers(graph: Graph, stage: Stage, op: Op) -> Stage:
    """A stage that the call reads without descriptors for its results: they are of whole tensors."""
    described = dict(stage.schedule).get("results") == BY_LAUNCHER and graph.reads[op.name] & graph.flow(stage.ops)[0]
    return stage.scheduled({"results": "pointers"}) if described else stage


def _leading_to(graph: Graph, rest: Sequence[str]) -> tuple[str, ...]:
    """The last of some ops, and if it is no view and no number those that nothing else reads."""
    ops = {rest[-1]}
    for name in () if _is_free(graph, rest[-1]) else reversed(rest[:-1]):
        if ops.issuperset(reader for value in graph.by_name[name].outputs for reader in graph.readers(value)):
            ops.add(name)
    return tuple(name for name in rest if name in ops)


def _is_free(graph: Graph, name: str) -> bool:
    """Whether an op makes a view, or a number in many places, which is filled in."""
    op = graph.by_name[name]
    return op.target in FREE or number_of(op) is not None


def _gains(version: Version, call: Stage, written: Sequence[str]) -> bool:
    """Whether another kernel of the version makes one of the operands: its result is not copied any more."""
    makers = (version.plan.stage_of(version.graph.producer[value]) for value in written)
    return any(stage != call and not stage.is_torch for stage in makers)


def _prints(version: Version, plan: Plan) -> bool:
    try:
        print_plan(version.task, version.graph, plan)
    except CoderError:  # a size that nothing at hand gives
        return False
    return True


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
