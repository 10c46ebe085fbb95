"""joined_forward: the text of a result that kernels write together, see `joins`: its memory, its parts, and what is left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mtmc.rewrite.graph import Graph
from mtmc.rewrite.joins import STACK, Join
from mtmc.rewrite.sizes import NoExpression, Scope
from mtmc.rewrite.templates.channels_last import FORMATS


def memory_text(graph: Graph, join: Join, scope: Scope, like: str) -> str:
    """The call that makes the memory. like: expression of a tensor on the same device. Raises: NoExpression."""
    result = graph.values[join.op.outputs[0]]
    along = None if join.op.target == STACK else join.dim  # as large as all parts, which nothing at hand may be
    sizes = [
        _place(graph, join, len(join.operands), scope) if dim == along else scope.size(size)
        for dim, size in enumerate(result.shape)
    ]
    shape = f"({sizes[0]},)" if len(sizes) == 1 else f"({', '.join(sizes)})"
    lies = f", memory_format={FORMATS[len(sizes)]}" if join.last else ""
    return f"torch.empty({shape}, device={like}.device, dtype=torch.{result.dtype}{lies})"


def part_text(graph: Graph, join: Join, at: int, scope: Scope, result: str) -> str:
    """The part of an operand. result: expression of the whole. Raises: NoExpression."""
    if join.op.target == STACK:
        return f"{result}.select({join.dim}, {at})"
    return f"{result}.narrow({join.dim}, {_place(graph, join, at, scope)}, {scope.size(_sizes(graph, join)[at])})"


def left_lines(graph: Graph, join: Join, scope: Scope, expressions: Mapping[str, str]) -> Iterator[str]:
    """Statements that fill and copy what no kernel writes. Raises: NoExpression."""
    result = expressions[join.op.outputs[0]]
    for at, value in enumerate(join.operands):
        if value not in join.written:
            number = join.number(graph, value)
            does = f"copy_({expressions[value]})" if number is None else f"fill_({number!r})"
            yield f"{part_text(graph, join, at, scope, result)}.{does}"


def _sizes(graph: Graph, join: Join) -> list[tuple[int, ...]]:
    return [graph.values[value].shape[join.dim] for value in join.operands]


def _place(graph: Graph, join: Join, at: int, scope: Scope) -> str:
    """Where an operand begins: behind all before it."""
    sizes = _sizes(graph, join)[:at]
    whole = tuple(map(sum, zip(*sizes, strict=True)))
    try:
        return scope.size(whole) if whole else "0"
    except NoExpression:
        return " + ".join(map(scope.size, sizes))
