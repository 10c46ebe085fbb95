"""boundaries: where one kernel should end and the next begin, so that what is written between them is small.

A norm is a reduction and elementwise work. Where a pool, or a reduction of other rows, reads the result, one kernel cannot
be all three, and the elementwise part may go with either neighbour: behind the statistics it is written and read again,
before the pool nothing is written but the statistics, a number or two a row.
"""

from __future__ import annotations

from mtmc.optimizations.version import Version
from mtmc.rewrite.flow import Flow
from mtmc.rewrite.graph import product
from mtmc.rewrite.plan import Stage, merged_ops

FEW = 16
"""Elements that what is reduced has at least, for each of what it comes to."""
FARTHEST = 24
"""Stages of elementwise work between one reduction and the next."""
REDUCING = ("rowwise", "windows")
"""Templates whose kernels read more elements than they write."""


def is_for_the_next(version: Version, flow: Flow, first: Stage, second: Stage) -> bool:
    """Whether all that reads the result of elementwise work, `second`, is more such work and what reduces it in the end,
    which one kernel covers with it, but not with the reduction `first` too, which it reads or which reads what it reads."""
    few = FEW * _largest(version, first) <= _largest(version, second)
    return few and _apart(version, flow, [first], second)


def are_for_two(version: Version, flow: Flow, first: Stage, second: Stage) -> bool:
    """Whether elementwise work on the same value is for two kernels that cannot be one, each of which takes in its own."""
    if not flow.independent(first, second):
        return False
    own = _up_to_the_next(version, flow, first)
    return bool(own) and second not in own and _is_kernel(version, flow, own) and _apart(version, flow, own, second)


def stays_with_rows(version: Version, first: Stage, second: Stage) -> bool:
    """Whether work on what a reduction comes to is better in that one's kernel than in that of many more elements, `second`,
    which would do it for each of them."""
    if FEW * _largest(version, first) > _largest(version, second):
        return False
    few, reductions = [first], list[Stage]()
    for stage in few:  # which grows
        for maker in _makers(version, stage):
            template = _template(version, maker)
            if template == "rowwise" and maker != second:
                reductions.append(maker)
            elif template == "pointwise" and maker not in (second, *few):
                few += [maker] * (FEW * _largest(version, maker) <= _largest(version, second))
    return any(version.as_kernel(merged_ops(version.graph, (maker, *few)), {}) is not None for maker in reductions)


def _makers(version: Version, stage: Stage) -> list[Stage]:
    """The stages that make what a stage reads."""
    graph = version.graph
    makers = {graph.producer[ref] for name in stage.ops for ref in graph.reads[name] if ref in graph.producer}
    return [each for each in version.plan.stages if not makers.isdisjoint(each.ops)]


def _apart(version: Version, flow: Flow, one: list[Stage], start: Stage) -> bool:
    """Whether elementwise work and what reduces it in the end are one kernel, but not together with some other stages."""
    other = _up_to_the_next(version, flow, start)
    if not other or not set(other).isdisjoint(one):
        return False
    inside = {each for stage in one for end in other for each in flow.between(stage, end)}
    return _is_kernel(version, flow, other) and not _is_kernel(version, flow, [*{*one, *other, *inside}])


def _is_kernel(version: Version, flow: Flow, stages: list[Stage]) -> bool:
    """Whether one kernel covers some stages and the views between them."""
    parts = flow.together(*flow.in_order(stages))
    return parts is not None and version.as_kernel(merged_ops(version.graph, parts), {}) is not None


def _up_to_the_next(version: Version, flow: Flow, start: Stage) -> list[Stage]:
    """The elementwise work that hangs on a stage, with it, and what reduces that in the end; nothing where others read."""
    found, todo = [start], [start]
    while todo:
        stage = todo.pop()
        if len(found) > FARTHEST or not version.graph.results().isdisjoint(version.graph.leaving(stage.ops)):
            return []
        for reader in flow.readers(stage):
            template = _template(version, reader)
            if template not in (*REDUCING, "pointwise"):
                return []
            if reader not in found:
                found.append(reader)
                todo += [reader] * (template == "pointwise")
    return found if any(_template(version, stage) in REDUCING for stage in found) else []


def _template(version: Version, stage: Stage) -> str | None:
    """The template that covers what a stage computes, None where none does."""
    return version.template(stage) if stage.is_torch else stage.template


def _largest(version: Version, stage: Stage) -> int:
    """Elements of the largest value that a stage makes for others."""
    graph = version.graph
    return max(((product(graph.values[out].shape) or (1,))[0] for out in graph.leaving(stage.ops)), default=0)
