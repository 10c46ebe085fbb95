"""exported: Task -> Graph, by torch.export under fake tensors (no data, so full shapes cost nothing).

The reference is exported once at each of a few variants of the task. The exports must be the same sequence of ops; the
numbers in them are then known at several shapes, which is what the rewriter needs to write files for others. What such a
file holds for is in its guards (`guard_derivation.py`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from mtmc.errors import TaskError
from mtmc.rewrite.export import Export, export_reference
from mtmc.rewrite.graph import Graph
from mtmc.rewrite.merger import Merger, NotAlike
from mtmc.rewrite.side_by_side import beside
from mtmc.task import Task, Variant

if TYPE_CHECKING:
    from torch.fx import Node

log = logging.getLogger(__name__)

MAX_VARIANTS = 4
LOCK = threading.Lock()
"""torch.export keeps global state while it traces: one export at a time."""


def export_graph(task: Task) -> Graph:
    """Export the reference and return its graph; the same graph for the same task. May be called from any thread.

    Raises: TaskError naming the op and the line of the reference where the module does not export.
    """
    with LOCK:
        return _export_graph(task)


@lru_cache(maxsize=8)
def full_export(task: Task) -> Export:
    """The export at the full shapes, which guards look at again. Not for several threads at once. Raises: TaskError."""
    return export_reference(task, task.full)


@lru_cache(maxsize=32)
def _export_graph(task: Task) -> Graph:
    full = full_export(task)
    exports, labels = [full], [task.full.label]
    for variant in sorted((task.small, *task.held_out), key=lambda each: _same_inputs(each, task.full)):
        if len(exports) >= MAX_VARIANTS and not _have_like_sizes(exports):
            break
        try:
            found = export_reference(task, variant)
        except TaskError as error:
            log.warning("variant %s of task %s is left out of the export: %s", variant.label, task.name, error)
            continue
        try:
            _merge([full, found], [task.full.label, variant.label])
        except NotAlike as difference:
            log.warning("task %s: variant %s takes another path (%s)", task.name, variant.label, difference)
            continue
        if len(exports) >= MAX_VARIANTS and not _tells_apart(exports, found):
            continue
        exports.append(found)
        labels.append(variant.label)
    return _merge(exports, labels)


def _have_like_sizes(exports: list[Export]) -> bool:
    """Whether two sizes of one value are the same in all exports, and not always 1."""
    larger = ([sizes for sizes in dims if set(sizes) != {1}] for dims in _sizes(exports))
    return any(len(set(dims)) < len(dims) for dims in larger)


def _tells_apart(exports: list[Export], found: Export) -> bool:
    """Whether sizes of one value that are the same in all exports, as those of a pooled map, are not in another."""
    return any(len({dim[:-1] for dim in dims}) < len(set(dims)) for dims in _sizes([*exports, found]))


def _sizes(exports: list[Export]) -> Iterator[list[tuple[int, ...]]]:
    """Of each tensor its sizes in all exports, a dimension at a time."""
    for column in zip(*map(_shapes, exports), strict=False):
        yield list(zip(*column, strict=False))


def _shapes(export: Export) -> list[tuple[int, ...]]:
    """The shape of each tensor in order, of those that are known."""
    values = (node.meta.get("val") for node in export.program.graph.nodes)
    shapes = [tuple(value.shape) for value in values if hasattr(value, "shape")]
    return [shape for shape in shapes if all(isinstance(size, int) for size in shape)]


def _same_inputs(one: Variant, other: Variant) -> bool:
    """Whether two sets of shapes are one, of which a second export says nothing: where nothing could be made smaller."""
    return replace(one, label=other.label) == other


def _merge(exports: list[Export], labels: list[str]) -> Graph:
    """One graph of exports. Raises: NotAlike where one of them differs from the first."""
    programs = [export.program for export in exports]
    if len({_kinds(export) for export in exports}) > 1:
        raise NotAlike("other tensors are changed")
    columns = [list(program.graph.nodes) for program in programs]
    for place, column in enumerate(columns):
        if list(map(_called, column)) != list(map(_called, columns[0])):
            aligned = beside(columns[0], column)
            if aligned is None:
                raise NotAlike("other ops")
            columns[place] = aligned
    models = [export.model for export in exports]
    return Merger(programs, models, labels, exports[0].sharing).graph(list(zip(*columns, strict=True)))


def _kinds(export: Export) -> tuple[Any, ...]:
    """What an export changes, and how its results lie beside that."""
    specs = [(spec.kind.name, spec.target) for spec in export.program.graph_signature.output_specs]
    return (*specs, export.sharing.rebound, tuple(sorted(export.sharing.same.items())), export.sharing.shared)


def _called(node: Node) -> str:
    return str(node.target) if node.op == "call_function" else node.op
