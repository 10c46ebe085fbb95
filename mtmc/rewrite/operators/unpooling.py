"""unpooling: gradients of pooling, and windows put together to an image: each pixel adds up what its windows have for it.

A pixel asks for its windows, instead of windows adding to pixels: nothing is written twice, and the sum has one order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product as pairs_of
from typing import Any

from mtmc.rewrite.body import NotCovered
from mtmc.rewrite.builder import Builder, Expand
from mtmc.rewrite.graph import Op, Shape, Size
from mtmc.rewrite.index_maps import Looked, Selected
from mtmc.rewrite.operators.steps import argument, result_of, size_operand, tensor
from mtmc.rewrite.operators.typed import result_dtype

MOST = 49
"""Windows that a pixel asks for: a kernel has a load for each."""


@dataclass(frozen=True)
class Windows:
    """Windows along one of the last two dimensions. taps: of a window."""

    axis: int
    taps: int
    stride: int
    padding: int
    dilation: int = 1

    @property
    def reach(self) -> int:
        """Pixels from a window's first to its last."""
        return (self.taps - 1) * self.dilation + 1

    @property
    def over_a_pixel(self) -> int:
        """Windows that may have a pixel in them."""
        return -(-self.reach // self.stride)


def _pair(op: Op, item: Any, default: Any = None) -> tuple[int, int]:
    """One number a dimension. Raises: NotCovered where they differ between shapes."""
    parts = default if item in (None, ()) else item if isinstance(item, tuple) else (item,)
    parts = parts * 2 if len(parts) == 1 else parts
    if len(parts) != 2 or not all(isinstance(part, int) for part in parts):
        raise NotCovered(f"{op.target} with windows that differ between shapes")
    return int(parts[0]), int(parts[1])


def windows_of(op: Op, taps: Any, stride: Any, padding: Any, dilation: Any = 1) -> tuple[Windows, Windows]:
    sizes = _pair(op, taps)
    columns = (sizes, _pair(op, stride, sizes), _pair(op, padding), _pair(op, dilation))
    down, across = (Windows(2 - at, *(column[at] for column in columns)) for at in range(2))
    if down.over_a_pixel * across.over_a_pixel > MOST:
        raise NotCovered(f"{op.target} with more than {MOST} windows over a pixel")
    return down, across


def _of_windows(builder: Builder, windows: Windows, shape: Shape, number: int) -> str:
    """The window that stands `number` before the last one over a pixel; -1 where the pixel is beyond its end."""
    place = builder.place(windows.axis, shape, "pixel")
    padded = f"({{0}} + {windows.padding})" if windows.padding else "{0}"
    quotient = f"{padded} // {windows.stride}" if windows.stride > 1 else padded
    last = builder.map(f"{quotient} - {number}" if number else quotient, place, compute="int", hint="window", flops=2)
    inside = f"{padded} - {{1}} * {windows.stride} < {windows.reach}"
    return builder.map(f"tl.where({inside}, {{1}}, -1)", place, last, compute="int", hint="own", flops=4)


def _looked(builder: Builder, value: str, places: tuple[str, str], shape: Shape) -> str:
    """What windows have, for all pixels of a shape; 0 where there is no such window."""
    rank = len(shape)
    looked = Looked((rank - 2, rank - 1), 0, rank, aligned=True)
    return builder.index("window", looked, (value, *places), shape, fill=0.0)


def _added(builder: Builder, terms: Iterator[str], name: str) -> None:
    found = list(terms)
    builder.map(" + ".join(f"{{{at}}}" for at in range(len(found))), *found, name=name, flops=len(found) - 1)


def _average_backward(builder: Builder, op: Op) -> None:
    grad, shape = tensor(op), result_of(builder, op)
    down, across = windows_of(op, op.args[2], op.args[3], op.args[4])
    padded, divisor = bool(op.args[6]), argument(op, 7, "divisor_override")

    def count(windows: Windows, own: str) -> str:
        """Elements of a window along its dimension, of which a mean was taken."""
        size = size_operand(shape[-windows.axis])
        start = f"{{0}} * {windows.stride} - {windows.padding}"
        end = f"{start} + {windows.taps}"
        if padded:
            text = f"tl.minimum({end}, {{1}} + {windows.padding}) - ({start})"
        else:
            text = f"tl.minimum({end}, {{1}}) - tl.maximum({start}, 0)"
        return builder.map(text, own, size, compute="int", hint="count", flops=4)

    def terms() -> Iterator[str]:
        for each in pairs_of(range(down.over_a_pixel), range(across.over_a_pixel)):
            own = [_of_windows(builder, windows, shape, at) for windows, at in zip((down, across), each, strict=True)]
            value = _looked(builder, grad, (own[0], own[1]), shape)
            if divisor is not None:
                yield builder.map(f"{{0}} / {divisor}", value, hint="share")
                continue
            counts = [count(windows, place) for windows, place in zip((down, across), own, strict=True)]
            # where there is no window the count may be anything, and what is divided is 0
            yield builder.map("{0} / tl.maximum({1} * {2}, 1)", value, *counts, hint="share", flops=3)

    _added(builder, terms(), op.outputs[0])


def _adaptive_backward(builder: Builder, op: Op) -> None:
    """Window o of O is of the pixels from o I // O up to (o + 1) I / O, rounded up, of I."""
    grad, shape = tensor(op), result_of(builder, op)
    outputs = builder.shape(grad)
    if any(o > i for axis in (2, 1) for o, i in zip(outputs[-axis], shape[-axis], strict=True)):
        raise NotCovered(f"{op.target} of more windows than pixels")  # wrong as triton 3.6 compiled it for an H100
    most = [max(-(-o // i) for o, i in zip(outputs[-axis], shape[-axis], strict=True)) + 1 for axis in (2, 1)]
    if most[0] * most[1] > MOST:
        raise NotCovered(f"{op.target} with more than {MOST} windows over a pixel")

    def own(axis: int, number: int) -> tuple[str, str]:
        """One of the windows over a pixel, -1 where there are fewer, and how many pixels it has."""
        place = builder.place(axis, shape, "pixel")
        sizes = size_operand(outputs[-axis]), size_operand(shape[-axis])
        text = f"{{0}} * {{1}} // {{2}} + {number}" if number else "{0} * {1} // {2}"
        window = builder.map(text, place, *sizes, compute="int", hint="window", flops=3)
        inside = "{1} * {3} < ({0} + 1) * {2}"
        text = f"tl.where({inside}, {{1}}, -1)"
        found = builder.map(text, place, window, *sizes, compute="int", hint="own", flops=4)
        pixels = "(({0} + 1) * {2} + {1} - 1) // {1} - {0} * {2} // {1}"
        return found, builder.map(pixels, window, *sizes, compute="int", hint="count", flops=8)

    def terms() -> Iterator[str]:
        for rows, columns in pairs_of(range(most[0]), range(most[1])):
            (row, height), (column, width) = own(2, rows), own(1, columns)
            value = _looked(builder, grad, (row, column), shape)
            yield builder.map("{0} / ({1} * {2})", value, height, width, hint="share", flops=2)

    _added(builder, terms(), op.outputs[0])


def _max_backward(builder: Builder, op: Op) -> None:
    """A window's gradient goes to the pixel whose number it has kept."""
    grad, places, shape = tensor(op), op.args[7].name, result_of(builder, op)
    down, across = windows_of(op, op.args[2], op.args[3], op.args[4], op.args[5])
    row, column = builder.place(2, shape, "row"), builder.place(1, shape, "column")
    pixel = builder.map("{0} * {2} + {1}", row, column, size_operand(shape[-1]), compute="int", hint="number", flops=2)

    def terms() -> Iterator[str]:
        for rows, columns in pairs_of(range(down.over_a_pixel), range(across.over_a_pixel)):
            own = _of_windows(builder, down, shape, rows), _of_windows(builder, across, shape, columns)
            chosen, value = (_looked(builder, each, own, shape) for each in (places, grad))
            yield builder.map("tl.where({0} == {1}, {2}, 0.0)", chosen, pixel, value, hint="share", flops=2)

    _added(builder, terms(), op.outputs[0])


def _col2im(builder: Builder, op: Op) -> None:
    """Columns of windows, [(batch,) channels * taps, windows], added up to an image."""
    x, shape = tensor(op), result_of(builder, op)
    taps, dilation, padding, stride = op.args[2:6]
    down, across = windows_of(op, taps, stride, padding, dilation)
    if down.taps * across.taps > MOST or result_dtype(builder, op) == "bool":
        raise NotCovered(f"{op.target} of windows with more than {MOST} taps")
    counts = _counts(op, shape, (down, across))
    lead, both = shape[:-2], tuple((each.taps,) * len(builder.graph.variants) for each in (down, across))
    spread = builder.view(x, (*lead, *both, *counts), hint="spread")

    def terms() -> Iterator[str]:
        for tap_row, tap_column in pairs_of(range(down.taps), range(across.taps)):
            value = spread
            for dim, tap in ((len(lead), tap_row), (len(lead), tap_column)):
                known = builder.shape(value)
                one = Selected(dim, (tap,) * len(builder.graph.variants))
                value = builder.index("tap", one, (value,), (*known[:dim], *known[dim + 1 :]))
            own = _with_tap(builder, down, shape, tap_row), _with_tap(builder, across, shape, tap_column)
            yield _looked(builder, value, own, shape)

    _added(builder, terms(), op.outputs[0])


def _counts(op: Op, shape: Shape, windows: tuple[Windows, Windows]) -> tuple[Size, Size]:
    """How many windows there are along each dimension of an image."""
    down, across = (
        tuple((size + 2 * each.padding - each.reach) // each.stride + 1 for size in shape[-each.axis])
        for each in windows
    )
    return down, across


def _with_tap(builder: Builder, windows: Windows, shape: Shape, tap: int) -> str:
    """The window of which a pixel is one tap; -1 where there is none."""
    place = builder.place(windows.axis, shape, "pixel")
    moved = builder.map(f"{{0}} + {windows.padding - tap * windows.dilation}", place, compute="int", hint="moved")
    fits = f"({{0}} >= 0) & ({{0}} % {windows.stride} == 0)"
    return builder.map(f"tl.where({fits}, {{0}} // {windows.stride}, -1)", moved, compute="int", hint="own", flops=4)


UNPOOLING: dict[str, Expand] = {
    "aten.avg_pool2d_backward.default": _average_backward,
    "aten._adaptive_avg_pool2d_backward.default": _adaptive_backward,
    "aten.max_pool2d_with_indices_backward.default": _max_backward,
    "aten.col2im.default": _col2im,
}
