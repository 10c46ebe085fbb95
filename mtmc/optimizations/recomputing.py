"""recomputing: what a fusion would work out again and again, since many read each number of it.

A kernel works out what it needs at each of its elements. That costs nothing while memory is waited for. Where a table of
cosines is read by forty heads, or an activation by every row of a matrix, it may cost more than all else.
"""

from __future__ import annotations

from collections.abc import Iterable

from mtmc.rewrite.graph import Graph, Tensor, product
from mtmc.rewrite.operators.table import FREE
from mtmc.rewrite.plan import Stage

READ = 8
"""Times that each number is read, from which on it may be worth writing down."""
AT_ONCE = 8.0
"""Instructions of a thread that an H100 has time for while it moves a byte, 9, less what a kernel does besides: 132 x 128
lanes at 1.75 GHz are 3e13 a second, and memory moves 3.3e12 bytes."""
LAUNCH = 2.0**27
"""Instructions that take an H100 as long as a launch and what it writes: 4 us."""
_TRIGONOMETRY = 40
"""Instructions of a sine or cosine of fp32, whose argument may be large."""
_FUNCTION = 8
_LOAD = 4
"""Of a load: its address, itself, and the conversion of its type."""
_LOOKUPS = ("index", "index_select", "gather", "embedding", "take_along_dim")
_OF = {
    **dict.fromkeys(
        ("sin", "cos", "tan", "atan2", "asin", "acos", "atan", "erfinv", "lgamma", "digamma"), _TRIGONOMETRY
    ),
    **dict.fromkeys(("pow", "log1p", "expm1", "sinh", "cosh", "tanh", "erf", "mish", "softplus", "elu"), 2 * _FUNCTION),
    **dict.fromkeys(("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sigmoid", "silu", "gelu", "div"), _FUNCTION),
}


def repeats_much(graph: Graph, first: Stage, second: Stage) -> bool:
    """Whether one kernel of both works out what the first one makes so often that two are faster. At the full shapes."""
    made = [graph.values[out] for out in graph.leaving(first.ops) if _reads(graph, second, out)]
    space = _space(graph, second)
    if not made or not space:
        return False
    own = max(map(_elements, made))
    work = sum(_instructions(graph.by_name[op].target) for op in first.ops) + _LOAD * len(_outside(graph, first))
    bound = AT_ONCE * _bytes_an_element(graph, second, space)
    return space >= READ * own and work > bound and work * space > LAUNCH


def _reads(graph: Graph, stage: Stage, value: str) -> bool:
    """Whether a stage reads a value, also by views that stand between."""
    readers = list(graph.readers(value))
    while readers:
        op = readers.pop()
        if op in stage.ops:
            return True
        if graph.by_name[op].target in FREE:
            readers += [reader for out in graph.by_name[op].outputs for reader in graph.readers(out)]
    return False


def _space(graph: Graph, stage: Stage) -> int:
    """Elements of the largest value that a stage's ops make or read."""
    return max(map(_elements, _values(graph, stage)), default=0)


def _values(graph: Graph, stage: Stage) -> Iterable[Tensor]:
    """What the ops make and read; of what they look up only what they find."""
    for op in (graph.by_name[name] for name in stage.ops):
        yield from (graph.values[out] for out in op.outputs if out in graph.values)
        if op.target not in FREE and op.target.split(".")[1] not in _LOOKUPS:
            yield from (graph.values[ref] for ref in op.refs() if ref in graph.values)


def _bytes_an_element(graph: Graph, stage: Stage, space: int) -> float:
    """Bytes that memory moves for each element of the space: of what is as large, read from outside or written."""
    moved = [graph.values[name] for name in (*_outside(graph, stage), *graph.leaving(stage.ops))]
    return sum(float(tensor.float_bytes or 4) for tensor in moved if 2 * _elements(tensor) >= space)


def _outside(graph: Graph, stage: Stage) -> set[str]:
    """What a stage reads that it does not make."""
    inside = {out for op in stage.ops for out in graph.by_name[op].outputs}
    return {ref for op in stage.ops for ref in graph.by_name[op].refs() if ref not in inside and ref in graph.values}


def _elements(tensor: Tensor) -> int:
    return (product(tensor.shape) or (1,))[0]


def _instructions(target: str) -> int:
    """Of an op, for each element."""
    if target in FREE:
        return 0
    return _OF.get(target.split(".")[1].rstrip("_"), 1)
