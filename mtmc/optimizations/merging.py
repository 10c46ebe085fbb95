"""merging: stages that become one kernel: neighbours, what stands between two products, what stands around one."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import combinations

from mtmc.action import Action
from mtmc.optimizations.groups import MULTIPLY, flow_of, grown, settings_of
from mtmc.optimizations.version import Version
from mtmc.rewrite.flow import Flow
from mtmc.rewrite.graph import Graph
from mtmc.rewrite.operators.products import PRODUCTS
from mtmc.rewrite.plan import Plan, Stage, feeds, merged_ops

Merged = tuple[list[Stage], Stage]
"""Stages that are fused, the views between them too, and the kernel that they become."""
LONGEST_CHAIN = 12
"""Stages between two products: a scale, a mask, and a softmax that is written out are ten."""


def neighbours(version: Version, flow: Flow) -> Iterator[tuple[Stage, ...]]:
    """Pairs of neighbours, then products with something between them that neither can take alone: two of one operand with
    what takes both, a gated MLP's; and attention's."""
    yield from flow.pairs()
    products = products_of(version)
    for last in (stage for stage in version.working() if stage not in products):
        pairs = combinations([each for each in products if feeds(version.graph, each, last)], 2)
        yield from ((*pair, last) for pair in pairs)
    yield from chains(version, flow)


def chains(version: Version, flow: Flow) -> Iterator[tuple[Stage, ...]]:
    """Each two products with all that stands between them, first together with what makes masks for that alone, and numbers
    of more bits of such of fewer: keys and values that are quantized."""
    products = products_of(version)
    for first in products:
        for second in flow.first_met(first, products):
            between = flow.between(first, second)
            if not 0 < len(between) <= LONGEST_CHAIN or set(between) & set(products):
                continue
            makers = flow.makers(between, lambda stage: _goes_by_elements(version, stage))
            wider = flow.makers((first, *between, second), lambda stage: _widens(version, stage))
            for more in (list(dict.fromkeys((*wider, *makers))), makers):
                if more:
                    yield first, *more, *between, second
            yield first, *between, second


def merged(version: Version, flow: Flow, *stages: Stage) -> Merged | None:
    """Stages that hang together and the kernel they become, None where they cannot."""
    parts = flow.together(*flow.in_order(stages))
    if parts is None:
        return None
    kernel = version.as_kernel(merged_ops(version.graph, parts), settings_of(version, stages))
    return None if kernel is None else (parts, kernel)


def products_of(version: Version) -> list[Stage]:
    """The stages with products in them."""
    graph = version.graph
    return [stage for stage in version.working() if any(graph.by_name[op].target in PRODUCTS for op in stage.ops)]


def saved_logit(action: Action) -> float:
    """What a prior gains by the kernels that an action saves: each is a fusion of two."""
    return math.log(int(dict(action.params).get("saved", 1)))


def joined(version: Version, ops: Sequence[str]) -> Plan:
    """The version's plan with products as kernels, and with what stands around them in these: attention where two have a
    softmax between them, one kernel of two that meet in a gate, else neighbours that go element by element. ops: the
    products that are meant.

    What no kernel of a product makes stays a torch call: a product with one column is rows that are reduced.
    """
    version = _with_gates(_with_attention(version, ops), ops)
    for op in ops:
        stage = version.plan.stage_of(op)
        kernel = version.as_kernel(stage.ops, {}) if stage.is_torch else None
        if kernel is not None and kernel.template in MULTIPLY:
            version = grown(replace(version, plan=version.plan.with_stage(stage, kernel)), kernel)
    return version.plan


def joined_up_to(version: Version, pairs: Sequence[tuple[str, str]]) -> Plan:
    """The version's plan with each of some products and all up to what reduces its rows as one kernel, where that is one."""
    for first, last in pairs:
        flow, ends = flow_of(version), [version.plan.stage_of(name) for name in (first, last)]
        found = merged(version, flow, ends[0], *flow.between(*ends), ends[1])
        if found is not None:
            version = replace(version, plan=version.plan.with_merged(version.graph, *found))
    return version.plan


def _with_attention(version: Version, ops: Sequence[str]) -> Version:
    """The version with each chain between products as one kernel, if one of these is among `ops`."""
    while True:
        flow = flow_of(version)
        for stages in chains(version, flow):
            meant = set(ops) & {*stages[0].ops, *stages[-1].ops}
            found = merged(version, flow, *stages) if meant else None
            if found is not None:
                version = replace(version, plan=version.plan.with_merged(version.graph, *found))
                break
        else:
            return version


def _with_gates(version: Version, ops: Sequence[str]) -> Version:
    """The version with each two of some products and all up to where they meet as one kernel, where that is one."""
    for pair in combinations(ops, 2):
        flow, (one, two) = flow_of(version), map(version.plan.stage_of, pair)
        last = flow.meeting(one, two) if one != two and flow.independent(one, two) else None
        if last is not None:
            between = {*flow.between(one, last), *flow.between(two, last)}
            found = merged(version, flow, one, two, *between, last)
            if found is not None:
                version = replace(version, plan=version.plan.with_merged(version.graph, *found))
    return version


def _widens(version: Version, stage: Stage) -> bool:
    """Whether a stage goes element by element, and what it is made of, as far back as that goes so, is fewer bytes."""
    graph = version.graph
    return _goes_by_elements(version, stage) and value_bytes(graph, _sources(version, stage)) < value_bytes(
        graph, graph.leaving(stage.ops)
    )


def _sources(version: Version, stage: Stage) -> set[str]:
    """What a stage is made of, element by element."""
    graph, found = version.graph, set[str]()
    for ref in set[str]().union(*(graph.reads[op] for op in stage.ops)):
        maker = version.plan.stage_of(graph.producer[ref]) if ref in graph.producer else None
        if maker is None or (maker != stage and (version.is_free(maker) or not _goes_by_elements(version, maker))):
            found.add(ref)
        elif maker != stage:
            found |= _sources(version, maker)
    return found


def value_bytes(graph: Graph, values: Collection[str]) -> int:
    """Of all values together at the full shapes."""
    return sum(tensor.numel() * tensor.element_bytes for tensor in map(graph.values.__getitem__, values))


def _goes_by_elements(version: Version, stage: Stage) -> bool:
    """Whether a kernel of it alone goes element by element, or would if it read any: a mask that is made of numbers."""
    if stage.is_torch and set(stage.ops) <= version.graph.of_numbers:
        body = version.body(stage)
        return body is not None and all(node.kind == "map" for node in body.nodes)
    kernel = version.as_kernel(stage.ops, {}) if stage.is_torch else stage
    return kernel is not None and kernel.template == "pointwise"
