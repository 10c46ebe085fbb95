"""windows: pooling of any kind and depthwise convolution: a few neighbours of each position, with elementwise work around.

A program makes `block` elements of the result, whatever its shape, and goes over the taps of their windows one by one.
With "rows" > 1 a thread makes so many, one above the other, see `window_rows`.
With "loop" = "planes" they are of one plane (an image's channel), so that what belongs to the channel is read once.
Where operand and result lie channels last, neighbours among the elements are channels of one place: with "across" a program
has a tile of so many channels of some places, and works out once for a place where its windows are.
"""

from __future__ import annotations

from mtmc.rewrite.body import Body, NotCovered
from mtmc.rewrite.folding import INDENT
from mtmc.rewrite.graph import Graph, Varying, power_of_two_above, product
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.sizes import Scope
from mtmc.rewrite.space import bare
from mtmc.rewrite.templates.channels_last import (
    FORMATS,
    channels_last_values,
    is_channels_last,
    permuting_lines,
)
from mtmc.rewrite.templates.launcher import (
    Launch,
    Printed,
    contiguous_lines,
    launch_lines,
    printed,
    scope_of,
    scope_with_results,
    size_expression,
)
from mtmc.rewrite.templates.positions import (
    CONVOLUTIONS,
    Windowed,
    allocations,
    analyse,
    constant,
    factor,
    inside_sizes,
    own_memory,
    size_lines,
)
from mtmc.rewrite.templates.window_kernel import WindowKernel
from mtmc.rewrite.templates.window_rows import WindowRows, rows_of_windows, shares_rows
from mtmc.rewrite.templates.writer import kernel_text

TILE = 1024
"""Most elements of a tile of channels and places."""
LEAST_TILE, PROGRAMS = 128, 1024
"""Fewest elements of it, and programs from which on it is not made smaller."""
ACROSS = 64
"""Most channels of it; 32 are a line of memory."""

ROWS, BUSY = (4, 8), 2**20
"""Rows that a thread makes where its windows share enough of what it reads, going from plane to plane or in one plane, and
elements that are enough for all threads. Of a maximum 4 were the fastest within 2%, of depthwise convolutions of 3 x 3 and
3 x 7 8 rows, of 3 x 1 any (results/schedules_h200.md)."""
LARGE_PLANE = 1024
"""Positions of a plane, of which the last program's share may be mostly empty."""


class Windows:
    """Pooling and depthwise convolution."""

    name = "windows"

    def matches(self, body: Body) -> bool:
        """Has windows that are no matrix product, and elementwise work alone around them."""
        kinds = {node.kind for node in body.nodes}
        return kinds <= {"window", "map"} and any(
            node.kind == "window" and node.operation not in CONVOLUTIONS for node in body.nodes
        )

    def default(self, graph: Graph, body: Body) -> dict[str, int | str]:
        """One element a thread, two along lines: neighbours read neighbours at every tap. Plane by plane where weights
        belong to planes, and tiles where channels lie last.

        A maximum of 8 along lines, H200: 2.39 ms by two elements a thread, 3.83 by one; in volumes of stride 2 1.38 by one.
        """
        found = analyse(graph, body)
        if found.window.last:
            block = _tile(product(found.node.shape)[0])
            return {"block": block, "num_warps": 4, "loop": "flat", "across": _across(found.shape[-1][0])}
        large = product(found.outputs)[0] >= LARGE_PLANE and found.node.operation == "weighted sum"
        high = ROWS[large]
        enough = product(found.node.shape)[0] >= high * BUSY
        rows = {"rows": high} if enough and shares_rows(found, high) else {}
        block = 256 if (rows and large) or len(found.axes) == 1 else 128
        return {"block": block, "num_warps": 4, "loop": "planes" if large else "flat", **rows}

    def emit(self, graph: Graph, body: Body, stage: Stage, name: str) -> Printed:
        """One kernel. Raises: NotCovered where there is more than elementwise work around the windows."""
        found = analyse(graph, body)
        if is_channels_last(stage) and len(found.shape) != len(found.axes) + 2:
            raise NotCovered("windows over other dimensions than those behind the channels")
        kernel = (WindowRows if rows_of_windows(stage) > 1 else WindowKernel)(graph, body, found, name, stage)
        kernel.write()
        return _launcher(graph, body, stage, name, kernel)


def _tile(elements: int) -> int:
    """Elements of a tile: as many as leave enough programs."""
    block = TILE
    while block > LEAST_TILE and elements < block * PROGRAMS:
        block //= 2
    return block


def _across(channels: int) -> int:
    """Channels of a tile: so many that none are left over, if that is a line of memory."""
    whole = channels & -channels
    return min(ACROSS, whole if whole >= ACROSS // 2 else power_of_two_above(channels))


def _launcher(graph: Graph, body: Body, stage: Stage, name: str, kernel: WindowKernel) -> Printed:
    found, spare = kernel.found, dict[str, Varying]()
    scope = scope_of(graph, body)
    last = channels_last_values(graph, body) if kernel.last else ()
    lines = permuting_lines(graph, body, kernel.writer) if last else []
    lines += contiguous_lines(kernel.writer) + size_lines(found, scope, spare)
    lead = [f"{found.source}.shape[{axis}]" for axis in range(len(found.shape) - len(found.axes))]
    if found.node.operation == "weighted sum":
        lead[1] = f"{found.node.reads()[1]}.shape[0]"
    lines += allocations(graph, found, own_memory(body), lead, FORMATS[len(found.shape)] if last else "")
    taps = [_taps(found, axis, scope, spare) for axis in range(len(found.axes))]
    fixed = [(name, text) for name, text in zip(kernel.extents, taps, strict=True) if name.isupper()]
    rows, store = rows_of_windows(stage), body.stores[0]
    if rows > 1:
        lines.append(f"{INDENT}bands = triton.cdiv(out_{found.axes[-2]}, {rows})")
        fixed.append(("ROWS", str(rows)))
    lines += [f"{INDENT}{name} = {text}" for name, text in zip(kernel.extents, taps, strict=True) if name.islower()]
    tile = (("ALONG", str(kernel.along)), ("ACROSS", str(kernel.across)))
    blocks = tile if kernel.across else (("BLOCK", str(stage.number("block"))),)
    text = kernel_text(
        kernel.writer,
        body.stores,
        (),
        ("WIDE", *(name for name, _ in fixed), *(name for name, _ in blocks)),
        f"{', '.join(stage.ops)}: {' x '.join(name for name, _ in blocks)} elements a program.",
    )
    wide = f"max({found.source}.numel(), {store}.numel()) >= 2**31"
    block = stage.number("block")
    grid = f"triton.cdiv({kernel.count()}, {block})"
    if kernel.planes:
        pixels = factor([f"out_{axis}" for axis in found.axes])
        grid = f"{store}.numel() // {pixels} * triton.cdiv({bare(factor(kernel.outsides()))}, {block})"
    if kernel.across:
        places = f"triton.cdiv({kernel.count()}, {kernel.along})"
        grid = f"{places} * triton.cdiv({found.source}.shape[1], {kernel.across})"
    launch = Launch(
        f"{name}_kernel",
        kernel.writer,
        body.stores,
        (),
        (grid,),
        (("WIDE", wide), *fixed, *blocks),
        stage.number("num_warps"),
    )
    lines += launch_lines(launch, scope_with_results(graph, body), spare)
    return printed(body, name, [text], lines, spare, last)


def _taps(found: Windowed, axis: int, scope: Scope, spare: dict[str, Varying]) -> str:
    """Number of taps of a window along a dimension."""
    letter = found.axes[axis]
    if found.window.adaptive:
        return f"triton.cdiv({inside_sizes(found)[axis]}, out_{letter}) + 1"
    number = constant(found.window.size[axis])
    return (
        str(number)
        if number is not None
        else size_expression(found.window.size[axis], f"kernel_{letter}", scope, spare)
    )
