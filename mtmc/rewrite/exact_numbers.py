"""exact_numbers: numbers that follow from the inputs' dimensions in a way of their own, as the symbolic export has them.

What a window is padded by, say, or half of an odd size. Only asked where no simple expression of `mtmc.rewrite.sizes` gives
a number; what stands here is true at all shapes that the symbolic export is for.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import chain
from types import SimpleNamespace
from typing import Any

from mtmc.rewrite.exported import LOCK, export_graph
from mtmc.rewrite.graph import Graph
from mtmc.rewrite.symbolic import Expression, Symbolic, read_symbolic
from mtmc.task import Task


@lru_cache(maxsize=32)
def exact_numbers(task: Task) -> Mapping[tuple[float, ...], str]:
    """Numbers by their values at the captured variants, as Python over the graph's inputs ("x.shape[0]").

    Those that vary, and that the inputs' dimensions determine. Empty where the task has no symbolic export of the same ops.
    May be called from any thread. Raises: TaskError where the task cannot be exported.
    """
    graph = export_graph(task)
    with LOCK:
        symbolic = read_symbolic(task, graph, conditions=False)
    if symbolic is None:
        return {}
    places = _places(graph, symbolic)
    found: dict[tuple[float, ...], str] = {}
    for values, expression in chain(symbolic.numbers, symbolic.dimensions(graph)):
        if len(set(values)) > 1 and values not in found:
            text = _text(expression, places)
            if text is not None and _at_variants(text, graph) == values:
                found[values] = text
    return found


def _places(graph: Graph, symbolic: Symbolic) -> dict[Expression, str]:
    """Where each symbol stands as a dimension of an input."""
    places: dict[Expression, str] = {}
    for value in graph.inputs:
        for axis, size in enumerate(symbolic.sizes.get(value, ())):
            if getattr(size, "is_Symbol", False):
                places.setdefault(size, f"{value}.shape[{axis}]")
    return places


def _text(expression: Expression, places: Mapping[Expression, str]) -> str | None:
    """An expression in Python, None where it takes more than arithmetic of the inputs' dimensions."""
    import sympy
    from torch.utils._sympy.printers import PythonPrinter

    symbols: set[Any] = getattr(expression, "free_symbols", set())
    if not symbols or not symbols <= places.keys():
        return None
    named = {symbol: sympy.Symbol(places[symbol], integer=True, positive=True) for symbol in symbols}
    text: str = PythonPrinter().doprint(expression.xreplace(named))
    return None if "math." in text or "torch." in text else text


def _at_variants(text: str, graph: Graph) -> tuple[float, ...] | None:
    """What a text gives at each captured variant: the module's own numbers are in it as they are at the first."""
    found = []
    for variant in range(len(graph.variants)):
        names: dict[str, Any] = {
            value: SimpleNamespace(shape=[size[variant] for size in graph.values[value].shape])
            for value in graph.inputs
        }
        try:
            found.append(eval(text, {"__builtins__": {"min": min, "max": max, "abs": abs}}, names))
        except (ArithmeticError, NameError):
            return None
    return tuple(found)
