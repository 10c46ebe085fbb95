"""rounding: which convolutions of fp32 numbers start with operands that are rounded to TF32, and which start exact."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from mtmc.rewrite.body import Body, NotCovered
from mtmc.rewrite.graph import IN_ORDER, Graph, Op, is_one, lies_channels_last
from mtmc.rewrite.joins import CAT, STACK
from mtmc.rewrite.operators.arithmetic import ARITHMETIC
from mtmc.rewrite.operators.elementwise import POINTWISE
from mtmc.rewrite.operators.table import FREE
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.templates.channels_last import FORMATS
from mtmc.rewrite.templates.conv_kernel import are_few, product_sizes
from mtmc.rewrite.templates.conv_rounding import ROUNDED, rounded_in_memory
from mtmc.rewrite.templates.positions import analyse

_TRAINED_NORM, _TRAINING_AT = "aten._native_batch_norm_legit_functional.default", 5
_VARIANCES = ("var", "std")
_AVERAGES = (*_VARIANCES, "mean", "adaptive_avg_pool")
"""How the names of other ops begin that take averages."""
_PASSED_ON = (
    "max_pool",
    "avg_pool",
    "constant_pad",
    "clone",
    "contiguous",
    "upsample",
    "pixel_shuffle",
    "native_dropout",
)
"""How the names of ops begin that pass on what they are given, whole or in windows of a few elements."""
_COPIES = ("aten.pad.default", IN_ORDER)
"""Ops that gather what `filled` makes channels of."""
STEPS = 4
"""Ops that may stand between a convolution and an average of it."""
SHORT = 64
"""Numbers that a convolution adds up, below which it starts exact beside longer ones."""
LEAST_CHANNELS = 8
"""Of a convolution's operand and result, from which on they lie channels last."""


def first_precision(graph: Graph, body: Body, stage: Stage, ways: Sequence[str]) -> str:
    """The precision that a product of fp32 numbers starts with. ways: as exact as the reference, the fastest first."""
    if ROUNDED not in ways:
        return ways[0]
    if _is_short_beside_others(graph, body):
        return next(way for way in ways if way not in (ways[0], ROUNDED))
    return ROUNDED if starts_rounded(graph, body, stage) else ways[0]


def _is_short_beside_others(graph: Graph, body: Body) -> bool:
    """Whether few numbers are added up, in a network that has longer convolutions as well: that the library makes some of
    them in TF32 says nothing of its first one, of three channels. Of a MobileNet and of a shortcut in a ResNet block it
    does not, and all kernels in TF32 were refused there; memory bounds these in any precision."""
    here = max(
        (_terms(graph, node.reads()[1]) for node in body.nodes if node.kind == "window" and node.reads()[1:]), default=0
    )
    others = [op.refs()[1] for op in graph.ops if op.target.startswith("aten.conv") and len(op.refs()) > 1]
    return 0 < here < SHORT <= max((_terms(graph, weight) for weight in others), default=0)


def _terms(graph: Graph, weight: str) -> int:
    """Numbers that are added up for one of the result, at the full shapes; of a transposed convolution's weight about."""
    tensor = graph.values.get(weight)
    return 0 if tensor is None else prod(size[0] for size in tensor.shape[1:])


def starts_rounded(graph: Graph, body: Body, stage: Stage) -> bool:
    """Whether a convolution that may be made in TF32 starts with operands that are rounded.

    Cut off they are refused too often: in 13 of 32 evaluations behind minimums, running statistics and means. Rounded they
    are as exact as the library's. Where the operand comes from forward's caller it is turned channels last by a copy that
    rounds at no cost. Elsewhere rounding takes a pass over memory, or the loop's registers: 1.35 to 2.2 times the kernel's
    time. That pays before reductions over channels, since the smallest and largest of sums that are cut off are off by
    more than the sums are, and before averages: what is cut off is always towards zero and does not average out. Of a ResNet
    block and a DenseNet block every kernel that cut was refused for the running statistics behind it.
    """
    return (
        any(node.kind == "reduce" for node in body.nodes)
        or any(_is_averaged(graph, value, _averages) for value in body.stores)
        or _is_turned(graph, body, stage)
    )


def has_variance(graph: Graph, body: Body) -> bool:
    """Whether a variance is taken of what a kernel makes, as a batch norm does in training: operands that are cut off make
    each of its products smaller. Of random numbers a running variance is 1.7e-5 of itself too small, 2.6e-7 off if both are
    rounded; and every kernel that cut was refused."""
    return any(_is_averaged(graph, value, _takes_variance) for value in body.stores)


def _is_averaged(graph: Graph, value: str, averages: Callable[[Op], bool], steps: int = STEPS) -> bool:
    """Whether an average is taken of a value, or of what is made of it element by element, seen otherwise or joined.
    averages: whether an op takes one that counts."""
    readers = [graph.by_name[name] for name in graph.readers(value)]
    if any(averages(op) for op in readers):
        return True
    if steps == 0:
        return False
    behind = (made for op in readers if _passes_on(op) for made in op.outputs)
    return any(_is_averaged(graph, made, averages, steps - 1) for made in behind)


def _passes_on(op: Op) -> bool:
    known = op.target in POINTWISE or op.target in ARITHMETIC or op.target in FREE or op.target in (CAT, STACK)
    return known or op.target.removeprefix("aten.").startswith(_PASSED_ON)


def _averages(op: Op) -> bool:
    """Whether an op takes averages over places: a batch norm does in training alone."""
    if op.target == _TRAINED_NORM:
        return bool(op.args[_TRAINING_AT])
    return op.target.removeprefix("aten.").startswith(_AVERAGES)


def _takes_variance(op: Op) -> bool:
    return _averages(op) and (op.target == _TRAINED_NORM or op.target.removeprefix("aten.").startswith(_VARIANCES))


def _is_turned(graph: Graph, body: Body, stage: Stage) -> bool:
    """Whether a copy turns the operand channels last, of which a rounded one comes instead, or has gathered it so; or it has
    few channels, and is small beside the result."""
    try:
        found = analyse(graph, body)
    except NotCovered:
        return False
    operand = graph.values[found.source]
    (rows, inner), groups = product_sizes(graph, found), found.window.groups
    if inner[0] < LEAST_CHANNELS and are_few(graph, found, False):
        return found.source in rounded_in_memory(
            body, found, stage.scheduled({"precision": ROUNDED, "loop": "channels"})
        )
    if len(operand.shape) not in FORMATS or not is_one(groups) or min(rows[0], inner[0]) < LEAST_CHANNELS:
        return False
    last, base = lies_channels_last(operand), _seen(graph, found.source)
    if base in graph.inputs and last:
        return False
    if base not in graph.inputs and not (last and graph.by_name[graph.producer[base]].target in _COPIES):
        return False
    there = stage.scheduled({"layout": "channels_last", "precision": ROUNDED})
    return found.source in rounded_in_memory(body, found, there)


def _seen(graph: Graph, value: str) -> str:
    """What a value is a view of; itself, where it is none."""
    while value in graph.producer and graph.by_name[graph.producer[value]].target in FREE:
        value = graph.by_name[graph.producer[value]].refs()[0]
    return value
