"""made_rounded: results that kernels round to TF32 as they write them, since only convolutions read them that want them so.

Rounded behind its kernel a result is read and written once more: 0.44 of 4.1 ms of a DenseNet block, for an H200. In the
kernel's registers it costs a few instructions an element.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mtmc.rewrite.graph import Graph
from mtmc.rewrite.plan import Plan, Stage
from mtmc.rewrite.templates.launcher import Printed

ROUND_RESULTS = ("pointwise", "rowwise", "windows", "convolution")
"""Templates whose kernels can."""


def made_rounded(graph: Graph, plan: Plan, printed: Mapping[Stage, Printed]) -> dict[Stage, tuple[str, ...]]:
    """What is rounded where it is made: the kernel's stage -> these results of it.

    printed: the kernels of the plan. Only what lies channels last for its maker and its readers is made so; the copy that
    turns another one rounds it at no cost.
    """
    read_as_is = {*graph.results(), *(each.value for each in graph.mutations), *_read_as_is(graph, plan, printed)}
    rounded = {value for each in printed.values() for value in set(each.rounded) & set(each.last)}
    found = {
        stage: tuple(value for value in made.results if value in rounded - read_as_is and value in made.last)
        for stage, made in printed.items()
        if stage.template in ROUND_RESULTS
    }
    return {stage: values for stage, values in found.items() if values}


def _read_as_is(graph: Graph, plan: Plan, printed: Mapping[Stage, Printed]) -> Iterator[str]:
    """What calls of torch read, and kernels that do not want it rounded or not in the order in which it lies."""
    for stage in plan.stages:
        if stage not in printed:
            yield from (ref for op in stage.ops for ref in graph.by_name[op].refs())
            continue
        made = printed[stage]
        yield from (value for value in made.tensors if value not in made.rounded or value not in made.last)
