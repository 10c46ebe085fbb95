"""views: what torch would cut out of a tensor in order, cut out by the kernel that reads it; what it would copy into another
order, written so by the kernel that makes it.

A kernel that is given a chunk reads it by strides that it learns at run time: four products and three sums for each
element. Inside the kernel a chunk of a tensor in order is the tensor's own place and a number, and no call of torch is left.

A reshape of heads that stand one behind the other, so that they stand side by side, is a pass over memory: a view of them
does not exist.
"""

from __future__ import annotations

from mtmc.optimizations.version import Version
from mtmc.rewrite.graph import Graph, Op, product, same
from mtmc.rewrite.operators.table import FREE
from mtmc.rewrite.plan import Plan, Stage, merged_ops

TEMPLATE = "pointwise"
"""Of kernels that work out each element's place anyway."""
WRITERS = (TEMPLATE, "matmul")
"""Of kernels that can write a result in another order than they go over it."""


def with_views(version: Version, plan: Plan) -> Plan:
    """The plan with views taken into those elementwise kernels that are new in it, where nothing else reads them. version:
    the parent, with the child's graph."""
    for stage in plan.stages:
        if stage.template == TEMPLATE and stage not in version.plan.stages:
            plan = _taken_in(version, plan, stage)
    for stage in plan.stages:
        if stage.template in WRITERS and stage not in version.plan.stages:
            plan = _with_copy(version, plan, stage)
    return plan


def _with_copy(version: Version, plan: Plan, kernel: Stage) -> Plan:
    """The plan in which a kernel writes what torch would copy of its only result, if it can."""
    graph, views, copied = version.graph, list[Stage](), 0
    made = graph.leaving(kernel.ops)
    value = made[0] if len(made) == 1 else ""
    while value and value not in graph.results() and len(readers := graph.readers(value)) == 1:
        stage, op = plan.stage_of(readers[0]), graph.by_name[readers[0]]
        if not stage.is_torch or not _is_view(graph, stage, True) or not _keeps_all(graph, op):
            break
        views.append(stage)
        [value] = op.outputs
        copied = len(views) if _copies(graph, op) else copied
    if not copied:
        return plan
    parts = (kernel, *views[:copied])
    larger = version.as_kernel(merged_ops(graph, parts), {kernel.template: dict(kernel.schedule)})
    if larger is None or larger.template != kernel.template:
        return plan
    return plan.with_merged(graph, parts, larger)


def _keeps_all(graph: Graph, op: Op) -> bool:
    """Whether a view has each element of its one operand, once."""
    if len(op.refs()) != 1 or len(op.outputs) != 1:
        return False
    old, new = graph.values[op.refs()[0]], graph.values[op.outputs[0]]
    return same(product(old.shape), product(new.shape))


def _copies(graph: Graph, op: Op) -> bool:
    """Whether a view is a copy of rows, as its operand's elements cannot be seen so, at the full shapes."""
    import torch

    old, new = graph.values[op.refs()[0]], graph.values[op.outputs[0]]
    if old.contiguous or not old.strides or not old.shape or old.strides[-1][0] != 1 or not new.contiguous:
        return False
    shape, steps, wanted = ([size[0] for size in each] for each in (old.shape, old.strides, new.shape))
    try:
        torch.empty_strided(shape, steps, device="meta").view(wanted)
    except RuntimeError:
        return True
    return False


def _taken_in(version: Version, plan: Plan, kernel: Stage) -> Plan:
    views = _views_before(version.graph, plan, kernel)
    if not views:
        return plan
    parts = (*views, kernel)
    larger = version.as_kernel(merged_ops(version.graph, parts), {kernel.template: dict(kernel.schedule)})
    if larger is None or larger.template != TEMPLATE:
        return plan
    return plan.with_merged(version.graph, parts, larger)


def _views_before(graph: Graph, plan: Plan, kernel: Stage) -> list[Stage]:
    """The views, one of the other too, that start with a tensor in order and that only this kernel reads; none where all
    that it is given lies in order."""
    found = [stage for stage in plan.stages if stage.is_torch and _is_view(graph, stage)]
    while True:
        ops = {op for stage in (*found, kernel) for op in stage.ops}
        kept = [stage for stage in found if _belongs(graph, graph.by_name[stage.ops[0]], ops)]
        if len(kept) == len(found):
            break
        found = kept
    given = [graph.values[out] for stage in found for out in graph.by_name[stage.ops[0]].outputs]
    return [] if all(tensor.contiguous for tensor in given) else found


def _is_view(graph: Graph, stage: Stage, last: bool = False) -> bool:
    """Whether a stage is a view. last: or one that forward returns."""
    op = graph.by_name[stage.ops[0]]
    known = all(each in graph.values for each in (*op.outputs, *op.refs()))
    return known and op.target in FREE and (last or not graph.results().intersection(op.outputs))


def _belongs(graph: Graph, view: Op, ops: set[str]) -> bool:
    """Whether all readers of a view are among some ops, and what it is a view of is in order or made by one of them."""
    readers = [reader for out in view.outputs for reader in graph.readers(out)]
    starts = all(graph.values[ref].contiguous or graph.producer.get(ref) in ops for ref in view.refs())
    return bool(readers) and starts and ops.issuperset(readers)
