"""losses: loss functions as steps: what each element or row adds, then their sum or mean."""

from __future__ import annotations

from mtmc.rewrite.body import NotCovered, Number, operand
from mtmc.rewrite.builder import Builder, Expand
from mtmc.rewrite.graph import Op
from mtmc.rewrite.operators.elementwise import LOG1P_EXP
from mtmc.rewrite.operators.steps import argument, floats, logsumexp_of, norm_of, reduced, size_operand, tensor


def _paired(
    expression: str, setting: tuple[int, str, float] | None = None, flops: int = 3, reduction: int = 2
) -> Expand:
    """A loss of each element of input {0} and target {1}. setting: index, name and default of a number, {2}.

    reduction: index of that argument.
    """

    def expand(builder: Builder, op: Op) -> None:
        x, target = tensor(op), tensor(op, 1)
        floats(builder, op, x, target)
        if argument(op, 2, "weight") is not None and reduction != 2:
            raise NotCovered(f"{op.target} with weights")
        more = [operand(argument(op, *setting))] if setting else []
        each = builder.map(expression, x, target, *more, hint="each", flops=flops)
        reduced(builder, each, argument(op, reduction, "reduction", 1), op.outputs[0])

    return expand


def _kl_div(builder: Builder, op: Op) -> None:
    x, target = tensor(op), tensor(op, 1)
    floats(builder, op, x, target)
    if op.kwargs.get("log_target", False):
        each = builder.map("tl.exp({1}) * ({1} - {0})", x, target, hint="each", flops=4)
    else:
        expression = "tl.where({1} > 0.0, {1} * (tl.log({1}) - {0}), 0.0)"
        each = builder.map(expression, x, target, hint="each", flops=5)
    reduced(builder, each, argument(op, 2, "reduction", 1), op.outputs[0])


def _with_logits(builder: Builder, op: Op) -> None:
    x, target = tensor(op), tensor(op, 1)
    floats(builder, op, x, target)
    if argument(op, 2, "weight") is not None or argument(op, 3, "pos_weight") is not None:
        raise NotCovered(f"{op.target} with weights")
    expression = "tl.maximum({0}, 0.0) - {0} * {1} + " + LOG1P_EXP
    each = builder.map(expression, x, target, hint="each", flops=9)
    reduced(builder, each, argument(op, 4, "reduction", 1), op.outputs[0])


def _triplet_margin(builder: Builder, op: Op) -> None:
    anchor, positive, negative = tensor(op), tensor(op, 1), tensor(op, 2)
    floats(builder, op, anchor, positive, negative)
    order, eps = argument(op, 4, "p", 2), operand(argument(op, 5, "eps", 1e-6))
    if argument(op, 6, "swap", False):
        raise NotCovered("a triplet loss that swaps")
    last = (len(builder.shape(anchor)) - 1,)
    near, far = (
        norm_of(builder, builder.map("{0} - {1} + {2}", anchor, other, eps, hint="apart"), order, last, False, None)
        for other in (positive, negative)
    )
    margin = operand(argument(op, 3, "margin", 1.0))
    each = builder.map("tl.maximum({2} + {0} - {1}, 0.0)", near, far, margin, hint="each", flops=3)
    reduced(builder, each, argument(op, 7, "reduction", 1), op.outputs[0])


def _cosine_similarity(builder: Builder, op: Op) -> None:
    x, y = tensor(op), tensor(op, 1)
    floats(builder, op, x, y)
    if builder.shape(x) != builder.shape(y):
        raise NotCovered("a cosine similarity that broadcasts")
    dims = (int(argument(op, 2, "dim", 1)) % len(builder.shape(x)),)
    along = builder.reduce("sum", builder.map("{0} * {1}", x, y, hint="product"), dims, False, hint="along")
    lengths = [norm_of(builder, each, 2, dims, False, None) for each in (x, y)]
    eps = operand(argument(op, 3, "eps", 1e-8))
    expression = "{0} / (tl.maximum({1}, {3}) * tl.maximum({2}, {3}))"
    builder.map(expression, along, *lengths, eps, name=op.outputs[0], flops=4)


def _cross_entropy(builder: Builder, op: Op) -> None:
    x, target = tensor(op), tensor(op, 1)
    floats(builder, op, x)
    shape = builder.shape(x)
    weight, reduction = argument(op, 2, "weight"), argument(op, 3, "reduction", 1)
    ignored, smoothing = argument(op, 4, "ignore_index", -100), argument(op, 5, "label_smoothing", 0.0)
    if len(shape) != 2 or weight is not None or builder.compute(target) != "int":
        raise NotCovered("cross entropy other than [N, C] logits, class targets, no weights")
    lse = logsumexp_of(builder, x, (1,), False, None)
    # The logit of each row's target, picked while the row is read anyway.
    expression = "tl.where({cols} == {1}, {0}, 0.0)"
    picked = builder.map(expression, x, builder.trailing(target, 1), hint="at_target", flops=2)
    chosen = builder.reduce("sum", picked, (1,), False, hint="chosen")
    if smoothing:  # a part of each target goes to all classes alike
        mean = builder.map("{0} / {1}", builder.reduce("sum", x, (1,), False), size_operand(shape[1]), hint="mean")
        chosen = builder.map("{0} + {2} * ({1} - {0})", chosen, mean, operand(smoothing), hint="smoothed", flops=3)
    _over_rows(builder, op, "tl.where({0} == {1}, 0.0, {2} - {3})", target, Number(ignored), reduction, lse, chosen)


def _nll(builder: Builder, op: Op) -> None:
    x, target = tensor(op), tensor(op, 1)
    floats(builder, op, x)
    reduction, ignored = argument(op, 3, "reduction", 1), argument(op, 4, "ignore_index", -100)
    if len(builder.shape(x)) != 2 or argument(op, 2, "weight") is not None:
        raise NotCovered("negative log likelihood other than [N, C], class targets, no weights")
    picked = builder.map("tl.where({cols} == {1}, {0}, 0.0)", x, builder.trailing(target, 1), hint="at_target", flops=2)
    chosen = builder.reduce("sum", picked, (1,), False, hint="chosen")
    _over_rows(builder, op, "tl.where({0} == {1}, 0.0, -{2})", target, Number(ignored), reduction, chosen)


def _over_rows(
    builder: Builder, op: Op, expression: str, target: str, ignored: Number, reduction: int, *operands: str
) -> None:
    """The rows' losses, or their sum, or their mean over the rows that count. expression: of target, ignored, operands."""
    name = op.outputs[0]
    if reduction == 0:
        builder.map(expression, target, ignored, *operands, name=name)
        return
    loss = builder.map(expression, target, ignored, *operands, hint="loss")
    if reduction == 2:
        builder.reduce("sum", loss, (0,), False, name=name)
        return
    total = builder.reduce("sum", loss, (0,), False, hint="total")
    counted = builder.map("tl.where({0} == {1}, 0.0, 1.0)", target, ignored, hint="counted")
    count = builder.reduce("sum", counted, (0,), False, hint="count")
    builder.map("{0} / {1}", total, count, name=name)


LOSSES: dict[str, Expand] = {
    "aten.mse_loss.default": _paired("({0} - {1}) * ({0} - {1})"),
    "aten.l1_loss.default": _paired("tl.abs({0} - {1})", flops=2),
    "aten.smooth_l1_loss.default": _paired(
        "tl.where(tl.abs({0} - {1}) < {2}, 0.5 * ({0} - {1}) * ({0} - {1}) / {2}, tl.abs({0} - {1}) - 0.5 * {2})",
        (3, "beta", 1.0),
        flops=8,
    ),
    "aten.huber_loss.default": _paired(
        "tl.where(tl.abs({0} - {1}) < {2}, 0.5 * ({0} - {1}) * ({0} - {1}), {2} * (tl.abs({0} - {1}) - 0.5 * {2}))",
        (3, "delta", 1.0),
        flops=8,
    ),
    "aten.soft_margin_loss.default": _paired("tl.log(1.0 + tl.exp(-{0} * {1}))", flops=5),
    "aten.binary_cross_entropy.default": _paired(
        "-({1} * tl.maximum(tl.log({0}), -100.0) + (1.0 - {1}) * tl.maximum(tl.log(1.0 - {0}), -100.0))",
        flops=11,
        reduction=3,
    ),
    "aten.binary_cross_entropy_with_logits.default": _with_logits,
    "aten.kl_div.default": _kl_div,
    "aten.triplet_margin_loss.default": _triplet_margin,
    "aten.cosine_similarity.default": _cosine_similarity,
    "aten.cross_entropy_loss.default": _cross_entropy,
    "aten.nll_loss_nd.default": _nll,
}
