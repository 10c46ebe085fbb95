"""symbolic: the reference exported once more with all dimensions of its inputs open, read beside the graph.

What comes out says for each size of the graph how it follows from the inputs' dimensions, and which conditions on these
the export took for granted: branches and assertions on sizes in forward, and what operators demand.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from mtmc.rewrite.export import Opened, export_open
from mtmc.rewrite.graph import CONSTANT, Graph, Op, Tensor, Varying
from mtmc.rewrite.merger import Merger
from mtmc.task import Task

if TYPE_CHECKING:
    import torch
    from torch.fx import Node

log = logging.getLogger(__name__)

_SLICE = (None, 0, 0, 2**63 - 1, 1)
"""Of a tensor: dimension, start, stop and step where they are left out."""
Expression = Any
"""A sympy expression of the symbols of input dimensions, or a plain number."""


@dataclass(frozen=True, eq=False)
class Symbolic:
    """What a symbolic export says of a graph.

    sizes: of each value of the graph, an expression a dimension. numbers: pairs of what an argument is at the captured
    variants and its expression. conditions: on the symbols, all true at the full shapes. low, high: bounds of a symbol.
    """

    sizes: Mapping[str, tuple[Expression, ...]]
    numbers: tuple[tuple[tuple[float, ...], Expression], ...]
    conditions: tuple[Expression, ...]
    low: Mapping[Expression, int]
    high: Mapping[Expression, int | None]

    def dimensions(self, graph: Graph) -> Iterator[tuple[tuple[float, ...], Expression]]:
        """Each dimension of each value: what it is at the captured variants, and its expression; as `numbers` has them."""
        for value, sizes in self.sizes.items():
            yield from zip(graph.values[value].shape, sizes, strict=True)


def read_symbolic(task: Task, graph: Graph, conditions: bool = True) -> Symbolic | None:
    """The symbolic export at the full shapes, beside `graph`; None where none is made of the same ops.

    conditions: whether all of these are asked for; else it takes half the time, and some may be missing.
    Not for several threads at once, as any export.
    """
    for most in (None, 1):  # all dimensions, then the first of each tensor
        try:
            opened = _opened(task, most)
            program = opened.program() if conditions else opened.written()
            environment = _environment(program)
            found = () if environment is None else _conditions(environment)
            reader = _Reader([program], [opened.model], ["full"])
            other = reader.graph([(node,) for node in program.graph.nodes])
            sizes, numbers = _beside(graph, other)
        except Exception as error:  # whatever tracing can raise; then less is known to be free
            log.debug("task %s has no symbolic export (%s): %s", task.name, type(error).__name__, error)
            continue
        ranges = {} if environment is None else dict(environment.var_to_range)
        low = {symbol: int(bounds.lower) for symbol, bounds in ranges.items()}
        high = {symbol: _finite(bounds.upper) for symbol, bounds in ranges.items()}
        return Symbolic(sizes, tuple(numbers), found, low, high)
    return None


@lru_cache(maxsize=8)
def _opened(task: Task, most: int | None) -> Opened:
    """The export with open dimensions, which is read twice: while versions are printed, and for guards. Raises: whatever
    torch.export raises."""
    return export_open(task, task.full, partial(_open, most))


def _open(most: int | None, tensor: torch.Tensor) -> dict[int, Any]:
    """The first dimensions of a tensor, all if most is None, as open ones."""
    from torch.export import Dim

    return dict.fromkeys(range(tensor.dim() if most is None else min(most, tensor.dim())), Dim.AUTO)


def _finite(bound: Any) -> int | None:
    import sympy
    from torch.utils._sympy.numbers import IntInfinity

    return None if isinstance(bound, IntInfinity) or bound == sympy.oo else int(bound)


def _environment(program: Any) -> Any:
    """torch's record of the symbols, None where no dimension is open."""
    import torch

    for node in program.graph.nodes:
        value = node.meta.get("val")
        sizes = value.shape if isinstance(value, torch.Tensor) else ()
        for size in sizes:
            if isinstance(size, torch.SymInt):
                return size.node.shape_env
    return None


def _conditions(environment: Any) -> tuple[Expression, ...]:
    import sympy

    found = [guard.expr for guard in environment.guards]
    found += [each.expr for each in environment.deferred_runtime_asserts.get(None, ())]
    for symbol, asserts in environment.deferred_runtime_asserts.items():
        found += [each.expr for each in asserts] if symbol is not None else []
    replaced = [environment.replace(expression) for expression in found]
    return tuple(each for each in dict.fromkeys(replaced) if each is not sympy.true)


class _Reader(Merger):
    """A graph of one symbolic export: a size is an expression, and arguments that are sizes are expressions too."""

    def _keep(self, nodes: tuple[Node, ...], name: str, pick: int | None = None) -> None:
        import torch

        value = nodes[0].meta["val"] if pick is None else nodes[0].meta["val"][pick]
        if isinstance(value, torch.Tensor):
            shape = tuple((_expression(size),) for size in value.shape)
            self.values[name] = Tensor(shape, str(value.dtype).removeprefix("torch."), True)

    def _call(self, nodes: tuple[Node, ...]) -> None:
        if not _is_number(nodes[0].meta.get("val")):
            super()._call(nodes)

    def _convert(self, column: list[Any]) -> Any:
        import torch

        if isinstance(column[0], torch.fx.Node) and _is_number(column[0].meta.get("val")):
            return _expression(column[0].meta["val"])
        if isinstance(column[0], (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return _expression(column[0])
        return super()._convert(column)


def _is_number(value: Any) -> bool:
    import torch

    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool, int, float))


def _expression(size: Any) -> Expression:
    import torch

    if isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return size.node.expr
    return size


class _Differs(Exception):
    """The symbolic export is made of other ops."""


def _beside(graph: Graph, other: Graph) -> tuple[dict[str, tuple[Expression, ...]], list[tuple[Any, Expression]]]:
    """Expressions of the sizes of the graph's values, and of its numbers. Raises: _Differs."""
    pairs = list(zip(graph.inputs, other.inputs, strict=True))
    paths = {path: value for value, path in other.parameters.items()}
    pairs += [(value, paths[path]) for value, path in graph.parameters.items() if path in paths]
    numbers: list[tuple[Any, Expression]] = []
    if [op.target for op in graph.ops] != [op.target for op in other.ops]:
        raise _Differs("other ops")
    for op, twin in zip(graph.ops, other.ops, strict=True):
        pairs += [(a, b) for a, b in zip(op.outputs, twin.outputs, strict=True) if a in graph.values]
        if op.target != CONSTANT:
            numbers += _numbers(
                (_said(op), tuple(op.kwargs.values())), (_said(twin), tuple(twin.kwargs.values())), graph
            )
    sizes = {}
    for value, twin_value in pairs:
        expressions = tuple(size[0] for size in other.values[twin_value].shape)
        if len(expressions) != len(graph.values[value].shape):
            raise _Differs(f"{value} has another rank")
        sizes[value] = expressions
    return sizes, numbers


def _said(op: Op) -> tuple[Any, ...]:
    """An op's arguments, of a slice with what it may leave out: one export does where the other says it."""
    if op.target != "aten.slice.Tensor":
        return op.args
    given = (*op.args, *(None,) * (len(_SLICE) - len(op.args)))
    return tuple(default if item is None else item for item, default in zip(given, _SLICE, strict=True))


def _numbers(item: Any, twin: Any, graph: Graph) -> Iterator[tuple[Any, Expression]]:
    """The numbers of an argument that are not the same literal in both. Raises: _Differs."""
    if isinstance(item, tuple) and isinstance(twin, tuple):
        if len(item) != len(twin):
            raise _Differs("an argument list of another length")
        for part, other in zip(item, twin, strict=True):
            yield from _numbers(part, other, graph)
    elif isinstance(item, Varying):
        yield item.values, twin
    elif isinstance(item, (int, float)) and not isinstance(item, bool) and not isinstance(twin, (int, float)):
        yield (item,) * len(graph.variants), twin
