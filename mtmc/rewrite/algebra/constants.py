"""constants: what is one number whatever the (finite) inputs are.

Proofs. The mean, sum or maximum of one element is that element, so x minus it is 0; the softmax over one element is
e^0 / e^0 = 1, its logarithm 0. min(x, c) is at most c, so where it is raised to a bound of at least c, it is that bound; and
the other way round. For inputs that are infinite or no numbers the reference gives no number here, a version the constant.

A result that does not depend on the inputs is most likely a mistake in the reference; the sentence says what was found.
"""

from __future__ import annotations

from mtmc.rewrite.algebra.edit import Editor, Finding, Rule, sizes
from mtmc.rewrite.algebra.identities import over_one
from mtmc.rewrite.graph import CONSTANT, Graph, Op, Ref, is_one
from mtmc.rewrite.operators.steps import argument

_AT_MOST = ("aten.min.other", "aten.minimum.default", "aten.clamp_max.default")
_AT_LEAST = ("aten.max.other", "aten.maximum.default", "aten.clamp_min.default", "aten.relu.default")


def _less_itself(graph: Graph, op: Op) -> Finding | None:
    if op.target != "aten.sub.Tensor" or len(op.args) != 2 or op.kwargs or not all(isinstance(a, Ref) for a in op.args):
        return None
    x, other = op.args
    if x.name == other.name:
        return _constant(graph, op, 0.0, f"{op.name} takes {x.name} from itself")
    reduction = graph.by_name.get(graph.producer.get(other.name, ""))
    if reduction is None or reduction.args[0] != x or not over_one(graph, reduction):
        return None
    if other.name != reduction.outputs[0] or graph.values[other.name].shape != graph.values[x.name].shape:
        return None
    return _constant(
        graph, op, 0.0, f"{op.name} takes from {x.name} its {reduction.target.split('.')[1]} over one element"
    )


def _softmax_of_one(graph: Graph, op: Op) -> Finding | None:
    numbers = {"aten.softmax.int": 1.0, "aten.log_softmax.int": 0.0}
    if op.target not in numbers or not isinstance(op.args[0], Ref) or not isinstance(op.args[1], int):
        return None
    shape = graph.values[op.args[0].name].shape
    if not shape or not is_one(shape[op.args[1]]):
        return None
    return _constant(graph, op, numbers[op.target], f"{op.name} goes over one element")


def _between_bounds(graph: Graph, op: Op) -> Finding | None:
    """A bound from below on what is bounded from above by as much, or the other way round."""
    low, high = _bounds(graph, op)
    if (low is None and high is None) or not isinstance(op.args[0], Ref):
        return None
    first = graph.by_name.get(graph.producer.get(op.args[0].name, ""))
    if first is None:
        return None
    least, most = _bounds(graph, first)
    if low is not None and most is not None and low >= most and (high is None or high >= low):
        return _constant(graph, op, low, f"{op.name} raises to {low} what {first.name} keeps at or below {most}")
    if high is not None and least is not None and high <= least and (low is None or low <= high):
        return _constant(graph, op, high, f"{op.name} lowers to {high} what {first.name} keeps at or above {least}")
    return None


def _bounds(graph: Graph, op: Op) -> tuple[float | None, float | None]:
    """The least and the largest value that an op's result can have, as far as it says so itself."""
    if op.target == "aten.clamp.default":
        return _number(graph, argument(op, 1, "min")), _number(graph, argument(op, 2, "max"))
    if op.target == "aten.relu.default":
        return 0.0, None
    bound = _number(graph, op.args[1]) if len(op.args) > 1 else None
    if op.target in _AT_MOST:
        return None, bound
    return (bound, None) if op.target in _AT_LEAST else (None, None)


def _number(graph: Graph, item: object) -> float | None:
    """A number, or a tensor that forward makes of one."""
    if isinstance(item, Ref):
        made = graph.by_name.get(graph.producer.get(item.name, ""))
        item = made.args[0] if made is not None and made.target == CONSTANT else None
    return float(item) if isinstance(item, (int, float)) else None


def _constant(graph: Graph, op: Op, number: float, why: str) -> Finding | None:
    value = graph.values[op.outputs[0]]
    likes = [name for name in graph.inputs if graph.values[name].dtype == value.dtype]
    if not likes:
        return None
    edit = Editor(graph, op)
    by = edit.add("aten.new_full.default", (Ref(likes[0]), sizes(value.shape), number), value.shape, "constant")
    return edit.finish(f"{why}: it is {number} whatever the inputs are", (op.name,), by)


CONSTANTS: tuple[Rule, ...] = (_less_itself, _softmax_of_one, _between_bounds)
