"""made_rounded: results that kernels hand on rounded to TF32, since only convolutions read them that want them so.

Rounded behind its kernel a result is read and written once more: 0.44 of 4.1 ms of a DenseNet block, for an H200. In the
kernel's registers it costs a few instructions an element. And what only picks elements, as the pool of a maximum does, may
pick rounded ones: rounding leaves the largest the largest. So it shares the copy that convolutions beside it read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mtmc.rewrite.body import Body
from mtmc.rewrite.expansion import build
from mtmc.rewrite.graph import Graph, lies_channels_last
from mtmc.rewrite.operators.table import FREE, table
from mtmc.rewrite.plan import Plan, Stage
from mtmc.rewrite.templates.conv_rounding import ROUNDED, rounded_in_memory
from mtmc.rewrite.templates.launcher import Printed
from mtmc.rewrite.templates.positions import analyse

ROUND_RESULTS = ("pointwise", "rowwise", "windows", "convolution")
"""Templates whose kernels can."""
_ONE_PRODUCT = ("tf32", ROUNDED)


def made_rounded(graph: Graph, plan: Plan, printed: Mapping[Stage, Printed]) -> dict[Stage, tuple[str, ...]]:
    """What is rounded where it is made: the kernel's stage -> these results of it.

    printed: the kernels of the plan. Only what lies channels last for its maker and its readers is made so; the copy that
    turns another one rounds it at no cost. So is what is in order, and seen by its readers as lying channels last.
    """
    rounded = {value for each in printed.values() for value in set(each.rounded) & set(each.last)}
    wanted = rounded - _as_is(graph, plan, printed, {stage: each.rounded for stage, each in printed.items()})
    if not wanted:
        return {}
    found = {
        stage: tuple(
            value
            for value in made.results
            if (value in wanted and value in made.last) or ((seen := seen_last(graph, plan, value)) and seen <= wanted)
        )
        for stage, made in printed.items()
        if stage.template in ROUND_RESULTS
    }
    return {stage: values for stage, values in found.items() if values}


def seen_last(graph: Graph, plan: Plan, value: str) -> frozenset[str]:
    """Views of a value that lie channels last, if these are all that is made of it."""
    if value in graph.results() or any(each.value == value for each in graph.mutations):
        return frozenset()
    ops = [graph.by_name[name] for name in graph.readers(value)]
    views = frozenset(output for op in ops for output in op.outputs)
    turns = all(op.target in FREE and plan.stage_of(op.name).is_torch for op in ops)
    return views if turns and all(lies_channels_last(graph.values[view]) for view in views) else frozenset()


def picked_rounded(graph: Graph, plan: Plan, printed: Mapping[Stage, Printed]) -> dict[Stage, tuple[str, ...]]:
    """The kernels that pick elements for convolutions alone -> what they are given rounded for that.

    That is what a convolution is given so in any case. One that cuts its operand off is none the worse for a rounded one.
    """
    picking = [stage for stage in printed if stage.template == "windows" and _picks(build(graph, stage.ops, table))]
    if not picking:
        return {}
    convolved = {stage: _convolved(graph, stage) for stage in printed if stage.template == "convolution"}
    as_is, found = _as_is(graph, plan, printed, convolved), dict[Stage, tuple[str, ...]]()
    for stage in picking:
        made = printed[stage]
        beside = {
            value
            for other in printed
            if other != stage
            for value in set(printed[other].rounded) & set(printed[other].last)
        }
        given = tuple(value for value in made.tensors if value in beside and value in made.last)
        if set(given) == set(made.tensors) and as_is.isdisjoint(made.results) and set(made.results) <= set(made.last):
            found[stage] = given
    return found


def _as_is(
    graph: Graph, plan: Plan, printed: Mapping[Stage, Printed], rounded: Mapping[Stage, tuple[str, ...]]
) -> set[str]:
    """What forward hands out or leaves behind, and what calls of torch read, and kernels that do not take it rounded, or in
    another order than it lies in. rounded: what kernels do take so."""
    left = (each.value for each in graph.mutations)
    return {*graph.results(), *left, *_read_as_is(graph, plan, printed, rounded)}


def _read_as_is(
    graph: Graph, plan: Plan, printed: Mapping[Stage, Printed], rounded: Mapping[Stage, tuple[str, ...]]
) -> Iterator[str]:
    for stage in plan.stages:
        if stage not in printed:
            yield from (ref for op in stage.ops for ref in graph.by_name[op].refs())
            continue
        made, taken = printed[stage], rounded.get(stage, ())
        yield from (value for value in made.tensors if value not in taken or value not in made.last)


def _convolved(graph: Graph, stage: Stage) -> tuple[str, ...]:
    """The operands that a convolution's single TF32 product could be given rounded."""
    if dict(stage.schedule).get("precision") not in _ONE_PRODUCT:
        return ()
    body = build(graph, stage.ops, table)
    return rounded_in_memory(body, analyse(graph, body), stage.scheduled({"precision": ROUNDED}))


def _picks(body: Body) -> bool:
    """Whether a body only picks elements."""
    return all(node.kind == "view" or (node.kind, node.operation) == ("window", "max") for node in body.nodes)
