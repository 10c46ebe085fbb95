"""read_lying: kernels that read convolutions' results as these lie, channels last, though they go over others in order.

Tokens are the places of an image: a layer norm of them goes along the channels, which lie side by side behind a convolution
whose tensors lie channels last. Its kernel is written for strides of that order, and takes whatever strides there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from mtmc.rewrite.body import NotCovered
from mtmc.rewrite.graph import Graph, Shape, dense_strides
from mtmc.rewrite.plan import Plan, Stage
from mtmc.rewrite.printing import print_stage
from mtmc.rewrite.templates.channels_last import FORMATS, is_channels_last
from mtmc.rewrite.templates.launcher import Printed


def read_as_they_lie(graph: Graph, plan: Plan, printed: Mapping[Stage, Printed]) -> dict[Stage, Printed]:
    """Those of a plan's kernels that would be given copies in order of what lies channels last, each written for what there
    is. printed: the kernels as they are written for tensors in order."""
    found = dict[Stage, Printed]()
    for stage, lying in _lying_before(graph, plan, printed):
        values = tuple(value for value in printed[stage].tensors if value in lying and value not in printed[stage].last)
        values = tuple(
            value for value in values if graph.values[value].contiguous and value not in printed[stage].rounded
        )
        if not values or not _reads_once(stage):
            continue
        try:
            made = print_stage(_lying_graph(graph, values), stage, stage.title)
        except NotCovered:
            continue
        if (made.tensors, made.results, made.numbers) == (
            printed[stage].tensors,
            printed[stage].results,
            printed[stage].numbers,
        ):
            found[stage] = replace(made, last=(*made.last, *values))
    return found


def _lying_before(graph: Graph, plan: Plan, printed: Mapping[Stage, Printed]) -> Iterator[tuple[Stage, frozenset[str]]]:
    """Each kernel that does not go over channels-last tensors, with the values that lie so when it is launched."""
    lying = set[str]()
    for stage in plan.stages:
        if stage in printed:
            if not is_channels_last(stage):
                yield stage, frozenset(lying)
            lying |= set(printed[stage].last) & set(printed[stage].results)
        elif is_channels_last(stage):
            lying |= set(graph.by_name[stage.ops[0]].outputs)


def _reads_once(stage: Stage) -> bool:
    """Whether a kernel reads each element of its operands once: rows that are held in registers."""
    return stage.template == "rowwise" and stage.setting("passes") == "registers"


@lru_cache(maxsize=256)
def _lying_graph(graph: Graph, values: tuple[str, ...]) -> Graph:
    """The graph with some values channels last in memory."""
    lying = {
        value: replace(graph.values[value], contiguous=False, strides=_strides(graph.values[value].shape))
        for value in values
        if len(graph.values[value].shape) in FORMATS
    }
    return graph.knowing(lying)


def _strides(shape: Shape) -> Shape:
    """Of a tensor of this shape whose channels lie last."""
    batch, *places, channels = dense_strides((shape[0], *shape[2:], shape[1]))
    return (batch, channels, *places)
