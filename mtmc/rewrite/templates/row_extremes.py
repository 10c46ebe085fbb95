"""row_extremes: what reductions start from and how parts of them become one; the largest, the smallest and their places.

A NaN is the largest and the smallest of all, as torch has it: Triton's own reductions pass over it.
"""

from __future__ import annotations

from mtmc.rewrite.body import Body, Node
from mtmc.rewrite.templates.writer import Writer

_LOWEST, _HIGHEST = 'float("-inf")', 'float("inf")'
IDENTITY = {"sum": "0.0", "max": _LOWEST, "amax": _LOWEST, "amin": _HIGHEST, "deviations": "0.0", "prod": "1.0"}
"""What a reduction starts from, and what stands for elements outside the bounds."""
_IDENTITY_OF_WHOLE = {"sum": "0", "amax": "-9223372036854775808", "amin": "9223372036854775807", "prod": "1"}

_COMBINE = {
    "sum": "{0} + {1}",
    "max": "tl.maximum({0}, {1})",
    "amax": "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "amin": "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "prod": "{0} * {1}",
}
"""How two parts of a reduction become one. A NaN is the largest and the smallest of all, but to "max"."""
EACH_ROW, ONE_ROW = ", axis=1, keep_dims=True", ""
"""Along what values [rows, count] are reduced, as arguments; those of one row to a scalar. Of a [1, 1] that columns use,
Triton 3.6 makes all columns in each thread, and moves them through shared memory: 52 ms in place of 3.8."""
PLACES = {"argmax": "amax", "argmin": "amin"}
"""What stands at the place that is looked for."""


def combined(operation: str, one: str, other: str) -> str:
    """Two parts of a reduction as one, as text. operation: of a reduction, also of one that finds a place."""
    return _COMBINE[PLACES.get(operation, operation)].format(one, other)


def accumulator(body: Body, node: Node) -> tuple[str, str]:
    """What a reduction starts from, and Triton's name of the dtype that it computes in."""
    operand, operation = body.node(node.reads()[0]), PLACES.get(node.operation, node.operation)
    if operand is not None and operand.compute == "int":
        return _IDENTITY_OF_WHOLE[operation], "tl.int64"
    return IDENTITY[operation], "tl.float32"


def reduced(writer: Writer, operation: str, values: str, name: str, floats: bool, along: str = EACH_ROW) -> None:
    """Values as one a row: `name`. operation: "sum", "max", "amax" or "amin". along: see `EACH_ROW`.

    Of the last two a NaN is what torch gives; Triton's own reductions pass over it.
    """
    found = f"tl.{operation.removeprefix('a')}({{}}{along})"
    if not floats or operation in ("sum", "max"):
        writer.line(f"{name} = {found.format(values)}")
        return
    if not values.isidentifier():
        writer.line(f"{name}_all = {values}")
        values = f"{name}_all"
    writer.line(f"{name}_nan = tl.max(({values} != {values}).to(tl.int32){along})")
    writer.line(f'{name} = tl.where({name}_nan > 0, float("nan"), {found.format(values)})')


def first_place(writer: Writer, node: Node, values: str, places: str, beyond: str) -> None:
    """The place of the largest or smallest of some values, which is left in `{name}_top`.

    values, places: variables [rows, parts]. beyond: larger than any place.
    """
    name, floats = node.name, accumulator(writer.body, node)[1] == "tl.float32"
    reduced(writer, PLACES[node.operation], values, f"{name}_top", floats)
    writer.comment("the first of equals")
    best = f"{values} == {name}_top"
    best = f"({best}) | ({values} != {values})" if floats else best
    writer.line(f"{name} = tl.min(tl.where({best}, {places}, {beyond}), axis=1, keep_dims=True)")
