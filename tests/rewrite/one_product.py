"""Products as one kernel of small tiles, for the interpreter; and why a body with a product is none of `matmul`'s."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from mtmc.rewrite.body import NotCovered
from mtmc.rewrite.expansion import build
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.operators.table import table
from mtmc.rewrite.plan import Plan, merged_ops
from mtmc.rewrite.source import print_plan
from mtmc.rewrite.templates.product import analyse
from mtmc.task import Task, task_from_source
from tests.rewrite.interpreting import interpret
from tests.rewrite.references import reference
from tests.rewrite.stepping import version

Settings = Mapping[str, int | str]

TILE: Settings = {"block_m": 16, "block_n": 16, "block_k": 16}


def in_one(task: Task, settings: Settings) -> Plan:
    """All of a reference as one kernel of small tiles with some settings."""
    start = version(task)
    kernel = start.as_kernel(merged_ops(start.graph, start.plan.stages), {})
    assert kernel is not None and kernel.template == "matmul"
    return start.plan.with_merged(start.graph, start.plan.stages, kernel.scheduled({**TILE, **settings}))


def printed(result: str, inputs: str, settings: Settings) -> dict[str, str]:
    """A case for the interpreter: the reference, and its one kernel."""
    task = task_from_source(reference(result, inputs), "product")
    source = print_plan(task, export_graph(task), in_one(task, settings)).source
    return {"source": task.source, "candidate": source}


def interpret_products(cases: Mapping[str, tuple[str, str, Settings]]) -> dict[str, str | None]:
    """Name -> null or what went wrong. cases: result, inputs and settings."""
    return interpret([{"name": name, **printed(*case)} for name, case in cases.items()])


def check_refused(result: str, inputs: str, why: str) -> None:
    """All of a reference is no product that `matmul` covers, for this reason."""
    graph = export_graph(task_from_source(reference(result, inputs), "refused"))
    with pytest.raises(NotCovered, match=why):
        analyse(graph, build(graph, [op.name for op in graph.ops], table))
