"""printing: a kernel stage of a plan as text."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from mtmc.rewrite.body import NotCovered, Part
from mtmc.rewrite.expansion import build
from mtmc.rewrite.graph import Graph
from mtmc.rewrite.operators.table import table
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.templates import TEMPLATES
from mtmc.rewrite.templates.launcher import Printed

WRITE_PARTS = ("pointwise", "rowwise", "scan", "windows", "convolution", "matmul")
"""Templates whose kernels can write a result as a part of a larger tensor."""


@lru_cache(maxsize=16384)
def print_stage(
    graph: Graph, stage: Stage, name: str, parts: tuple[Part, ...] = (), rounded: tuple[str, ...] = ()
) -> Printed:
    """A kernel stage as text; kept, since neighbouring versions share most of their stages. parts, rounded: see
    `Body`.

    Raises: NotCovered.
    """
    if parts and stage.template not in WRITE_PARTS:
        raise NotCovered(f"parts of larger tensors, written by a kernel of {stage.template}")
    body = build(graph, stage.ops, table)
    if parts or rounded:
        body = replace(body, parts=parts, rounded=rounded)
    return TEMPLATES[stage.template].emit(graph, body, stage, name)
