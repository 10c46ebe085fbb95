"""sampling: images at places between their pixels, which a grid holds: the nearest pixel, or a mean of the four around it.

A place beyond the image is one where there is nothing ("zeros"), the nearest border, or one mirrored at the borders. One
that is no number is beyond an image with zeros around it, and else its first pixel, as torch has it on a GPU.
"""

from __future__ import annotations

from mtmc.rewrite.body import NotCovered, Operand
from mtmc.rewrite.builder import Builder, Expand
from mtmc.rewrite.graph import Op, Size
from mtmc.rewrite.index_maps import Looked, Selected
from mtmc.rewrite.operators.arithmetic import ROUND
from mtmc.rewrite.operators.steps import floats, result_of, size_operand, tensor

_ZEROS, _BORDER, _MIRRORED = 0, 1, 2
_BILINEAR, _NEAREST = 0, 1


def _grid_sampler(builder: Builder, op: Op) -> None:
    x, grid = tensor(op), tensor(op, 1)
    floats(builder, op, x, grid)
    how, around, corners = op.args[2:5]
    if len(builder.shape(x)) != 4:
        raise NotCovered(f"{op.target} of volumes")
    if how not in (_BILINEAR, _NEAREST):
        raise NotCovered(f"{op.target} of 16 pixels around")
    shape = builder.shape(x)
    across = _coordinate(builder, grid, 0, shape[3], around, corners)
    down = _coordinate(builder, grid, 1, shape[2], around, corners)
    if how == _NEAREST:
        pixel = _pixel(builder, op, *(builder.map(ROUND, each, hint="nearest") for each in (down, across)))
        builder.map("{0}", pixel, name=op.outputs[0], flops=0)
        return
    top, left = (builder.map("tl.floor({0})", each, hint="floor") for each in (down, across))
    bottom, right = (builder.map("{0} + 1.0", each, hint="next") for each in (top, left))
    terms = []
    for row, other_row in ((top, bottom), (bottom, top)):
        for column, other_column in ((left, right), (right, left)):
            size = "tl.abs({0} - {1}) * tl.abs({2} - {3})"
            weight = builder.map(size, down, other_row, across, other_column, hint="weight", flops=5)
            terms.append((_pixel(builder, op, row, column), weight))
    expression = " + ".join(f"{{{2 * at}}} * {{{2 * at + 1}}}" for at in range(4))
    builder.map(expression, *(each for term in terms for each in term), name=op.outputs[0], flops=7)


def _pixel(builder: Builder, op: Op, row: str, column: str) -> str:
    """The pixels of all channels at a place of whole numbers; 0 beyond the image."""
    places = [builder.map("{0}.to(tl.int64)", each, compute="int", hint="at") for each in (row, column)]
    looked = Looked((2, 3), 0, 4, aligned=True)
    return builder.index("pixel", looked, (tensor(op), *places), result_of(builder, op), fill=0.0)


def _coordinate(builder: Builder, grid: str, which: int, size: Size, around: int, corners: bool) -> str:
    """Where a grid says to look along a dimension, in pixels, as [batch, 1, rows, columns].

    corners: whether -1 and 1 are the middles of the outermost pixels, or their edges.
    """
    shape, ones = builder.shape(grid), (1,) * len(builder.graph.variants)
    given = builder.index("select", Selected(3, (which,) * len(ones)), (grid,), shape[:3])
    given = builder.view(given, (shape[0], ones, *shape[1:3]), hint="given")
    text = "({0} + 1.0) * 0.5 * ({1} - 1)" if corners else "(({0} + 1.0) * {1} - 1.0) * 0.5"
    count = size_operand(size)
    place = builder.map(text, given, count, hint="pixels", flops=4)
    if around == _ZEROS:  # far outside is outside too, but whole numbers end somewhere
        after = builder.map("tl.where({0} > -2.0, {0}, -2.0)", place, hint="after", flops=2)
        return builder.map("tl.where({0} < {1} + 1.0, {0}, {1} + 1.0)", after, count, hint="before", flops=2)
    if around == _MIRRORED:
        place = _mirrored(builder, place, count, corners)
    after = builder.map("tl.where({0} > 0.0, {0}, 0.0)", place, hint="after", flops=2)
    return builder.map("tl.where({0} < {1} - 1.0, {0}, {1} - 1.0)", after, count, hint="before", flops=2)


def _mirrored(builder: Builder, place: str, count: Operand, corners: bool) -> str:
    """A place mirrored at both borders as often as it takes: there and back again in twice the span."""
    low, span = ("0.0", "({1} - 1.0)") if corners else ("-0.5", "({1} * 1.0)")
    apart = builder.map(f"tl.abs({{0}} - {low})", place, hint="apart", flops=2)
    turns = builder.map(f"tl.floor({{0}} / {span})", apart, count, hint="turns", flops=3)
    left = builder.map(f"{{0}} - {{2}} * {span}", apart, count, turns, hint="left", flops=3)
    back = "({2} - 2.0 * tl.floor({2} * 0.5)) == 1.0"
    return builder.map(f"tl.where({back}, {span} - {{0}}, {{0}}) + {low}", left, count, turns, hint="mirrored", flops=7)


SAMPLING: dict[str, Expand] = {
    "aten.grid_sampler_2d.default": _grid_sampler,
    "aten.grid_sampler.default": _grid_sampler,
}
