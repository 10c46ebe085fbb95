"""window_kernel: writes the kernel of a pool or a depthwise convolution, see `windows`."""

from __future__ import annotations

from mtmc.rewrite.body import Body
from mtmc.rewrite.graph import Graph, Size, product
from mtmc.rewrite.open_sizes import is_open
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.space import Group, bare
from mtmc.rewrite.templates.channels_last import is_channels_last
from mtmc.rewrite.templates.permuted_body import in_memory_order
from mtmc.rewrite.templates.pointwise import Variables, write_maps
from mtmc.rewrite.templates.positions import (
    Windowed,
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

MAX_UNROLLED = 32
"""Taps of a window that are written out by the compiler; more are gone through by a loop."""


class WindowKernel:
    """The kernel in the making."""

    def __init__(self, graph: Graph, body: Body, found: Windowed, name: str, stage: Stage) -> None:
        self.body, self.found, self.last = body, found, is_channels_last(stage)
        self.planes = dict(stage.schedule).get("loop") == "planes"
        self.across = int(dict(stage.schedule).get("across", 0)) if self.last else 0
        self.along = max(1, stage.number("block") // self.across) if self.across else 0
        self.writer = Writer(*in_memory_order(graph, body, stage), f"{name}_kernel")
        window = found.window
        self.checked = window.ceil or window.adaptive or any(any(size) for size in window.padding)
        """Whether windows reach over the edges."""
        self.names = [
            (self.writer.argument(f"in_{axis}", text, own), self.writer.argument(f"out_{axis}", f"out_{axis}", out))
            for axis, text, own, out in zip(found.axes, inside_sizes(found), found.inputs, found.outputs, strict=True)
        ]
        taps = [constant(size) or MAX_UNROLLED + 1 for size in window.size]
        self.unrolled = product(tuple((tap,) for tap in taps))[0] <= MAX_UNROLLED
        if self.unrolled:  # then places of taps differ by numbers that stand in the instructions
            self.writer.wanted |= {own for own, _ in self.names}
        self.extents = tuple(self._extent(axis, size) for axis, size in zip(found.axes, window.size, strict=True))
        """Names of the numbers of taps. An unrolled loop has to know its end at compile time; any other is told it at run
        time where it is open: a share of an image."""

    def _extent(self, axis: str, size: Size) -> str:
        if self.unrolled or not is_open(self.writer.graph, size):
            return f"KERNEL_{axis.upper()}"
        return self.writer.argument(f"taps_{axis}", f"taps_{axis}", size)

    def write(self) -> None:
        """Write all of it."""
        writer, found = self.writer, self.found
        space = self._space()
        self._starts()
        name = found.node.name
        writer.line(f"{name} = tl.full([{'ALONG, ACROSS' if self.across else 'BLOCK'}], {self._neutral()}, tl.float32)")
        inside = "place_mask" if self.across else "mask"
        for axis in range(len(found.axes)):
            inside = self._tap(axis, inside)
        self._add(inside)
        writer.level = 1
        if found.node.operation == "mean":
            writer.line(f"{name} = {name} / {self._count()}")
        variables: Variables = {name: name}
        write_maps(writer, [node.name for node in found.after], space, variables)
        for value in self.body.stores:
            writer.store_at(value, variables[value], space, "mask", "offs")

    def _space(self) -> tuple[Group, ...]:
        """Which elements of the result a program has."""
        writer, found = self.writer, self.found
        self._numbered("n_places" if self.across else "n_elements")
        if self.planes:
            writer.line(f"offs = plane * {factor(self.outsides())} + pixel")
            lead, inside = product(found.node.shape[: -len(found.axes)]), product(found.outputs)
            return (Group("plane", lead, ""), Group("pixel", inside, "mask"))
        if self.across:
            writer.line(f"offs = places * {self._channels()} + at_channel")
            lead = product((found.shape[0], *found.outputs))
            return (Group("places", lead, "place_mask"), Group("at_channel", found.shape[1], "channel_mask"))
        return (Group("offs", product(found.node.shape), "mask"),)

    def _numbered(self, total: str) -> None:
        """Write which ones of the result a program has: elements of a plane or of all, or places with some of the channels.
        total: what the number of all is called."""
        writer, found, number, pixels = self.writer, self.found, self.number, factor(self.outsides())
        index = "plane" if self.planes else "block"
        writer.line(f"{index} = tl.program_id(0)")
        if self.planes:
            writer.line(f"blocks = tl.cdiv({bare(pixels)}, BLOCK)")
            writer.line(f"{number} = plane % blocks * BLOCK + tl.arange(0, BLOCK)")
            writer.line(f"mask = {number} < {bare(pixels)}")
            writer.line("plane = plane // blocks")
        writer.widen(index)
        if self.planes:
            return
        channels = self._channels() if self.across else ""
        lead = found.shape[:1] if self.across else found.node.shape[: -len(found.axes)]
        count = writer.argument(total, self.count(), product((*lead, *self._outside_sizes())))
        if self.across:
            writer.line(f"blocks = tl.cdiv({channels}, ACROSS)")
            writer.line(f"{number} = (block // blocks * ALONG + tl.arange(0, ALONG))[:, None]")
            writer.line("at_channel = (block % blocks * ACROSS + tl.arange(0, ACROSS))[None, :]")
            writer.line(f"place_mask, channel_mask = {number} < {count}, at_channel < {channels}")
            writer.line("mask = place_mask & channel_mask")
        else:
            writer.line(f"{number} = block * BLOCK + tl.arange(0, BLOCK)")
            writer.line(f"mask = {number} < {count}")

    def outsides(self) -> list[str]:
        """Names of the spatial sizes of what programs share, in the kernel and in the launcher."""
        return [outside for _, outside in self.names]

    @property
    def number(self) -> str:
        """What the numbers of those that a program has are called."""
        return "places" if self.across else "pixel" if self.planes else "offs"

    def _outside_sizes(self) -> tuple[Size, ...]:
        return self.found.outputs

    def count(self) -> str:
        """The launcher's expression of how many elements, or places of all channels, programs share."""
        count = f"{self.body.stores[0]}.numel()"
        return f"{count} // {self.found.source}.shape[1]" if self.across else count

    def _channels(self) -> str:
        return self.writer.argument("n_channels", f"{self.found.source}.shape[1]", self.found.shape[1])

    def _neutral(self) -> str:
        return 'float("-inf")' if self.found.node.operation == "max" else "0.0"

    def _starts(self) -> None:
        """Which plane (image and channel) each is of, and where its window begins."""
        writer, number, outsides = self.writer, self.number, self.outsides()
        if self.planes:
            places = ["plane", *digits(number, ["", *outsides[1:]])]
        elif self.last and not self.across:
            *places, channel = digits(number, ["", *outsides, self._channels()])
            writer.line(f"at_channel = {channel}")
        else:
            places = digits(number, ["", *outsides])
        for axis, index in enumerate(places[1:]):
            self._place(axis, index)
        writer.line(f"{'at_image' if self.last else 'planes'} = {places[0]}")
        self._channel()

    def _place(self, axis: int, index: str) -> None:
        """Where a window is along a dimension. index: of the result's element."""
        writer, letter, (inside, outside) = self.writer, self.found.axes[axis], self.names[axis]
        if not self.found.window.adaptive:
            self._start(axis, index)
            return
        writer.line(f"at_{letter} = {index}")
        writer.line(f"from_{letter} = at_{letter} * {inside} // {outside}")
        writer.line(f"to_{letter} = ((at_{letter} + 1) * {inside} + {outside} - 1) // {outside}")

    def _start(self, axis: int, index: str) -> None:
        """Where a window begins along a dimension. index: of the result's element."""
        writer, window = self.writer, self.found.window
        stride, padding = (text_of(writer, size[axis]) for size in (window.stride, window.padding))
        index = bracketed(index) if stride != "1" else index
        writer.line(f"from_{self.found.axes[axis]} = {shifted(times(index, stride), padding)}")

    def _channel(self) -> None:
        """Of which channel the weights are, and from which plane its windows are taken."""
        writer, found = self.writer, self.found
        if found.node.operation == "weighted sum":
            weight = found.node.reads()[1]
            writer.line(f"channels = planes % {writer.argument('n_channels', f'{weight}.shape[0]', ())}")
            each = tuple(o // i for o, i in zip(found.node.shape[1], found.shape[1], strict=True))
            if any(number > 1 for number in each):
                per = writer.argument("n_each", f"{weight}.shape[0] // {found.source}.shape[1]", ())
                writer.line(f"planes = planes // {per}  # several results of one channel")

    def _tap(self, axis: int, inside: str) -> str:
        """Open the loop over the taps of one dimension; the mask of what is inside the operand so far."""
        writer, letter = self.writer, self.found.axes[axis]
        loop = "tl.static_range" if self.unrolled else "range"
        dilation = text_of(writer, self.found.window.dilation[axis])
        writer.line(f"for tap_{letter} in {loop}({self.extents[axis]}):")
        writer.level += 1
        writer.line(f"{letter} = from_{letter} + {times(f'tap_{letter}', dilation)}")
        if not self.checked:
            return inside
        low = f"({letter} >= 0) & " if any(self.found.window.padding[axis]) else ""
        end = f"to_{letter}" if self.found.window.adaptive else self.names[axis][0]
        writer.line(f"inside_{letter} = {inside} & {low}({letter} < {end})")
        return f"inside_{letter}"

    def _add(self, inside: str) -> None:
        """Read one tap and add it."""
        writer, found = self.writer, self.found
        name, value, weight = found.node.name, self._read(inside), ""
        if found.node.operation == "weighted sum":
            writer.line(f"tap_weight = {self._weight()}")
            weight = "tap_weight"
        writer.line(f"{name} = {self._added(name, value, weight, inside)}")

    def _read(self, inside: str) -> str:
        """Read what a window has at a place, and do what is to be done before; its variable."""
        writer, found = self.writer, self.found
        groups = self._inside(inside)
        variables: Variables = {}
        value = found.source
        if writer.tensor(value).contiguous:
            places = [(axis, size) for axis, (size, _) in zip(found.axes, self.names, strict=True)]
            offset = "at_image" if self.last else "planes"
            for axis, size in (*places, *((("at_channel", "n_channels"),) if self.last else ())):
                offset = f"({offset}) * {size} + {axis}" if "+" in offset else f"{offset} * {size} + {axis}"
            writer.contiguous.add(value)
            beyond = self._neutral() if self._reads_neutral() else "0.0"
            guard = f"mask={inside}{' & channel_mask' if self.across else ''}, other={beyond}"
            writer.line(f"{value} = tl.load({writer.pointer(value)} + {offset}, {guard}).to(tl.float32)")
        else:
            writer.load(found.source, found.shape, groups, value)
        if found.before:
            first = writer.body.node(found.before[0].name)
            assert first is not None
            variables[(found.source, first.shape)] = value
            write_maps(writer, [node.name for node in found.before], groups, variables)
            value = variables[found.before[-1].name]
        return value

    def _reads_neutral(self) -> bool:
        """Whether what is read beyond the edges is what changes no maximum, as it is what comes of it."""
        source = self.writer.tensor(self.found.source)
        return self.found.node.operation == "max" and not self.found.before and source.contiguous and source.is_float

    def _weight(self) -> str:
        """The load of the weight of the tap at hand."""
        writer, weight, tap = self.writer, self.found.node.reads()[1], "channels"
        writer.contiguous.add(weight)
        for axis, extent in zip(self.found.axes, self.extents, strict=True):
            tap = f"({tap})" if "+" in tap else tap
            tap = f"{tap} * {extent} + tap_{axis}"
        guard = "" if self.planes else ", mask=mask, other=0.0"
        return f"tl.load({writer.pointer(weight)} + {tap}{guard}).to(tl.float32)"

    def _added(self, result: str, value: str, weight: str, inside: str) -> str:
        """A result so far with one tap more."""
        if self.found.node.operation == "max":
            guards = self.checked and not self._reads_neutral()
            guarded = f"tl.where({inside}, {value}, {self._neutral()})" if guards else value
            return f"tl.maximum({result}, {guarded}, propagate_nan=tl.PropagateNan.ALL)"
        value = self._guarded(value, inside)
        return f"{result} + {value} * {weight}" if weight else f"{result} + {value}"

    def _inside(self, mask: str) -> tuple[Group, ...]:
        """The space of the operand's elements that one tap reads."""
        found, lead = self.found, self.found.shape[: -len(self.found.axes)]
        axes = tuple(Group(axis, size, mask) for axis, size in zip(found.axes, found.inputs, strict=True))
        if self.last:
            channels = Group("at_channel", lead[1], "channel_mask" if self.across else mask)
            return (Group("at_image", lead[0], mask), *axes, channels)
        plane = Group("planes", product(lead), "" if self.planes else mask)  # plane by plane it is one number
        return (plane, *axes) if lead else axes

    def _guarded(self, value: str, inside: str) -> str:
        """What is loaded outside of the bounds is 0, but work on it may make something else of it."""
        return f"tl.where({inside}, {value}, 0.0)" if self.found.before and self.checked else value

    def _count(self) -> str:
        """What a mean divides by."""
        writer, found, window = self.writer, self.found, self.found.window
        if window.counted == "all":
            return factor(list(self.extents))
        parts = []
        for at, axis in enumerate(found.axes):
            tap, padding, inside = self.extents[at], text_of(writer, window.padding[at]), self.names[at][0]
            first = self._begin(axis)
            end, begin = f"tl.minimum({first} + {tap}, {shifted(inside, padding, '+')})", first
            if window.adaptive:
                end = f"to_{axis}"
            elif window.counted == "inside":
                end, begin = f"tl.minimum({first} + {tap}, {inside})", f"tl.maximum({bare(first)}, 0)"
            writer.line(f"count_{axis} = {end} - {begin}")
            parts.append(f"count_{axis}")
        return factor(parts)

    def _begin(self, axis: str) -> str:
        """Where the window begins along a dimension."""
        return f"from_{axis}"
