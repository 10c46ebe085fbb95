"""gluon_programs: which blocks of queries a program of attention in Gluon makes, where it makes several ("persistent"), and
which blocks of columns each of them sees.

Where all blocks see as many columns, programs take the blocks of a section of heads after those of another, so that the
section's keys and values stay in the L2 cache. In a section all heads' blocks with the same number come one after the other.

Causal attention's blocks see 1, 2, ..., n times as many columns, n blocks a head. The 2n blocks of two heads, those with the
most columns first, are n pairs of the first and the last, the second and the last but one, and so on: each sees n + 1 times
as many, whether n is odd or even. Programs take whole pairs in rounds, in the order of heads. A last round for some of
them would leave the others idle for a pair's time. So what would be the last one to two rounds is taken block by block:
those with the most columns first, by the programs in one direction and then in the other, and those with the fewest last.

Heads of which some pairs are left over are one set of blocks in that order, out of whose middle the pairs are taken that
still belong to whole rounds, so that the blocks with the fewest columns are there to even out what programs have.
"""

from __future__ import annotations

from dataclasses import dataclass

from mtmc.rewrite.body import Body
from mtmc.rewrite.graph import Size, product
from mtmc.rewrite.templates.attention_bounds import write_lengths, write_window
from mtmc.rewrite.templates.gluon_tiles import TileFunctions
from mtmc.rewrite.templates.softmax_product import SoftmaxProduct
from mtmc.rewrite.templates.writer import Writer

OF_BLOCK = ("batch", "block", "first", "steps")
"""What says where a block of queries is and which columns it sees."""
CACHED = 25
"""Bits of the number of bytes of keys and values that a section may have: 32 MiB of the 50 of an H100's L2 cache."""


@dataclass
class Programs:
    """count: programs that make several blocks each; 0: one for each block. heavy: whether blocks have different numbers of
    columns, and those with the most come first."""

    count: int
    heavy: bool
    n_batch: str = ""

    @property
    def several(self) -> bool:
        """Whether a program makes several blocks."""
        return self.count > 0

    @property
    def place(self) -> tuple[str, ...]:
        """What groups of warps are told of their work."""
        return ("rounds", "factor") if self.several else (*OF_BLOCK, "factor")

    def begin(self, writer: Writer, found: SoftmaxProduct, body: Body) -> None:
        """Name the number of heads in all and, where there are sections, in one."""
        if not self.several:
            return
        self.n_batch = writer.preset(product(found.batch), "n_batch")
        if self.heavy:
            return
        (made,), region = body.stores, found.regions[0]
        heads = " * ".join(f"{made}.shape[{axis}]" for axis in range(len(found.batch)))
        read = f"{region.key}.nbytes + {region.value}.nbytes"
        writer.argument(
            "section", f"max(1, min({heads}, 2**{CACHED} * ({heads}) // ({read})))", _section(writer, found)
        )

    def grid(self, own: tuple[str, str], swapped: bool) -> tuple[str, ...]:
        """The launcher's grid. own: blocks of a head, and heads. swapped: whether heads are the first axis."""
        if self.several:
            return (f"min({self.count}, {own[0]} * {own[1]})",)
        return own[::-1] if swapped else own

    def write_rounds(self, writer: Writer, n_blocks: str) -> None:
        """Lines for how many blocks a program makes. n_blocks: of a head."""
        writer.line("program, programs = tl.program_id(0), tl.num_programs(0)")
        writer.line(f"blocks = {n_blocks} * {self.n_batch}")
        writer.line("rounds = blocks // programs")
        writer.line(f"rounds += ({self._number('rounds')} < blocks).to(tl.int32)")

    def write_place(self, writer: Writer, n_blocks: str) -> None:
        """Lines for the head and the number of the block that a program makes in a turn. n_blocks: of a head."""
        writer.line("program, programs = tl.program_id(0), tl.num_programs(0)")
        writer.line(f"blocks = {n_blocks}")
        if self.heavy:
            self._write_pairs(writer)
        else:
            self._write_sections(writer)

    def _write_sections(self, writer: Writer) -> None:
        """Lines that take the blocks of a section of heads, then those of the next one."""
        line = writer.line
        line(f"number = {self._number('turn')}")
        line("begin = number // (section * blocks) * section")
        line("rest = number % (section * blocks)")
        line(f"heads = tl.minimum(section, {self.n_batch} - begin)")
        line("batch = begin + rest % heads")
        writer.widen("batch")
        line("block = rest // heads")

    def _write_pairs(self, writer: Writer) -> None:
        """Lines that take whole pairs of the blocks of two heads, then single blocks of the other heads. `rank` is a block's
        number among those of `heads` heads from `begin` on, those with the most columns first; `low` is that of the first
        that belongs to a pair, and `high` of the last."""
        line = writer.line
        line(f"rounds = tl.maximum(blocks * {self.n_batch} // (2 * programs) - 1, 0)")
        writer.comment("pairs of blocks: two heads at a time, then those that are missing in whole rounds")
        line("whole = rounds * programs // blocks")
        line("more = rounds * programs - whole * blocks")
        line("begin = 2 * whole")
        line(f"heads = {self.n_batch} - begin")
        line("low = heads * blocks // 2 - more")
        line("high = low + 2 * more - 1")
        line("if turn < 2 * rounds:")
        line("    pair = turn // 2 * programs + program")
        line("    if pair < whole * blocks:")
        line("        begin = pair // blocks * 2")
        line("        heads = 2")
        line("        low = 0")
        line("        high = 2 * blocks - 1")
        line("    pair = pair - begin // 2 * blocks")
        line("    rank = high - pair if turn & 1 else low + pair")
        line("else:")
        line("    single = turn - 2 * rounds")
        line(f"    rank = {self._number('single')}")
        line("    rank += (rank >= low).to(tl.int32) * (2 * more)")
        line("batch = begin + rank % heads")
        writer.widen("batch")
        line("block = blocks - 1 - rank // heads")

    def _number(self, turn: str) -> str:
        """The number of a turn's block among all of them."""
        number = f"{turn} * programs + program"
        return f"{number} + ({turn} & 1) * (programs - 1 - 2 * program)" if self.heavy else number


def write_range(tiles: TileFunctions, rows: int) -> None:
    """Lines for the column from which a block of so many queries looks, and at how many blocks of columns.

    Raises: NotCovered."""
    writer, found, window, n_cols = tiles.writer, tiles.found, tiles.window, tiles.n_cols
    first, last = "0", n_cols
    lengths = [bound for bound in window.bounds if not bound.hangs("rows")] if window is not None else []
    if window is not None and window.of_places:
        write_window(writer, found, window, "block")
        bounds, writer.lines = writer.lines[-2:], writer.lines[:-2]
        writer.lines += [each.replace("BLOCK_M", str(rows)).replace("BLOCK_N", str(tiles.columns)) for each in bounds]
        first, last = "first", "last"
    elif found.causal:
        writer.line(f"last = tl.minimum({n_cols}, (block + 1) * {rows})")
        last = "last"
    if first != "first":
        writer.line(f"first = {first}")
    if lengths:
        if last != "last":
            writer.line(f"last = {last}")
        write_lengths(writer, found, lengths, tiles.columns)
        first, last = "first", "last"
    span = f"{last} - first" if first == "first" else last
    if first == "first":
        writer.comment("a program looks at one block at least, and masks say what of it is seen")
        writer.line(f"first = tl.minimum(first, ({n_cols} - 1) // {tiles.columns} * {tiles.columns})")
    writer.line(f"steps = tl.maximum(tl.cdiv({span}, {tiles.columns}), 1)")


def _section(writer: Writer, found: SoftmaxProduct) -> Size:
    """Heads of a section at each set of shapes, by two bytes a number."""
    region, values = found.regions[0], writer.graph.values
    moved = [
        2 * (k + v) for k, v in zip(*(product(values[name].shape) for name in (region.key, region.value)), strict=True)
    ]
    return tuple(
        max(1, min(heads, (heads << CACHED) // read)) for heads, read in zip(product(found.batch), moved, strict=True)
    )
