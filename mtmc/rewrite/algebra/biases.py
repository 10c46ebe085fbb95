"""biases: the bias of a library convolution as an addition of its own, which the kernel behind it takes up.

Proof. It is the definition: conv(x, w, b) = conv(x, w) + b, b[o] for each position of channel o.

What it is for: the library convolves without the bias and adds it in a second kernel, which reads and writes the whole
result once more. A kernel behind the convolution reads the result in any case and adds the bias for nothing.
"""

from __future__ import annotations

from mtmc.rewrite.algebra.edit import Editor, Finding, Rule, nodes_of
from mtmc.rewrite.graph import Graph, Op, Ref
from mtmc.rewrite.operators.steps import argument

_CONVOLUTIONS = frozenset(
    (
        *(f"aten.conv{n}d.{form}" for n in (1, 2, 3) for form in ("default", "padding")),
        "aten.conv_transpose1d.default",
        *(f"aten.conv_transpose{n}d.input" for n in (2, 3)),
    )
)


def added_behind(graph: Graph, op: Op) -> Finding | None:
    """A library convolution with a bias, all of whose readers can be kernels."""
    if op.target not in _CONVOLUTIONS or len(op.args) < 3 or not isinstance(op.args[2], Ref):
        return None
    result, bias = op.outputs[0], op.args[2]
    shape, channels = graph.values[result].shape, graph.values[bias.name].shape
    rank = len(graph.values[op.refs()[0]].shape)
    grouped = argument(op, 6, "groups", 1) != 1  # a depthwise convolution is a kernel that adds the bias itself
    if grouped or result in graph.results() or len(channels) != 1 or rank < 3 or shape[1] != channels[0]:
        return None
    if not graph.readers(result) or not all(_takes_up(graph, name) for name in graph.readers(result)):
        return None
    edit, one = Editor(graph, op), (1,) * len(graph.variants)
    along = edit.shaped(bias, (*channels, *(one,) * (rank - 2)))
    plain = edit.add(op.target, (*op.args[:2], None, *op.args[3:]), shape, "plain", op.kwargs)
    by = edit.add("aten.add.Tensor", (plain, along), shape, "biased")
    return edit.finish(f"the bias of {op.name} is added by the kernel behind it", (op.name,), by)


def _takes_up(graph: Graph, name: str) -> bool:
    """Whether an op can be a kernel that elementwise work goes into: no view and no product."""
    kinds = {node.kind if node.kind != "window" else node.operation for node in nodes_of(graph, name)}
    return bool(kinds - {"view"}) and kinds <= {"map", "reduce", "view", "max", "mean", "sum"}


BIASES: tuple[Rule, ...] = (added_behind,)
