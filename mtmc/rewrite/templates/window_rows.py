"""window_rows: writes the kernel of a pool or a depthwise convolution whose threads make several rows, see `windows`.

Windows that lie one above the other overlap: with stride 1 and a height of 3, each row of the operand is read for three rows
of the result. A thread that makes `rows` of them, one above the other, reads what they have in common once, and works out
once where they are: (rows - 1) * stride + (height - 1) * dilation + 1 reads a column of the window instead of rows * height.
"""

from __future__ import annotations

from mtmc.rewrite.body import Body, NotCovered
from mtmc.rewrite.graph import Graph, Size, product
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.space import Group
from mtmc.rewrite.templates.pointwise import Variables, write_maps
from mtmc.rewrite.templates.positions import Windowed, bracketed, constant, factor, times
from mtmc.rewrite.templates.window_kernel import WindowKernel

MOST_TALL = 16
"""Taps of a window one above the other: each is written out for each row."""


def rows_of_windows(stage: Stage) -> int:
    """Rows that a thread of a kernel of windows makes."""
    return int(dict(stage.schedule).get("rows", 1))


def why_apart(found: Windowed, rows: int) -> str:
    """Why threads cannot make several rows, or would read as much; "" where they can."""
    window = found.window
    if window.adaptive or len(found.axes) < 2:
        return "windows of different sizes, or along a line"
    tall, step, spread = (constant(size[-2]) for size in (window.size, window.stride, window.dilation))
    if tall is None or step is None or spread is None or tall > MOST_TALL:
        return "windows whose height is not known"
    return "" if _reads(found, rows) < rows * tall else "windows that do not overlap"


def _reads(found: Windowed, rows: int) -> int:
    """Reads of a thread in each column of its windows, at the full shapes."""
    tall, step, spread = (size[-2][0] for size in (found.window.size, found.window.stride, found.window.dilation))
    return (rows - 1) * step + (tall - 1) * spread + 1


def shares_rows(found: Windowed, rows: int) -> bool:
    """Whether a thread that makes several rows reads at most two thirds of what threads that make one each do."""
    if why_apart(found, rows):
        return False
    return 3 * _reads(found, rows) <= 2 * rows * found.window.size[-2][0] and found.outputs[-2][0] >= rows


class WindowRows(WindowKernel):
    """The kernel in the making. A lane is a column of `rows` elements of the result; so many rows of an image are a band."""

    def __init__(self, graph: Graph, body: Body, found: Windowed, name: str, stage: Stage) -> None:
        super().__init__(graph, body, found, name, stage)
        self.rows = rows_of_windows(stage)
        if why := why_apart(found, self.rows):
            raise NotCovered(why)
        self.high = len(found.axes) - 2
        self.letter = found.axes[self.high]
        self.step, self.spread = (
            constant(size[self.high]) or 0 for size in (found.window.stride, found.window.dilation)
        )
        self.bands: Size = tuple(-(-size // self.rows) for size in found.outputs[self.high])
        self.extents = tuple(
            f"KERNEL_{letter.upper()}" if letter == self.letter else extent
            for letter, extent in zip(found.axes, self.extents, strict=True)
        )

    def write(self) -> None:
        """Write all of it."""
        writer, found = self.writer, self.found
        self._numbered("n_lanes")
        self._starts()
        name, shape = found.node.name, "ALONG, ACROSS" if self.across else "BLOCK"
        writer.line(f"{name} = (tl.full([{shape}], {self._neutral()}, tl.float32),) * ROWS")
        inside = "place_mask" if self.across else "mask"
        for axis in range(len(found.axes)):
            if axis != self.high:
                inside = self._tap(axis, inside)
        self._add_column(inside)
        writer.level = 1
        self._store_rows()

    @property
    def number(self) -> str:
        return "lane"

    def outsides(self) -> list[str]:
        bands = self.writer.argument("bands", "bands", self.bands)
        return [bands if axis == self.high else outside for axis, outside in enumerate(super().outsides())]

    def _outside_sizes(self) -> tuple[Size, ...]:
        return tuple(self.bands if axis == self.high else size for axis, size in enumerate(self.found.outputs))

    def count(self) -> str:
        return f"{super().count()} // out_{self.letter} * bands"

    def _place(self, axis: int, index: str) -> None:
        place = f"at_{self.found.axes[axis]}"
        self.writer.line(f"{place} = {f'{index} * ROWS' if axis == self.high else index}")
        self._start(axis, place)

    def _channel(self) -> None:
        if not self.last and not self.planes:
            self.writer.line("own_plane = planes")
        super()._channel()

    def _add_column(self, inside: str) -> None:
        """Read a column of the operand from the top, and add each number to all windows that have it."""
        writer, found, letter, name = self.writer, self.found, self.letter, self.found.node.name
        weighted = found.node.operation == "weighted sum"
        if weighted:
            writer.line("weights = ()")
            writer.line(f"for tap_{letter} in tl.static_range({self.extents[self.high]}):")
            writer.line(f"    weights = weights + ({self._weight()},)")
        reach = f" + {times(f'({self.extents[self.high]} - 1)', str(self.spread))}"
        writer.line(f"for row in tl.static_range({times('(ROWS - 1)', str(self.step))}{reach} + 1):")
        writer.level += 1
        writer.line(f"{letter} = from_{letter} + row")
        low = f"({letter} >= 0) & " if any(found.window.padding[self.high]) else ""
        writer.line(f"inside_{letter} = {inside} & {low}({letter} < {self.names[self.high][0]})")
        value = self._read(f"inside_{letter}")
        above = times(f"tap_{letter}", str(self.spread))
        at = f"row - {above}" if self.step == 1 else f"(row - {above}) // {self.step}"
        whole = "" if self.step == 1 else f" and (row - {above}) % {self.step} == 0"
        writer.line(f"for tap_{letter} in tl.static_range({self.extents[self.high]}):")
        writer.line(f"    if row >= {above} and {at} < ROWS{whole}:  # the window that has it so far down")
        added = self._added(f"{name}[{at}]", value, f"weights[tap_{letter}]" if weighted else "", f"inside_{letter}")
        writer.line(f"        {name} = {name}[: {at}] + ({added},) + {name}[{at} + 1 :]")

    def _store_rows(self) -> None:
        """Do for each row what comes after, and store it."""
        writer, found, letter = self.writer, self.found, self.letter
        writer.line("for row in tl.static_range(ROWS):")
        writer.level += 1
        name, outside = f"{found.node.name}_row", [outside for _, outside in self.names]
        writer.line(f"{letter} = at_{letter} + row")
        place = letter if self.high == 0 else f"at_{found.axes[0]} * {outside[1]} + {letter}"
        place = f"{bracketed(place)} * {outside[-1]} + at_{found.axes[-1]}"
        inside = f"({letter} < {outside[self.high]})"
        space = self._row_space(place, inside)
        writer.line(f"{name} = {found.node.name}[row]")
        if found.node.operation == "mean":
            writer.line(f"{name} = {name} / {self._count()}")
        variables: Variables = {found.node.name: name}
        write_maps(writer, [node.name for node in found.after], space, variables)
        for value in self.body.stores:
            writer.store_at(value, variables[value], space, "row_inside", "offs")

    def _row_space(self, place: str, inside: str) -> tuple[Group, ...]:
        """Which elements of the result are a row of the lanes. place: where in its image each is."""
        writer, found = self.writer, self.found
        rank, pixels = len(found.axes), factor([outside for _, outside in self.names])
        if self.across:
            writer.line(f"places = at_image * {pixels} + {place}")
            writer.line(f"places_inside = place_mask & {inside}")
            writer.line("row_inside = places_inside & channel_mask")
            writer.line(f"offs = places * {self._channels()} + at_channel")
            lead = product((found.shape[0], *found.outputs))
            return (Group("places", lead, "places_inside"), Group("at_channel", found.shape[1], "channel_mask"))
        writer.line(f"row_inside = mask & {inside}")
        if self.planes:
            writer.line(f"pixel = {place}")
            writer.line(f"offs = plane * {pixels} + pixel")
            outer, inner = product(found.node.shape[:-rank]), product(found.outputs)
            return (Group("plane", outer, ""), Group("pixel", inner, "row_inside"))
        offset = f"{'at_image' if self.last else 'own_plane'} * {pixels} + {place}"
        writer.line(f"offs = ({offset}) * {self._channels()} + at_channel" if self.last else f"offs = {offset}")
        return (Group("offs", product(found.node.shape), "row_inside"),)

    def _begin(self, axis: str) -> str:
        return f"(from_{axis} + {times('row', str(self.step))})" if axis == self.letter else super()._begin(axis)
