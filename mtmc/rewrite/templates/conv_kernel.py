"""conv_kernel: writes the kernel of a convolution, see `convolution`."""

from __future__ import annotations

from mtmc.rewrite.body import Body, NotCovered
from mtmc.rewrite.graph import Graph, Size, is_one
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.templates.awaited_sums import await_sums
from mtmc.rewrite.templates.channels_last import is_channels_last
from mtmc.rewrite.templates.conv_operand import begin_columns, load_operand
from mtmc.rewrite.templates.conv_results import write_results
from mtmc.rewrite.templates.conv_rounding import is_rounded, rounded_in_memory
from mtmc.rewrite.templates.permuted_body import in_memory_order
from mtmc.rewrite.templates.phase import Phase
from mtmc.rewrite.templates.positions import (
    Windowed,
    analyse,
    bracketed,
    constant,
    digits,
    factor,
    inside_sizes,
    shifted,
    text_of,
    times,
)
from mtmc.rewrite.templates.writer import Writer

INNER = "INNER"
"""The number of channels that are summed, where they lie last: known when the kernel is compiled, which then knows that
several are read at once."""


FEW_CHANNELS = 16
"""Below this, a slice of the channels at one tap would be mostly padding."""
WHOLE_SLICE = 32
"""Channels that lie last are read by so many at a time, where these end with them."""


def product_sizes(graph: Graph, found: Windowed) -> tuple[Size, Size]:
    """Rows of the product (the result's channels of one group) and what is summed at each tap (the operand's)."""
    weight, groups = graph.values[found.node.reads()[1]].shape, found.window.groups
    shared = tuple(size // group for size, group in zip(weight[0], groups, strict=True))
    return (weight[1], shared) if found.node.operation == "transposed convolution" else (shared, weight[1])


def are_few(graph: Graph, found: Windowed, last: bool) -> bool:
    """Whether the sum of a convolution best goes over all taps of one channel, then of the next; or, where channels lie
    last, over all channels of one tap and on to the next tap in the same slice."""
    inner = product_sizes(graph, found)[1][0]
    few = inner % WHOLE_SLICE != 0 if last else inner < FEW_CHANNELS
    return few and found.node.operation == "convolution" and not all(map(is_one, found.window.size))


def is_spread(found: Windowed) -> bool:
    """Whether a convolution spreads its operand out: a transposed one with a stride, which is several small ones."""
    return found.node.operation == "transposed convolution" and not all(map(is_one, found.window.stride))


class ConvKernel:
    """The kernel in the making."""

    def __init__(self, graph: Graph, body: Body, stage: Stage, name: str, groups: str) -> None:
        """groups: expression of the number of groups in the launcher."""
        self.graph, self.body, self.stage, self.groups = graph, body, stage, groups
        self.found = analyse(graph, body)
        self.window, self.axes = self.found.window, self.found.axes
        self.weight = self.found.node.reads()[1]
        self.rounded = rounded_in_memory(body, self.found, stage)
        self.transposed = self.found.node.operation == "transposed convolution"
        self.loop = str(stage.setting("loop"))
        steps = zip(self.window.stride, self.window.dilation, strict=True)
        self.phases = [Phase.of(constant(stride), constant(dilation)) for stride, dilation in steps]
        self.phased = is_spread(self.found) and None not in self.phases
        self.single_tap = all(map(is_one, self.window.size)) and not is_spread(self.found)
        self.grouped = groups != "1"
        self.swapped = bool(dict(stage.schedule).get("swapped", 0))
        self.persistent = int(dict(stage.schedule).get("persistent", 0))
        self.last = is_channels_last(stage)
        self.reduces = any(node.kind == "reduce" for node in self.found.after)
        self.writer = Writer(*in_memory_order(graph, body, stage), f"{name}_kernel")
        self.stride, self.padding, self.dilation = (
            [text_of(self.writer, size) for size in sizes]
            for sizes in (self.window.stride, self.window.padding, self.window.dilation)
        )
        self._check()

    def _check(self) -> None:
        source, weight = self.graph.values[self.found.source], self.graph.values[self.weight]
        if source.dtype != weight.dtype:
            raise NotCovered(f"a convolution of {source.dtype} by {weight.dtype}")
        if self.persistent and (self.grouped or self.phased):
            raise NotCovered("a program for many tiles of several small convolutions")
        if self.reduces and (
            self.grouped or self.stage.number("block_m") < product_sizes(self.graph, self.found)[0][0]
        ):
            raise NotCovered("channels that are reduced, in several tiles")
        if self.grouped and self.last:
            raise NotCovered("groups of channels that lie last")
        if self.loop == "channels" and (self.transposed or self.single_tap):
            raise NotCovered("all taps of a channel at a time, where they are not neighbours in memory or only one")
        if not weight.contiguous:
            raise NotCovered("filters with gaps in memory")

    def expressions(self) -> tuple[str, str, str]:
        """In the launcher: all channels of the result, and rows and inner size of the product."""
        weight = self.weight
        shared = f"{weight}.shape[0] // {self.groups}" if self.grouped else f"{weight}.shape[0]"
        if not self.transposed:
            return f"{weight}.shape[0]", shared, f"{weight}.shape[1]"
        all_channels = f"{weight}.shape[1] * {self.groups}" if self.grouped else f"{weight}.shape[1]"
        return all_channels, f"{weight}.shape[1]", shared

    def write(self) -> None:
        """Write all of it."""
        writer, source = self.writer, self.found.source
        channels, rows, inner = self.expressions()
        self.n_batch = writer.argument("n_batch", f"{source}.shape[0]", self.found.shape[0])
        self.n_rows = writer.argument("n_rows", rows, ())
        self.n_inner = INNER if self.last else writer.argument("n_inner", inner, ())
        self.n_channels, self.n_sources = self.n_rows, self.n_inner
        if self.grouped:
            self.n_channels = writer.argument("n_channels", channels, ())
            self.n_sources = writer.argument("n_sources", f"{source}.shape[1]", ())
        self.inside = [
            writer.argument(f"in_{axis}", text, size)
            for axis, text, size in zip(self.axes, inside_sizes(self.found), self.found.inputs, strict=True)
        ]
        self.outside = [
            writer.argument(f"out_{axis}", f"out_{axis}", size)
            for axis, size in zip(self.axes, self.found.outputs, strict=True)
        ]
        self._tile()
        self._columns()
        self._sum()
        write_results(self)

    # -- rows and columns ----------------------------------------------------------------------------------------
    def _has_phase(self, at: int) -> bool:
        return self.phased and not is_one(self.window.stride[at])

    def _phase(self, at: int) -> Phase:
        phase = self.phases[at]
        assert phase is not None
        return phase

    def _tile(self) -> None:
        """Which rows and columns a program has."""
        writer, self.across = self.writer, list(self.outside)
        if self.phased:
            writer.comment("positions with the same remainder by the stride see the same taps: a phase")
            cut = [at for at in range(len(self.axes)) if self._has_phase(at)]
            phases = factor([self.stride[at] for at in cut])
            writer.line(f"phase = tl.program_id(0) % {phases}  # those of the same places are at work at the same time")
            places = digits("phase", [self.stride[at] for at in cut])
            for at, place in zip(cut, places, strict=True):
                place_name = f"phase_{self.axes[at]}"
                writer.line(f"{place_name} = {place}")
                self.across[at] = f"across_{self.axes[at]}"
                writer.line(f"{self.across[at]} = tl.cdiv({self.outside[at]} - {place_name}, {self.stride[at]})")
        writer.line(f"n_cols = {' * '.join([self.n_batch, *self.across])}")
        if self.persistent:
            writer.line(f"tiles = tl.cdiv(n_cols, BLOCK_N) * tl.cdiv({self.n_rows}, BLOCK_M)")
            writer.line("for program in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):")
            writer.level += 1
        else:
            writer.line("program = tl.program_id(0)" + (f" // {phases}" if self.phased else ""))
        writer.comment("GROUP_M blocks of positions share the same filters while those are in the cache")
        writer.line("blocks_n = tl.cdiv(n_cols, BLOCK_N)")
        writer.line(f"blocks_m = tl.cdiv({self.n_rows}, BLOCK_M)")
        writer.line("group = program // (GROUP_M * blocks_m)")
        left = "blocks_n - group * GROUP_M"
        if self.phased:  # later phases have fewer positions than there are programs for
            left = f"tl.maximum({left}, 1)"
        writer.line(f"group_size = tl.minimum({left}, GROUP_M)")
        writer.line("member = program % (GROUP_M * blocks_m)")
        writer.line("block_n = group * GROUP_M + member % group_size")
        writer.line("block_m = member // group_size")
        writer.line("rows = block_m * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]")
        writer.line("cols = block_n * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]")
        writer.line(f"row_mask = rows < {self.n_rows}")
        writer.line("col_mask = cols < n_cols")
        self.channels = "rows"
        if self.grouped:
            self.channels = "channels"
            writer.line(f"channels = tl.program_id(1) * {self.n_rows} + rows")

    def _columns(self) -> None:
        """The image and position of each column, and where its window begins."""
        writer = self.writer
        batch, *places = digits("cols", ["", *self.across])
        for at, (axis, place) in enumerate(zip(self.axes, places, strict=True)):
            stride, padding = self.stride[at], self.padding[at]
            if self._has_phase(at):
                writer.line(f"at_{axis} = {place} * {stride} + phase_{axis}")
                self._first_tap(at)
            elif self.transposed:
                if self.phased:
                    writer.line(f"at_{axis} = {place}")
                    place = f"at_{axis}"
                writer.line(f"from_{axis} = {shifted(place, padding, '+')}")
            else:
                place = f"({place})" if stride != "1" else place
                writer.line(f"from_{axis} = {shifted(times(place, stride), padding)}")
        writer.line(f"batch = {batch}")
        writer.widen("batch")

    def _first_tap(self, at: int) -> None:
        """The first tap that a phase sees along a dimension, how many there are, and where the first one reads."""
        writer, axis, stride, padding = self.writer, self.axes[at], self.stride[at], self.padding[at]
        phase = self._phase(at)
        begin = f"({shifted(f'phase_{axis}', padding, '+')})" if padding != "0" else f"phase_{axis}"
        first, away, some = f"{begin} % {stride}", f"first_{axis}", ""
        if (phase.shared, phase.reach) != (1, 1):
            writer.line(f"remainder_{axis} = {first}")
            first, away = f"remainder_{axis}", f"first_{axis} * {self.dilation[at]}"
            if phase.shared > 1:
                first, some = f"{first} // {phase.shared}", f"remainder_{axis} % {phase.shared} == 0"
            first = f"{first} * {phase.inverse} % {phase.step}" if phase.step > 1 else "0"
        writer.line(f"first_{axis} = {first}")
        count = f"tl.cdiv(KERNEL_{axis.upper()} - first_{axis}, {phase.step})"
        writer.line(f"taps_{axis} = " + (f"tl.where({some}, {count}, 0)" if some else count))
        writer.line(f"from_{axis} = ({shifted(f'at_{axis}', padding, '+')} - {away}) // {stride}")

    # -- the sum -------------------------------------------------------------------------------------------------
    def _sum(self) -> None:
        writer, name = self.writer, self.found.node.name
        if not self.rows_of_filters:
            writer.contiguous.add(self.weight)
        shape = "[BLOCK_N, BLOCK_M]" if self.swapped else "[BLOCK_M, BLOCK_N]"
        writer.line(f"{name} = tl.zeros({shape}, tl.float32)")
        inside = self._channels_walk() if self.loop == "channels" else self._taps_walk()
        writer.line("a = tl.load(filters, mask=row_mask & k_mask[None, :], other=0.0)")
        load_operand(self)
        way = str(self.stage.setting("precision"))
        if is_rounded(self.stage):
            way = "tf32"
            for tile, value in (("a", self.weight), ("b", self.found.source)):
                if value not in self.rounded:
                    writer.round(tile)
        exact = f', input_precision="{way}"' if way != "input" else ""
        operands = "tl.trans(b), tl.trans(a)" if self.swapped else "a, b"
        writer.line(f"{name} = tl.dot({operands}, {name}{exact})")
        if self._left_is_made():
            await_sums(writer, [name], inside, self.stage)
        writer.level -= 1
        if self.swapped and not self.reduces:
            writer.line(f"{name} = tl.trans({name})")

    def _taps_walk(self) -> str:
        """One step a slice of channels at a tap; the taps stand outermost in the filters. Returns what holds in the loop."""
        writer, pointer, outer = self.writer, self.writer.pointer(self.weight), ""
        if self.single_tap:
            inside = f"start < {self.n_inner}"
            writer.line(f"for start in range(0, {self.n_inner}, BLOCK_K):")
            writer.level += 1
            writer.line("ks = start + tl.arange(0, BLOCK_K)")
        else:
            counts = [
                f"taps_{axis}" if self._has_phase(at) else f"KERNEL_{axis.upper()}" for at, axis in enumerate(self.axes)
            ]
            writer.line(f"blocks_k = tl.cdiv({self.n_inner}, BLOCK_K)")
            steps = f"{' * '.join(counts)} * blocks_k"
            inside = f"step < {steps}"
            writer.line(f"for step in range(0, {steps}):")
            writer.level += 1
            writer.line("ks = step % blocks_k * BLOCK_K + tl.arange(0, BLOCK_K)")
            writer.line("tap = step // blocks_k")
            self._taps("tap", counts)
            outer = self._tap_number()
        writer.line(f"k_mask = {self._within('ks', self.n_inner)}")
        self._reach()
        if self.transposed and not self.turned_filters:
            source = f"(tl.program_id(1) * {self.n_inner} + ks[None, :])" if self.grouped else "ks[None, :]"
            source = f"({bracketed(outer)} * {self.n_sources} + {source})" if outer else source
            writer.line(f"filters = {pointer} + {source} * {self.n_rows} + rows")
        elif self.rows_of_filters:
            taps = factor([f"KERNEL_{axis.upper()}" for axis in self.axes])
            writer.line(f"filters = {pointer} + ({self.channels} * {taps} + tap) * {self.n_inner} + ks[None, :]")
        else:
            channel = f"({bracketed(outer)} * {self.n_channels} + {self.channels})" if outer else self.channels
            writer.line(f"filters = {pointer} + {channel} * {self.n_inner} + ks[None, :]")
        return inside

    @property
    def turned_filters(self) -> bool:
        """Whether the filters of a transposed convolution are given as those of a plain one lie."""
        return self.transposed and self.last and not self.single_tap

    @property
    def rows_of_filters(self) -> bool:
        """Whether each filter is read as it lies channels last: all channels of one tap, then of the next."""
        return self.last and not self.transposed and not self.single_tap

    def _within(self, places: str, end: str) -> str:
        """Which places are within what is summed. Where that is known when it is compiled, slices may end with it."""
        return f"({places} < {end}) | ({end} % BLOCK_K == 0)" if self.last else f"{places} < {end}"

    def _tap_number(self) -> str:
        """The tap's place in the filters."""
        if not self.phased:
            return "tap"
        number = ""
        for at, axis in enumerate(self.axes):
            own = f"tap_{axis}"
            if self._has_phase(at):
                own = f"first_{axis} + tap_{axis} * {self._phase(at).step}"
            number = f"{bracketed(number)} * KERNEL_{axis.upper()} + {own}" if number else own
        return number

    def _left_is_made(self) -> bool:
        """Whether the left tile of the product is made in registers, of what was loaded."""
        value = self.found.source if self.swapped else self.weight
        rounded = is_rounded(self.stage) and value not in self.rounded
        return rounded or bool(self.swapped and self.found.before)

    def _channels_walk(self) -> str:
        """One step a slice of all taps of all channels, as they lie in the filters: by channel and then by tap, or the other
        way where channels lie last. Returns what holds in the loop."""
        writer = self.writer
        extents = [f"KERNEL_{axis.upper()}" for axis in self.axes]
        begin_columns(self)
        writer.line(f"n_k = {' * '.join([self.n_inner, *extents])}")
        writer.line("for start in range(0, n_k, BLOCK_K):")
        writer.level += 1
        writer.line("ks = start + tl.arange(0, BLOCK_K)")
        writer.line(f"k_mask = {self._within('ks', 'n_k')}")
        if self.last:
            self._taps(f"(ks[:, None] // {self.n_inner})", extents)
        else:
            self._taps("ks[:, None]", ["", *extents])
        self._reach()
        writer.line(f"filters = {writer.pointer(self.weight)} + {self.channels} * n_k + ks[None, :]")
        return "start < n_k"

    def _taps(self, index: str, counts: list[str]) -> None:
        """Which tap `index` is of along each dimension."""
        for axis, place in zip(self.axes, digits(index, counts)[-len(self.axes) :], strict=True):
            self.writer.line(f"tap_{axis} = {place}")

    def _reach(self) -> None:
        """Where the operand is read at these taps, and whether there is an element."""
        writer, checks = self.writer, ["col_mask"]
        for at, axis in enumerate(self.axes):
            padded = self.transposed or any(self.window.padding[at])
            if self.loop == "channels" and not padded and not self.found.before:
                continue  # no place is asked for, see `begin_columns`
            step, place = times(f"tap_{axis}", self.dilation[at]), f"from_{axis}"
            if self._has_phase(at):
                place = f"from_{axis} - {times(f'tap_{axis}', str(self._phase(at).reach))}"
            elif not self.single_tap:
                place = f"from_{axis} {'-' if self.transposed else '+'} {step}"
            writer.line(f"{axis} = {place}")
            if self.transposed and not self.phased and self.stride[at] != "1":
                writer.line(f"fits_{axis} = ({axis} >= 0) & ({axis} % {self.stride[at]} == 0)")
                writer.line(f"{axis} = {axis} // {self.stride[at]}")
                checks.append(f"fits_{axis} & ({axis} < {self.inside[at]})")
            elif self.transposed or any(self.window.padding[at]):
                checks.append(f"({axis} >= 0) & ({axis} < {self.inside[at]})")
        self.mask = "inside" if len(checks) > 1 else "col_mask"
        if len(checks) > 1:
            writer.line(f"inside = {' & '.join(checks)}")
