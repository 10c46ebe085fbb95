"""logs: the sum or mean of a log-softmax over its own dimension, by way of the log of the summed exponentials.

Proof. With l = log sum_j exp(x_j), log_softmax(x)_i = x_i - l for each i. So

    sum_i log_softmax(x)_i = sum_i x_i - N l        mean_i log_softmax(x)_i = mean_i x_i - l

What it is for: l is known only once the whole row was read, and a sum of what hangs on it reads the row again. Smoothed
labels and distances to a uniform distribution are such sums.
"""

from __future__ import annotations

from mtmc.rewrite.algebra.edit import Editor, Finding, Rule, sizes
from mtmc.rewrite.algebra.identities import reduced_dims
from mtmc.rewrite.graph import Graph, Op, Ref

_SUMS = ("aten.sum.dim_IntList", "aten.mean.dim")


def _summed(graph: Graph, op: Op) -> Finding | None:
    if op.target != "aten.log_softmax.int" or not isinstance(op.args[0], Ref) or not isinstance(op.args[1], int):
        return None
    made, x = graph.values[op.outputs[0]], op.args[0]
    dim = op.args[1] % len(made.shape) if made.shape else 0
    if made.dtype not in ("float32", "float64") or not made.contiguous:
        return None
    read = (graph.by_name[name] for name in graph.readers(op.outputs[0]))
    sums = [each for each in read if _is_sum(graph, each, dim)]
    if not sums:
        return None
    edit, ones = Editor(graph, op), tuple(1 for _ in graph.variants)
    if graph.values[x.name].dtype != made.dtype:
        x = edit.add("aten.to.dtype", (x, op.args[2]), made.shape, "wide")
    row = tuple(ones if at == dim else size for at, size in enumerate(made.shape))
    log = edit.add("aten.logsumexp.default", (x, (dim,), True), row, "log")
    pairs = {op.outputs[0]: edit.add("aten.sub.Tensor", (x, log), made.shape, "shifted")}
    for each in sums:
        total = edit.add(each.target, (x, (dim,), True), row, "total")
        times = edit.add("aten.mul.Tensor", (log, sizes((made.shape[dim],))[0]), row, "logs")
        less = log if each.target == "aten.mean.dim" else times
        value = edit.add("aten.sub.Tensor", (total, less), row, "summed")
        pairs[each.outputs[0]] = edit.shaped(value, graph.values[each.outputs[0]].shape)
    sentence = f"the {_word(sums[0])} of {op.name} is that of its operand less the log of the summed exponentials"
    return edit.replaced(sentence, (op.name, *(each.name for each in sums)), pairs)


def _is_sum(graph: Graph, op: Op, dim: int) -> bool:
    """Whether an op is a sum or mean over one dimension, without another dtype."""
    return op.target in _SUMS and not op.kwargs and len(op.args) < 4 and reduced_dims(graph, op) == (dim,)


def _word(op: Op) -> str:
    return "mean" if op.target == "aten.mean.dim" else "sum"


LOGS: tuple[Rule, ...] = (_summed,)
