"""pool_places: the largest of each window together with its place in the image, tap by tap.

Of equal ones the first is it, and of several NaN the last, as torch has it.
"""

from __future__ import annotations

import math
from itertools import product as pairs_of

from mtmc.rewrite.body import NotCovered
from mtmc.rewrite.builder import Builder, Expand
from mtmc.rewrite.graph import Op
from mtmc.rewrite.index_maps import Looked
from mtmc.rewrite.operators.steps import argument, floats, result_of, size_operand, tensor
from mtmc.rewrite.operators.unpooling import MOST, Windows, windows_of
from mtmc.rewrite.operators.windows import pool


def _max_pool(builder: Builder, op: Op) -> None:
    """Where nothing reads the places, windows like any others."""
    if op.outputs[1] not in builder.graph.used:
        pool(2, False)(builder, op)
        return
    x = tensor(op)
    floats(builder, op, x)
    padding, dilation = argument(op, 3, "padding", 0), argument(op, 4, "dilation", 1)
    windows = windows_of(op, op.args[1], argument(op, 2, "stride"), padding, dilation)
    if windows[0].taps * windows[1].taps > MOST:
        raise NotCovered(f"{op.target} with more than {MOST} taps and the place of the largest")
    _unrolled(builder, op, x, windows)


def _unrolled(builder: Builder, op: Op, x: str, windows: tuple[Windows, Windows]) -> None:
    shape = result_of(builder, op)
    rank, width = len(shape), size_operand(builder.shape(x)[-1])
    looked = Looked((rank - 2, rank - 1), 0, rank, aligned=True)
    starts = [_start(builder, op, each) for each in windows]
    inside = [_first_inside(builder, each, start) for each, start in zip(windows, starts, strict=True)]
    best, place = "", builder.map("{0} * {2} + {1}", *inside, width, compute="int", hint="place", flops=2)
    for taps in pairs_of(*(range(each.taps) for each in windows)):
        row, column = (
            builder.map(f"{{0}} + {tap * each.dilation}", start, compute="int", hint="at")
            for tap, each, start in zip(taps, windows, starts, strict=True)
        )
        value = builder.index("tap", looked, (x, row, column), shape, fill=-math.inf)
        number = builder.map("{0} * {2} + {1}", row, column, width, compute="int", hint="number", flops=2)
        known = (value, best) if best else (value,)
        better = "({0} > {1}) | ({0} != {0})" if best else '({0} > float("-inf")) | ({0} != {0})'
        mask = builder.map(better, *known, compute="bool", hint="better", flops=3)
        place = builder.map("tl.where({0}, {1}, {2})", mask, number, place, compute="int", hint="place")
        best = builder.map("tl.where({0}, {1}, {2})", mask, *known, hint="best") if best else value
    builder.map("{0}", best, name=op.outputs[0], flops=0)
    builder.map("{0}", place, compute="int", name=op.outputs[1], flops=0)


def _start(builder: Builder, op: Op, windows: Windows) -> str:
    """Where a window begins, which may be before the image."""
    place = builder.place(windows.axis, result_of(builder, op), "window")
    text = f"{{0}} * {windows.stride} - {windows.padding}"
    return builder.map(text, place, compute="int", hint="start", flops=2)


def _first_inside(builder: Builder, windows: Windows, start: str) -> str:
    """The first tap that is in the image."""
    step = windows.dilation
    text = f"tl.where({{0}} < 0, {{0}} + ({step - 1} - {{0}}) // {step} * {step}, {{0}})"
    return builder.map(text, start, compute="int", hint="first", flops=5)


POOL_PLACES: dict[str, Expand] = {"aten.max_pool2d_with_indices.default": _max_pool}
