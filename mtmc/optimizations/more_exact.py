"""more_exact: the same kernels with more exact products of fp32 numbers, for a version that was refused as less precise.

A reference's convolutions may be cut to TF32 on a GPU, all of them or some: which ones the library alone knows. Kernels that
are made of all of them at once are then refused for one, by a mean that a training norm keeps, or by what TF32 loses in a
deep network where operands are cut off instead of rounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Set

from mtmc.optimizations.resources import PRODUCTS
from mtmc.optimizations.version import Version
from mtmc.rewrite.plan import Plan, Stage
from mtmc.rewrite.templates.conv_rounding import ROUNDED

CUT, EXACT = "tf32", "tf32x3"


def more_exact(version: Version, buffer: str | None) -> Iterator[Plan]:
    """Plans whose products are more exact than a version's, the fastest first; none where there is nothing to do.

    buffer: path of the buffer that forward leaves less precise than the reference, None where it was a result. First
    operands that were cut off are rounded, and the product that the buffer is made of becomes three of TF32 numbers; then
    all are.
    """
    cut = {stage: way for stage in version.kernels() if (way := _way(stage)) in (CUT, ROUNDED)}
    made_of = _made_of(version, buffer, frozenset(cut)) if buffer else frozenset()
    first = {stage: ROUNDED for stage, way in cut.items() if way == CUT} | dict.fromkeys(made_of, EXACT)
    tried = version.plan
    for ways in (first, dict.fromkeys(cut, EXACT)):
        plan = _with_ways(version, ways)
        if plan not in (version.plan, tried):
            tried = plan
            yield plan


def _way(stage: Stage) -> str | None:
    """How a kernel multiplies fp32 numbers, None where it multiplies none."""
    way = dict(stage.schedule).get("precision") if stage.template in PRODUCTS else None
    return None if way is None else str(way)


def _with_ways(version: Version, ways: dict[Stage, str]) -> Plan:
    offered = {stage: way for stage, way in ways.items() if way in version.fp32_products(str(stage.template))}
    changed = {stage: stage.scheduled({"precision": way}) for stage, way in offered.items()}
    return version.plan.with_stages({stage: each for stage, each in changed.items() if version.prints(each)})


def _made_of(version: Version, buffer: str, among: Set[Stage]) -> frozenset[Stage]:
    """The kernels of `among` that are nearest to a buffer on the way of its value back to the inputs."""
    graph, found, seen = version.graph, set[Stage](), set[str]()
    values = [change.value for change in graph.mutations if graph.parameters.get(change.target) == buffer]
    while values:
        op = graph.producer.get(values.pop())
        if op is None or op in seen:
            continue
        seen.add(op)
        stage = version.plan.stage_of(op)
        if stage in among:
            found.add(stage)
        else:
            values += [ref for each in stage.ops for ref in graph.reads[each]]
    return frozenset(found)
