"""cut: a large product of fp32 numbers as one of numbers of 16 bits, three times as long.

Proof. Let x = h + l with h = fp16(x) and l = fp16(x - h), and y = g + m likewise. Then

    sum over k of x y = sum over k of (h g + h m + l g) + l m = [h h l] . [g m g] + l m

Products of numbers of 16 bits are exact in fp32, in which tensor cores add up. h has 11 bits, so |l| <= 2^-11 |x|, and l
has 11 bits more: what is left out is 2^-22 of |x| |y| at most, as of three TF32 products, which have as many bits.

fp16 has fewer exponents than fp32. So each row of the left operand and each column of the right one is multiplied by a power
of two first, which brings its largest number between 2^14 and 2^15, and the result is divided by both. l is exact to 2^-25
then, which is 2^-39 of the row's largest number: less than fp32 keeps of a sum that this number is in. What is infinite
becomes an infinite l beside a finite h, so that no difference of infinities is taken; what is not a number stays so.

What it is for: tensor cores multiply fp16 at twice the rate of TF32, and read it from shared memory as it lies there. For
three TF32 products each program cuts its tiles in its loop; cut before, they take passes over the operands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mtmc.rewrite.algebra.edit import CASTS, Editor, Finding, Rule
from mtmc.rewrite.graph import IN_ORDER, NARROWED, Graph, Op, Ref, Shape, Tensor, product
from mtmc.rewrite.widened import HALVES

_LINEAR = "aten.linear.default"
_PRODUCTS = (_LINEAR, "aten.matmul.default", "aten.mm.default")
LEAST = 512
"""Rows and columns at the full shapes. Passes over the operands, some 14 bytes a number, take as long as is gained where
there are 550 of each, if three TF32 products get 90 TFLOP/s of an H100 and fp16 three times as long 210."""
LEAST_INNER = 16
"""Of the summed dimension: with fewer terms nothing but writing the result takes time."""
MULTIPLE = 8
"""Halves that rows of them are a multiple of at the full shapes: descriptors want rows that begin at 16 bytes."""
TOP = 14
"""The power of two that the largest number of a row is brought to."""
LARGEST = 65504.0
"""Of fp16."""


def _cut(graph: Graph, op: Op) -> Finding | None:
    if op.target not in _PRODUCTS or not all(isinstance(each, Ref) for each in op.args[:2]):
        return None
    left, right = op.args[:2]
    made, known = graph.values[op.outputs[0]], [graph.values[each.name] for each in (left, right)]
    if (
        any(each.dtype != "float32" for each in (made, *known))
        or not made.contiguous
        or not _is_large(made.shape, known)
    ):
        return None
    if any(_is_widened(graph, each) for each in (left, right)):
        return None
    edit = Editor(graph, op)
    if op.target != _LINEAR:
        right = edit.permuted(right, (1, 0), "turned")
    (first, down), (second, across) = _halves(edit, left, 2), _halves(edit, right, 1)
    by = edit.add(_LINEAR, (first, second), made.shape, "of_halves")
    by = _scaled(edit, _scaled(edit, by, 2.0 ** (-2 * TOP)), down)
    row = edit.add("aten.squeeze.dim", (across, -1), edit.tensor(across).shape[:-1], "row")
    by = _scaled(edit, by, row)
    bias = op.args[2] if len(op.args) > 2 else op.kwargs.get("bias")
    if isinstance(bias, Ref):
        by = edit.add("aten.add.Tensor", (by, bias), made.shape, "biased")
    return edit.finish(f"{op.name} is a product of halves, three times as long", (op.name,), by)


def _is_widened(graph: Graph, item: Ref) -> bool:
    """Whether an operand was of 16 bits before: tensor cores make products of such as they are."""
    op = graph.by_name.get(graph.producer.get(item.name, ""))
    return op is not None and op.target in CASTS and graph.values[op.args[0].name].dtype in HALVES


def _is_large(made: Shape, known: Sequence[Tensor]) -> bool:
    """Whether a product is that of a matrix, and takes longer than passes over its operands."""
    left, right = known
    if len(left.shape) < 2 or len(right.shape) != 2:
        return False
    return min(product(made[:-1])[0], made[-1][0]) >= LEAST and left.shape[-1][0] >= LEAST_INNER


def _halves(edit: Editor, item: Ref, second: int) -> tuple[Ref, Ref]:
    """The halves of an operand one behind the other along its rows, as fp32 numbers, and what its rows were divided by, but
    for the power of two that they are all brought to. second: where the small half stands, of 0 to 2."""
    import torch

    def step(name: str, *args: object) -> Ref:
        made = edit.called(f"aten.{name}", args, name.partition(".")[0])
        assert made is not None, "torch takes any fp32 numbers"
        return made

    half, full = torch.float16, torch.float32
    top = _tops(edit, item, step)
    power = step("floor.default", step("log2.default", step("clamp.default", top, 2.0**-100, 2.0**127)))
    up, down = (
        _in_order(edit, step("exp2.default", each), hint)
        for each, hint in ((step("rsub.Scalar", power, float(TOP)), "up"), (power, "down"))
    )
    wide = step("mul.Tensor", item, up)
    within = step("clamp.default", wide, -LARGEST, LARGEST)
    narrow = edit.add(NARROWED, (within,), edit.tensor(within).shape, "high", strides=edit.tensor(within).strides)
    high, low = (step("to.dtype", each, half) for each in (narrow, step("sub.Tensor", wide, narrow)))
    both = step("cat.default", tuple(low if at == second else high for at in range(3)), -1)
    margin = -3 * edit.tensor(item).shape[-1][0] % MULTIPLE
    if margin:
        both = step("pad.default", both, (0, margin))
    return step("to.dtype", _in_order(edit, both, "halves"), full), down


def _tops(edit: Editor, item: Ref, step: Callable[..., Ref]) -> Ref:
    """The largest size in each row, found along the dimension that it lies in memory."""
    rank = len(edit.tensor(item).shape)
    swap = (*range(rank - 2), rank - 1, rank - 2)
    across = edit.permuted(item, swap, "as_it_lies")
    if edit.tensor(item).contiguous or not edit.tensor(across).contiguous:
        return step("amax.default", step("abs.default", item), (-1,), True)
    return edit.permuted(step("amax.default", step("abs.default", across), (-2,), True), swap, "top")


def _in_order(edit: Editor, item: Ref, hint: str) -> Ref:
    """What is written by one kernel and read by another, and is never made again for each tile of a product."""
    return edit.add(IN_ORDER, (item,), edit.tensor(item).shape, hint, dtype=edit.tensor(item).dtype)


def _scaled(edit: Editor, item: Ref, by: Ref | float) -> Ref:
    return edit.add("aten.mul.Tensor", (item, by), edit.tensor(item).shape, "scaled")


CUT: tuple[Rule, ...] = (_cut,)
