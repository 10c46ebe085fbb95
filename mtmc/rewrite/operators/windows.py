"""windows: pooling and convolutions as steps: what each position of the result reads of the operand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mtmc.rewrite.body import NotCovered, Window, operand
from mtmc.rewrite.builder import Builder, Expand
from mtmc.rewrite.graph import Op, Ref, Size, Varying, is_one
from mtmc.rewrite.operators.steps import argument, floats, mean_of, tensor


def _sizes(builder: Builder, item: Any, rank: int) -> tuple[Size, ...]:
    """An argument that is a number, or one number a dimension, as sizes."""
    parts = item if isinstance(item, tuple) else (item,)
    parts = parts * rank if len(parts) == 1 else parts
    if len(parts) != rank:
        raise NotCovered(f"{len(parts)} numbers for {rank} dimensions")
    count = len(builder.graph.variants)
    return tuple(
        tuple(int(value) for value in part.values) if isinstance(part, Varying) else (int(part),) * count
        for part in parts
    )


def _none(sizes: tuple[Size, ...]) -> bool:
    return not any(any(size) for size in sizes)


def pool(rank: int, average: bool) -> Expand:
    def expand(builder: Builder, op: Op) -> None:
        x = tensor(op)
        floats(builder, op, x)
        out = builder.graph.values[op.outputs[0]].shape
        size = _sizes(builder, op.args[1], rank)
        stride = argument(op, 2, "stride", ())
        strides = size if stride == () or stride is None else _sizes(builder, stride, rank)
        padding = _sizes(builder, argument(op, 3, "padding", 0), rank)
        if average:
            ceil, with_padding = argument(op, 4, "ceil_mode", False), argument(op, 5, "count_include_pad", True)
            ones = _sizes(builder, 1, rank)
            counted = "inside" if not with_padding and not _none(padding) else "padded" if ceil else "all"
            window = Window(size, strides, padding, ones, bool(ceil), counted=counted)
            _mean_pool(builder, op, x, window)
        else:
            dilation = _sizes(builder, argument(op, 4, "dilation", 1), rank)
            window = Window(size, strides, padding, dilation, bool(argument(op, 5, "ceil_mode", False)))
            builder.window("max", (x,), out, window, name=op.outputs[0])

    return expand


def _mean_pool(builder: Builder, op: Op, x: str, window: Window) -> None:
    out = builder.graph.values[op.outputs[0]].shape
    divisor = argument(op, 6, "divisor_override")
    if divisor is None:
        builder.window("mean", (x,), out, window, name=op.outputs[0])
    else:
        total = builder.window("sum", (x,), out, window)
        builder.map("{0} / {1}", total, operand(divisor), name=op.outputs[0])


def _adaptive(rank: int, average: bool) -> Expand:
    def expand(builder: Builder, op: Op) -> None:
        x = tensor(op)
        floats(builder, op, x)
        out, shape = builder.graph.values[op.outputs[0]].shape, builder.shape(x)
        if all(is_one(size) for size in out[-rank:]):  # over everything: a reduction like any other
            dims = tuple(range(len(shape) - rank, len(shape)))
            if average:
                mean_of(builder, x, dims, True, op.outputs[0])
            else:
                builder.reduce("amax", x, dims, True, name=op.outputs[0])
            return
        zeros, ones = _sizes(builder, 0, rank), _sizes(builder, 1, rank)
        pairs = [list(zip(i, o, strict=True)) for i, o in zip(shape[-rank:], out[-rank:], strict=True)]
        if all(i % o == 0 and i // o == pair[0][0] // pair[0][1] for pair in pairs for i, o in pair):
            sizes = tuple(tuple(i // o for i, o in pair) for pair in pairs)
            window = Window(sizes, sizes, zeros, ones)
        else:
            sizes = tuple(tuple(-(-i // o) + 1 for i, o in pair) for pair in pairs)
            window = Window(sizes, ones, zeros, ones, adaptive=True, counted="inside")
        builder.window("mean" if average else "max", (x,), out, window, name=op.outputs[0])

    return expand


def _convolution(rank: int, transposed: bool = False, named_padding: bool = False) -> Expand:
    def expand(builder: Builder, op: Op) -> None:
        x, weight, bias = tensor(op), tensor(op, 1), argument(op, 2, "bias")
        floats(builder, op, x, weight)
        if len(builder.shape(x)) != rank + 2:
            raise NotCovered(f"{op.target} without a batch")
        out, taps = builder.graph.values[op.outputs[0]].shape, builder.shape(weight)[2:]
        stride = _sizes(builder, argument(op, 3, "stride", 1), rank)
        padding = argument(op, 4, "padding", 0)
        groups = argument(op, 6, "groups", 1)
        dilation = _sizes(builder, argument(op, 7 if transposed else 5, "dilation", 1), rank)
        if named_padding:
            pads = tuple(_same_padding(tap, step) if padding == "same" else (0,) * len(tap)
                         for tap, step in zip(taps, dilation, strict=True))  # fmt: skip
        else:
            pads = _sizes(builder, padding, rank)
        window = Window(taps, stride, pads, dilation, groups=_sizes(builder, groups, 1)[0])
        operation = "transposed convolution" if transposed else "convolution"
        channels = builder.shape(x)[1]
        if not transposed and window.groups == channels and not is_one(channels):
            operation = "weighted sum"  # depthwise: a channel of its own for each result, so no matrix product
        name = None if isinstance(bias, Ref) else op.outputs[0]
        found = builder.window(operation, (x, weight), out, window, name=name)
        if isinstance(bias, Ref):
            builder.map("{0} + {1}", found, builder.trailing(bias.name, rank), name=op.outputs[0])

    return expand


def _any_convolution(builder: Builder, op: Op) -> None:
    """The op behind all convolutions."""
    x, weight, bias, stride, padding, dilation, transposed, more, groups = op.args[:9]
    rank = len(builder.shape(weight.name)) - 2
    rest = (stride, padding, more, groups, dilation) if transposed else (stride, padding, dilation, groups)
    _convolution(rank, transposed)(builder, replace(op, args=(x, weight, bias, *rest)))


def _convolution_backward(builder: Builder, op: Op) -> None:
    """The gradient of a convolution's input: a convolution the other way, by the same weight."""
    grad, _, weight, _, stride, padding, dilation, transposed, more, groups = op.args[:10]
    if any(name in builder.graph.used for name in op.outputs[1:]):
        raise NotCovered(f"{op.target} with the gradients of weight and bias")
    rank = len(builder.shape(weight.name)) - 2
    rest = (stride, padding, dilation, groups) if transposed else (stride, padding, more, groups, dilation)
    _convolution(rank, not transposed)(builder, replace(op, args=(grad, weight, None, *rest)))


def _same_padding(taps: Size, dilation: Size) -> Size:
    """What stands before the first element; one more may stand behind the last."""
    return tuple(step * (tap - 1) // 2 for tap, step in zip(taps, dilation, strict=True))


WINDOWS: dict[str, Expand] = {
    **{f"aten.max_pool{rank}d.default": pool(rank, False) for rank in (1, 2, 3)},
    **{f"aten.max_pool{rank}d_with_indices.default": pool(rank, False) for rank in (1, 3)},
    **{f"aten.avg_pool{rank}d.default": pool(rank, True) for rank in (1, 2, 3)},
    **{f"aten.adaptive_avg_pool{rank}d.default": _adaptive(rank, True) for rank in (1, 2, 3)},
    **{f"aten.adaptive_max_pool{rank}d.default": _adaptive(rank, False) for rank in (1, 2, 3)},
    **{f"aten._adaptive_avg_pool{rank}d.default": _adaptive(rank, True) for rank in (2, 3)},
    "aten.convolution.default": _any_convolution,
    "aten.convolution_backward.default": _convolution_backward,
    **{f"aten.conv{rank}d.default": _convolution(rank) for rank in (1, 2, 3)},
    **{f"aten.conv{rank}d.padding": _convolution(rank, named_padding=True) for rank in (1, 2, 3)},
    "aten.conv_transpose1d.default": _convolution(1, transposed=True),
    "aten.conv_transpose2d.input": _convolution(2, transposed=True),
    "aten.conv_transpose3d.input": _convolution(3, transposed=True),
}
