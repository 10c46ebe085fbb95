"""steps: what expansions of ops have in common: reading an op's arguments, means, variances, norms, log-sums."""

from __future__ import annotations

import math
from typing import Any

from mtmc.rewrite.body import Count, NotCovered, Number, Operand
from mtmc.rewrite.builder import Builder
from mtmc.rewrite.graph import Op, Ref, Shape, Size, Varying, product
from mtmc.rewrite.operators.powers import power


def argument(op: Op, index: int, name: str, default: Any = None) -> Any:
    return op.args[index] if len(op.args) > index else op.kwargs.get(name, default)


def tensor(op: Op, index: int = 0) -> str:
    argument = op.args[index]
    if not isinstance(argument, Ref):
        raise NotCovered(f"{op.target}: argument {index} is not a tensor")
    return argument.name


def floats(builder: Builder, op: Op, *names: str) -> None:
    for name in names:
        if builder.compute(name) != "float":
            raise NotCovered(f"{op.target} on {builder.compute(name)} values")


def dims_of(shape: Shape, dim: Any) -> tuple[int, ...]:
    if dim is None or dim == ():
        return tuple(range(len(shape)))
    if isinstance(dim, Varying) or (isinstance(dim, tuple) and any(isinstance(each, Varying) for each in dim)):
        raise NotCovered("a reduced dimension that differs between shapes")
    return tuple(each % len(shape) for each in (dim if isinstance(dim, tuple) else (dim,)))


def count_of(builder: Builder, x: str, dims: tuple[int, ...], less: int = 0) -> Operand:
    """Number of reduced elements less some, as an operand that holds for any shape."""
    return Count(product(tuple(builder.shape(x)[dim] for dim in dims)), less)


def mean_of(builder: Builder, x: str, dims: tuple[int, ...], keepdim: bool, name: str | None = None) -> str:
    total = builder.reduce("sum", x, dims, keepdim, hint="sum")
    return builder.map("{0} / {1}", total, count_of(builder, x, dims), name=name, hint="mean")


def variance_of(builder: Builder, x: str, dims: tuple[int, ...], less: int, keepdim: bool = True) -> tuple[str, str]:
    """(mean, variance with divisor count - less), from the distances to the mean as torch does: no cancellation.

    The mean keeps the reduced dimensions.
    """
    mean = mean_of(builder, x, dims, True)
    total = builder.reduce("deviations", x, dims, keepdim, hint="spread", also=(mean,))
    return mean, builder.map("{0} / {1}", total, count_of(builder, x, dims, less), hint="var")


def reduced(builder: Builder, each: str, reduction: int, name: str) -> None:
    """What torch's losses do at their end. reduction: 0 for nothing, 1 for the mean, 2 for the sum over all elements."""
    everything = tuple(range(len(builder.shape(each))))
    if reduction == 0:
        builder.map("{0}", each, name=name, flops=0)
    elif reduction == 1:
        mean_of(builder, each, everything, False, name)
    else:
        builder.reduce("sum", each, everything, False, name=name)


def norm_of(builder: Builder, x: str, order: float, dims: tuple[int, ...], keepdim: bool, name: str | None) -> str:
    """The vector norm over some dimensions."""
    if order == 2:
        squares = builder.map("{0} * {0}", x, hint="square")
        total = builder.reduce("sum", squares, dims, keepdim, hint="squares")
        return builder.map("tl.sqrt({0})", total, name=name, hint="norm")
    sizes = builder.map("tl.abs({0})", x, hint="abs")
    if order in (1, math.inf, -math.inf):
        operation = "sum" if order == 1 else "amax" if order > 0 else "amin"
        return builder.reduce(operation, sizes, dims, keepdim, name=name, hint="norm")
    if order == 0:
        counted = builder.map("tl.where({0} == 0.0, 0.0, 1.0)", x, hint="counted")
        return builder.reduce("sum", counted, dims, keepdim, name=name, hint="norm")
    total = builder.reduce("sum", power(builder, sizes, Number(order)), dims, keepdim, hint="powers")
    return power(builder, total, Number(1 / order), name)


def logsumexp_of(builder: Builder, x: str, dims: tuple[int, ...], keepdim: bool, name: str | None) -> str:
    top = builder.reduce("max", x, dims, True, hint="max")
    exps = builder.map("tl.exp({0} - {1})", x, top, hint="exp", flops=3)
    total = builder.reduce("sum", exps, dims, keepdim, hint="sum")
    again = top if keepdim else builder.view(top, builder.shape(total), hint="top")
    return builder.map("{1} + tl.log({0})", total, again, name=name, hint="lse", flops=3)


def softmax_of(builder: Builder, x: str, dim: int, name: str | None = None) -> str:
    """Exponentials of the distance to the largest element, over their sum."""
    return softmax_and_top(builder, x, dim, name)[0]


def softmax_and_top(builder: Builder, x: str, dim: int, name: str | None = None) -> tuple[str, str]:
    """The softmax, and the largest elements."""
    top = builder.reduce("max", x, (dim,), True, hint="max")
    shifted = builder.map("{0} - {1}", x, top, hint="shifted")
    exps = builder.map("tl.exp({0})", shifted, hint="exp", flops=2)
    total = builder.reduce("sum", exps, (dim,), True, hint="sum")
    return builder.map("{0} / {1}", exps, total, name=name, hint="softmax"), top


def dim_of(op: Op, at: int, rank: int, default: int = 0) -> int:
    """The dimension that an op's argument names, counted from the first. Raises: NotCovered where it differs."""
    dim = argument(op, at, "dim", default)
    if not isinstance(dim, int) or not rank:
        raise NotCovered(f"{op.target} along {dim!r}")
    return dim % rank


def size_operand(size: Size) -> Operand:
    """A size as an operand: a number where it is constant."""
    return Number(size[0]) if len(set(size)) == 1 else Count(size)


def result_of(builder: Builder, op: Op, number: int = 0) -> Shape:
    """The shape of one of an op's results."""
    return builder.graph.values[op.outputs[number]].shape
