"""convolution: plain, strided, dilated, grouped and transposed, as a matrix product whose right operand is never written.

The result's channels are the rows of the product, its positions (of all images) the columns, and what is summed over are
the operand's channels at each tap: filters times neighbourhoods. With elementwise work before (on the operand) and
after, and with reductions over the result's channels, where a tile has all of them.

`loop` says in which order the sum is taken: "taps" goes over the channels at one tap, then at the next (addresses are
worked out once a tap and column), "channels" over all taps of one channel, then of the next (for few channels).
A transposed convolution with a stride is several small ones: positions that are as far from a multiple of the stride
see the same taps, and only those (a program has positions of one such phase). With "persistent" there are so many
programs, each for several tiles. Where channels lie last a slice of them is read as it lies: with "taps" that is a slice at
one tap, with "channels" all channels of one tap and then of the next, many taps in a slice.
"""

from __future__ import annotations

import math
from dataclasses import replace

from mtmc.rewrite.body import Body
from mtmc.rewrite.folding import INDENT
from mtmc.rewrite.graph import Graph, Size, Varying, power_of_two_above
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.templates.channels_last import FORMATS, channels_last_values, permuting_lines
from mtmc.rewrite.templates.conv_kernel import INNER, ConvKernel, are_few, is_spread, product_sizes
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
    own_memory,
    size_lines,
)
from mtmc.rewrite.templates.writer import kernel_text

LEAST_ROWS = 64
"""Of the tensor cores' tiles: of fewer channels these are the columns, and positions the rows ("swapped")."""
FEWER_PLACES = 64
"""Positions of a tile of more than 128 channels, and of several small convolutions, whose sums are short. KernelBench 16 of
level 2 on an H200: 2.66 ms by 128 positions, 2.34 by 64, where the lab's estimate says the opposite."""
MOST_REDUCED = 256
"""Channels of a tile that has all of them."""


class Convolution:
    """One convolution that is a matrix product, with elementwise work around it."""

    name = "convolution"

    def matches(self, body: Body) -> bool:
        """Has such a convolution."""
        return any(node.kind == "window" and node.operation in CONVOLUTIONS for node in body.nodes)

    def default(self, graph: Graph, body: Body) -> dict[str, int | str]:
        """Tiles as high as there are channels (up to 64, or 128 where they lie last), 128 positions wide."""
        found = analyse(graph, body)
        rows, inner = product_sizes(graph, found)
        last = bool(found.window.last)
        reduces = any(node.kind == "reduce" for node in found.after)
        most = MOST_REDUCED if reduces else 128 if last else 64
        channels = max(16, min(most, power_of_two_above(rows[0])))
        few = are_few(graph, found, last)
        if few and not last:
            return self._of_few(graph, found, channels)
        return {
            "block_m": channels,
            "block_n": FEWER_PLACES if channels > 128 or (last and is_spread(found)) else 128,
            "block_k": 32 if few or inner[0] >= 32 else 16,
            "group_m": 8,
            "num_stages": 3 if last else 2,
            "num_warps": 8 if channels >= 128 else 4,
            "precision": "ieee" if graph.values[found.source].dtype == "float32" else "input",
            "loop": "channels" if few else "taps",
            "swapped": int(last and rows[0] < LEAST_ROWS),
        }

    def _of_few(self, graph: Graph, found: Windowed, channels: int) -> dict[str, int | str]:
        """For few channels, whose operand the cache holds: KernelBench 54 of level 1 on an H200 takes 0.71 ms so, 0.87 with
        half the positions and twice the sums at a time; 60 1.72 and 2.36. 50, of 96 filters, takes 2.72 and 1.74."""
        return {
            "block_m": channels,
            "block_n": 256 if product_sizes(graph, found)[0][0] <= 64 else 128,
            "block_k": 16,
            "group_m": 8,
            "num_stages": 3,
            "num_warps": 4 if channels <= 64 else 8,
            "precision": "ieee" if graph.values[found.source].dtype == "float32" else "input",
            "loop": "channels",
        }

    def emit(self, graph: Graph, body: Body, stage: Stage, name: str) -> Printed:
        """One kernel. Raises: NotCovered where there is more than elementwise work around the convolution, and reductions
        over channels behind it."""
        return _Assembler(graph, body, stage, name).emit()


class _Assembler:
    """Prints one convolution: kernel and launcher."""

    def __init__(self, graph: Graph, body: Body, stage: Stage, name: str) -> None:
        self.graph, self.body, self.stage, self.name = graph, body, stage, name
        self.scope, self.spare = scope_of(graph, body), dict[str, Varying]()
        self.found = analyse(graph, body)
        self.groups = self._number(self.found.window.groups, "n_groups")
        self.kernel = ConvKernel(graph, body, stage, name, self.groups)
        self.kernel.write()

    def _number(self, size: Size, label: str) -> str:
        number = constant(size)
        return str(number) if number is not None else size_expression(size, label, self.scope, self.spare)

    def emit(self) -> Printed:
        """The kernel and its launcher."""
        body, stage, kernel = self.body, self.stage, self.kernel
        channels, rows, _ = kernel.expressions()
        last = channels_last_values(self.graph, body) if kernel.last else ()
        lines = [f"{INDENT}# given rounded to TF32: {', '.join(kernel.rounded)}"] if kernel.rounded else []
        lines += permuting_lines(self.graph, body, kernel.writer) if last else []
        lines += contiguous_lines(kernel.writer) + size_lines(self.found, self.scope, self.spare)
        memory = FORMATS[len(self.found.shape)] if last else ""
        lead = (f"{self.found.source}.shape[0]", channels)
        lines += allocations(self.graph, self.found, own_memory(body), lead, memory)
        order = self._filters()
        instead = ((kernel.weight, "filters"),) if order else ()
        if order:
            lines.append(f"{INDENT}filters = {kernel.weight}.permute({order}).contiguous()  # by tap, then by channel")
        lines.append(f"{INDENT}positions = {self._positions()}")
        constants = self._constants()
        doc = f"{', '.join(stage.ops)}: BLOCK_M channels of BLOCK_N positions a program."
        text = kernel_text(kernel.writer, body.stores, (), [key for key, _ in constants], doc)
        tiles = f"triton.cdiv({rows}, {stage.number('block_m')}) * triton.cdiv(positions, {stage.number('block_n')})"
        if kernel.persistent:
            tiles = f"min({kernel.persistent}, {tiles})"
        warps, stages = stage.number("num_warps"), stage.number("num_stages")
        tiles += f" * {phases}" if (phases := self._phases()) > 1 else ""
        grid, name = (tiles, *(() if self.groups == "1" else (self.groups,))), f"{self.name}_kernel"
        launch = Launch(name, kernel.writer, body.stores, (), grid, constants, warps, stages, instead)
        lines += launch_lines(launch, scope_with_results(self.graph, body), self.spare)
        made = printed(body, self.name, [text], lines, self.spare, last)
        return replace(made, filters=(kernel.weight,) if kernel.rows_of_filters else (), rounded=kernel.rounded)

    def _filters(self) -> str:
        """The order of the weight's dimensions in which the kernel reads the filters; "" for their own."""
        kernel, taps = self.kernel, range(2, len(self.found.axes) + 2)
        order: tuple[int, ...] = (0, 1, *taps)
        if kernel.rows_of_filters:
            order = (0, *taps, 1)
        elif kernel.loop == "taps" and not kernel.single_tap:
            order = (*taps, 1, 0) if kernel.turned_filters else (*taps, 0, 1)
        return "" if order == (0, 1, *taps) else ", ".join(map(str, order))

    def _constants(self) -> tuple[tuple[str, str], ...]:
        """Compile-time arguments."""
        wide = f"max({self.found.source}.numel(), {self.body.stores[0]}.numel()) >= 2**31"
        axes = () if self.kernel.single_tap else self.found.axes
        extents = [(f"KERNEL_{axis.upper()}", self._extent(at)) for at, axis in enumerate(axes)]
        inner = [(INNER, self.kernel.expressions()[2])] if self.kernel.last else []
        blocks = [(key.upper(), str(self.stage.number(key))) for key in ("block_m", "block_n", "block_k", "group_m")]
        return (("WIDE", wide), *inner, *extents, *blocks)

    def _extent(self, axis: int) -> str:
        number = constant(self.found.window.size[axis])
        return str(number) if number is not None else f"{self.kernel.weight}.shape[{axis + 2}]"

    def _positions(self) -> str:
        """How many positions the programs of one phase share."""
        sizes = [f"{self.found.source}.shape[0]"]
        for at, axis in enumerate(self.found.axes):
            step = constant(self.found.window.stride[at])
            cut = self.kernel.phased and step != 1
            sizes.append(f"triton.cdiv(out_{axis}, {step})" if cut else f"out_{axis}")
        return " * ".join(sizes)

    def _phases(self) -> int:
        """How many small convolutions a transposed one is."""
        strides = self.found.window.stride if self.kernel.phased else ()
        return math.prod(constant(stride) or 1 for stride in strides)
