"""task_text: what every agent is told of a task: its reference, the shapes and dtypes of a call, what results are held to.

One text for policies and coders, at the root and below it. Of the shapes that versions are held to besides the full ones it
says that there are some, and never which: a version that knows them could be right there alone.
"""

from __future__ import annotations

import ast
import logging
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from mtmc.agents.coders.editing.fences import fenced
from mtmc.errors import TaskError
from mtmc.syntax import parse
from mtmc.task import DECLARATION, Task, apply_constants

if TYPE_CHECKING:
    from mtmc.rewrite.graph import Tensor

_log = logging.getLogger(__name__)


def task_text(task: Task) -> str:
    """The task in Markdown without headings. The same for the same task."""
    return "\n".join(
        [
            f"The reference, a PyTorch module at the shapes that count ({task.name}):",
            fenced(reference_text(task)),
            *_call(task),
            f"Results are compared by this tolerance: {task.tolerance.text}.",
            "A version is also checked at other shapes, which nobody is told: it has to be right at any.",
        ]
    )


def reference_text(task: Task) -> str:
    """The reference at its full shapes, without the other shapes that versions are checked at."""
    source = apply_constants(task.source, task.full.constants)
    kept = {task.full.inputs, task.full.init_inputs}
    hidden = {name for each in task.variants for name in (each.inputs, each.init_inputs)} - kept
    gone: set[int] = set()
    for node in parse(source).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        declares = any(isinstance(each, ast.Name) and each.id == DECLARATION for each in targets)
        small = isinstance(node, ast.FunctionDef) and (node.name.startswith("get_small_") or node.name in hidden)
        if small or declares:
            gone |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = [line for number, line in enumerate(source.split("\n"), 1) if number not in gone]
    return re.sub(r"\n{4,}", "\n\n\n", "\n".join(lines)).rstrip() + "\n"


@lru_cache(maxsize=32)
def _call(task: Task) -> tuple[str, ...]:
    """Shapes and dtypes of forward's arguments and results at the full shapes; nothing where it does not export."""
    from mtmc.rewrite.exported import export_graph

    try:
        graph = export_graph(task)
    except TaskError as error:
        _log.info("agents are told no shapes of task %s: %s", task.name, error)
        return ()
    given = [f"- {graph.argument_of.get(name, name)}: {_tensor(graph.values[name])}" for name in graph.inputs]
    given += [f"- {name} = {values[0]!r}" for name, values in graph.fixed.items()]
    results = graph.results()
    made = [f"- {_tensor(graph.values[name])}" for name in graph.values if name in results]
    head = "Results, and what forward changes:" if graph.mutations else "Results:"
    return ("Arguments of forward at these shapes:", *given, head, *made)


def _tensor(tensor: Tensor) -> str:
    """ "float32 of 64 x 48", with its strides where they are not the usual ones."""
    sizes = " x ".join(str(size[0]) for size in tensor.shape) or "no dimensions"
    strides = (
        "" if tensor.contiguous else f", strides {', '.join(str(each[0]) for each in tensor.strides) or 'unusual'}"
    )
    return f"{tensor.dtype} of {sizes}{strides}"
