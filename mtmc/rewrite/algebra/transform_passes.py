"""transform_passes: what torch's Fourier transforms do besides, each in a pass of its own, as ops that kernels take in.

Proof. A transform back with norm="backward" is the one with norm="forward" over the number of its results, and a transform
of n numbers of a shorter row is that of the row with zeros behind it: both are how torch defines them, and what it runs.

What it is for: a convolution through the frequencies, of which the transforms are the library's. torch scales the results of
a transform back in a pass over all of them, though few may be read; and where a row is made longer, it fills a tensor with
zeros and copies the row into it.
"""

from __future__ import annotations

from mtmc.rewrite.algebra.edit import Editor, Finding, Rule, number_of
from mtmc.rewrite.algebra.transform_calls import Wall, Wanted, wanted
from mtmc.rewrite.graph import Graph, Op, Varying, product

_FORWARD = ("aten.fft_rfft.default",)
_BACK = ("aten.fft_irfft.default", "aten.fft_irfft2.default", "aten.fft_irfftn.default")


def _scaled_apart(graph: Graph, op: Op) -> Finding | None:
    found = _asked(graph, op, _BACK)
    if found is None or found.norm != "backward" or op.outputs[0] in graph.results():
        return None
    known, edit = graph.values[op.outputs[0]], Editor(graph, op)
    shape = known.shape
    lengths = tuple(number_of(shape[dim]) for dim in found.dims)
    single = op.target == _BACK[0]
    asked = (lengths[0], found.dims[0]) if single else (lengths, found.dims)
    made = edit.add(op.target, (op.args[0], *asked, "forward"), shape, "sums", strides=known.strides)
    number = number_of(product(tuple(shape[dim] for dim in found.dims)))
    by = edit.add("aten.div.Tensor", (made, number), shape, "scaled", strides=known.strides)
    return edit.finish(f"{op.name} leaves its scale to what reads it", (op.name,), by)


def _padded_before(graph: Graph, op: Op) -> Finding | None:
    found = _asked(graph, op, _FORWARD)
    if found is None or found.lengths[0] is None:
        return None
    operand = graph.values[op.args[0].name]
    if found.dims != (len(operand.shape) - 1,) or op.args[0].name in graph.parameters:
        return None
    own, length = operand.shape[-1], found.lengths[0]
    longer = tuple(map(int, length.values)) if isinstance(length, Varying) else (int(length),) * len(own)
    if not all(a > b for a, b in zip(longer, own, strict=True)):
        return None
    edit = Editor(graph, op)
    behind = number_of(tuple(a - b for a, b in zip(longer, own, strict=True)))
    given, form = (op.args[0], (0, behind), 0.0), (*operand.shape[:-1], longer)
    padded = edit.add("aten.constant_pad_nd.default", given, form, "padded", dtype=operand.dtype)
    shape = graph.values[op.outputs[0]].shape
    by = edit.add(op.target, (padded, *op.args[1:]), shape, "of_padded", op.kwargs)
    return edit.finish(f"{op.name} is of a row with zeros behind it", (op.name,), by)


def _asked(graph: Graph, op: Op, targets: tuple[str, ...]) -> Wanted | None:
    if op.target not in targets or op.outputs[0] not in graph.values:
        return None
    try:
        return wanted(graph, op)
    except Wall:
        return None


PASSES: tuple[Rule, ...] = (_scaled_apart, _padded_before)
