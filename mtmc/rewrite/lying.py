"""lying: where the values of a forward lie in memory, beside where the reference's do as it was exported.

Kernels are written and built for tensors that lie as exported. Three things make that untrue: convolutions that are asked
to work channels last; kernels that write a result in the order of its dimensions; and calls of torch that hand out results
as the device likes them, of which an export on a CPU knows nothing. On an H200 attention with heads of 9 hands out rows of
16, and a map that is enlarged lies channels first though its operand's channels lie last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from mtmc.rewrite.graph import Graph, Op, Tensor, lies_channels_last, memory_order
from mtmc.rewrite.operators.arithmetic import ARITHMETIC
from mtmc.rewrite.operators.elementwise import POINTWISE
from mtmc.rewrite.operators.table import FREE
from mtmc.rewrite.plan import Plan, Stage
from mtmc.rewrite.templates.channels_last import FORMATS, is_channels_last
from mtmc.rewrite.templates.launcher import Printed

_FAMILIES = ("scaled_dot_product", "upsample_", "grid_sampler", "lstm", "gru", "rnn_", "linalg_", "fft_")
_AS_THE_DEVICE_LIKES = tuple(f"aten.{sign}{family}" for family in _FAMILIES for sign in ("", "_"))
"""How calls begin whose results lie as the device likes, whatever the export says."""


def is_unsettled(graph: Graph, op: Op) -> bool:
    """Whether a call's results may lie otherwise on a GPU than exported: those of certain calls, and of any but the
    simplest where the export has another order than that of the dimensions."""
    if op.target in FREE or op.target in POINTWISE or op.target in ARITHMETIC:
        return False
    known = [graph.values[value] for value in op.outputs if value in graph.values]
    return op.target.startswith(_AS_THE_DEVICE_LIKES) or not all(tensor.contiguous for tensor in known)


def turned_once(graph: Graph, plan: Plan, printed: Mapping[Stage, Printed]) -> set[str]:
    """Values that kernels, or several convolutions by the library, are given channels last: one copy of each is made before.

    printed: the kernels. Their launchers can turn what they are given, but element by element. What they are given rounded
    is another copy.
    """
    library, kernels = Counter[str](), set[str]()
    for stage in plan.stages:
        if stage in printed:
            kernels |= set(printed[stage].last) & set(printed[stage].tensors) - set(printed[stage].rounded)
        elif is_channels_last(stage):
            library.update(graph.by_name[stage.ops[0]].refs()[:1])
    turned = kernels | {value for value, stages in library.items() if stages > 1}
    return {value for value in turned if not lies_channels_last(graph.values[value])}


class Lying:
    """What is known of the values of one forward, in the order in which its lines are printed.

    channels_last: values that may lie channels last, where the reference's do not. in_order: values that kernels wrote in
    the order of their dimensions where the reference's have another one in memory. unsettled: what torch hands out as the
    device likes. Each with what torch makes of them.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.channels_last, self.in_order, self.unsettled = set[str](), set[str](), set[str]()

    def called(self, op: Op) -> None:
        """Torch does an op."""
        for values in (self.channels_last, self.in_order, self.unsettled):
            if values & set(op.refs()):
                values |= set(op.outputs)
        if is_unsettled(self.graph, op):
            self.unsettled |= set(op.outputs)

    def launched(self, printed: Printed) -> None:
        """A kernel makes its results."""
        self.channels_last |= set(printed.last) & set(printed.results)
        others = set(printed.results) - set(printed.as_laid)
        self.in_order |= {value for value in others if not self.graph.values[value].contiguous}

    def given(self, value: str, text: str, printed: Printed) -> str:
        """A value as a launcher is given it. A kernel that goes over channels-last tensors sees to those of the full shape
        itself. text: the expression for it."""
        tensor = self.graph.values[value]
        fits = value not in self.channels_last or value in printed.last
        if not fits or (value in self.in_order and tensor.contiguous):
            return f"{text}.contiguous()"
        if value in self.unsettled and value not in printed.last:
            return text + _as_exported(tensor)
        return text


def _as_exported(tensor: Tensor) -> str:
    """What makes of a tensor one that lies as exported, and copies nothing where it does; "" where there are gaps."""
    if tensor.contiguous:
        return ".contiguous()"
    order, rank = memory_order(tensor), len(tensor.shape)
    if order is None:
        return ""
    if rank in FORMATS and lies_channels_last(tensor):
        return f".contiguous(memory_format={FORMATS[rank]})"
    back = tuple(order.index(dim) for dim in range(rank))
    return f".permute{order}.contiguous().permute{back}"
