"""attention_operands: the lines of an attention's kernel that find its queries, keys and values, and load tiles of them.

A tile comes through a descriptor (`attention_tiles`), from where the elements lie that it is made of (`attention_moved`), or
through pointers to the matrices of the program's head.
"""

from __future__ import annotations

from mtmc.rewrite.space import Group
from mtmc.rewrite.templates import attention_shares as shares
from mtmc.rewrite.templates import attention_tiles as tiles
from mtmc.rewrite.templates.attention_moved import write_tile
from mtmc.rewrite.templates.elements import Variables
from mtmc.rewrite.templates.product_tiles import BY_KERNEL
from mtmc.rewrite.templates.softmax_product import Region, SoftmaxProduct
from mtmc.rewrite.templates.writer import Writer

_WHOLE = "((inner < WIDTH) | (WIDTH == BLOCK_K))"
"""Which of `inner` are in the heads' width, where that is not taken in slices."""


class Operands:
    """The operands of the attention that is being written.

    way: how tiles come, see `attention_tiles.way_of`. block: the number of the program's block of rows. known: what stands
    in variables of the kernel.
    """

    def __init__(self, writer: Writer, found: SoftmaxProduct, way: str, block: str, known: Variables) -> None:
        self.graph, self.body, self.writer, self.found = writer.graph, writer.body, writer, found
        self.way, self.block, self.known = way, block, known

    def start(self, n_rows: str, packed: str) -> None:
        """Point to the queries, and load their tile unless that is taken in slices. n_rows: the number of rows. packed: that
        of queries, where the rows are those of several heads, else ""."""
        writer, found = self.writer, self.found
        if found.query not in found.made:
            base, *self.query_strides = self.parts(found.query, -2, -1)
            self.query_place = f"rows{self.query_strides[0]}"
            if packed:
                base, self.query_place = shares.packed_queries(writer, found, packed)
            writer.line(f"queries = {base}")
        if self.way == BY_KERNEL:
            tiles.make_descriptors(self, n_rows)
        if found.wide:
            return
        described = tiles.is_described(self.way)
        if described:
            writer.line("if DESCRIBED:")
            first, digits = f"{self.block} * BLOCK_M", self.digits(found.query)
            writer.line(f"    q = {tiles.load('query', digits, self.way, first, 'BLOCK_M, BLOCK_K')}")
            writer.line("else:")
        writer.level += int(described)
        self._read_queries("inner < WIDTH", _WHOLE)
        writer.level -= int(described)

    def _read_queries(self, inside: str, moved: str) -> None:
        """Load the queries' tile. inside, moved: which of `inner` are in the heads' width, `moved` as one factor."""
        if self.found.query in self.found.made:
            last = Group("inner[None, :]", self.found.width, f"{moved}[None, :]")
            rows = Group("rows", self.found.rows, "row_mask")
            write_tile(self, "q", self.found.query, rows, last, "BLOCK_M, BLOCK_K", self.known)
            return
        across = self.query_strides[1]
        mask = f"row_mask & ({inside})[None, :]" if " " in inside else f"row_mask & {inside}[None, :]"
        self.writer.line(f"q = tl.load(queries + {self.query_place} + inner[None, :]{across}, mask={mask}, other=0.0)")

    def point_to(self, region: Region, begin: str) -> None:
        """Pointers to a region's keys and values, such that its columns bear their numbers among all. begin: the first's."""
        writer, lines = self.writer, list[str]()
        before = f"({begin})" if " " in begin else begin
        if region.key not in self.found.made:
            keys, down, across = self.parts(region.key, -2, -1)
            self.key_down, self.key_across = (down, across) if self.found.transposed else (across, down)
            lines.append(f"keys = {keys}" + (f" - {before}{self.key_down}" if region.own_keys and begin != "0" else ""))
        if region.value not in self.found.made:
            values, self.value_down, self.value_across = self.parts(region.value, -2, -1)
            shift = f" - {before}{self.value_down}" if region.own_values and begin != "0" else ""
            lines.append(f"values = {values}{shift}")
        if begin != "0" and (region.own_keys or region.own_values):
            writer.comment("these columns are numbered behind the ones before")
        for line in lines:
            writer.line(line)

    def parts(self, value: str, first: int, second: int) -> tuple[str, str, str]:
        """Pointer to a tensor's matrix of this program, and " * stride" along its last two axes."""
        tensor, base = self.graph.values[value], self.writer.pointer(value)
        for axis, digit in enumerate(self.digits(value)):
            if digit != "0":
                base += f" + {f'({digit})' if ' ' in digit else digit} * {self.writer.stride(value, axis)}"
        rank = len(tensor.shape)
        strides = []
        for axis in (rank + first, rank + second):
            unit = tensor.contiguous and axis == rank - 1
            if unit:
                self.writer.contiguous.add(value)
            strides.append("" if unit else f" * {self.writer.stride(value, axis)}")
        return base, strides[0], strides[1]

    def digits(self, value: str) -> list[str]:
        """Which of a tensor's matrices a program reads: its number along each dimension of the batch."""
        return tiles.digits(self.writer, self.found, value)

    def read_keys(self, region: Region, end: str) -> None:
        """Load the keys' tile. end: of the region's columns, "" where none of the block's is behind it."""
        if region.key in self.found.made:
            self._moved_keys(region, _WHOLE, end)
        else:
            tiles.read(self, "key", self._key_load("(inner < WIDTH)", end), self._key_load("", end))

    def read_slice(self, region: Region, end: str) -> None:
        """Load tiles of queries and keys at `inner`, a slice of the heads' width."""
        self.writer.line("inside = inner < WIDTH")
        self._read_queries("inside", "inside")
        if region.key in self.found.made:
            self._moved_keys(region, "inside", end)
        else:
            self.writer.line(self._key_load("inside", end))

    def _key_load(self, inside: str, end: str) -> str:
        place = f"cols{self.key_down} + inner[:, None]{self.key_across}"
        masks = [*(["col_mask"] if end else []), *([f"{inside}[:, None]"] if inside else [])]
        return f"k = tl.load(keys + {place}{_masked(masks)})"

    def _moved_keys(self, region: Region, inside: str, end: str) -> None:
        """The keys' tile, of elements that lie elsewhere. inside: which of `inner` are in the heads' width."""
        down = Group("inner[:, None]", self.found.width, f"{inside}[:, None]")
        across = Group("cols", self.found.columns, "col_mask" if end else "")
        first, last = (across, down) if self.found.transposed else (down, across)
        write_tile(self, "k", region.key, first, last, "BLOCK_K, BLOCK_N", self.known)

    def read_values(self, region: Region, end: str) -> None:
        """Load the values' tile. end: of the region's columns, "" where none of the block's is behind it."""
        found, there = self.found, ["there"] if end else []
        if end:
            self.writer.line(f"there = (columns < {end})[:, None]")
        if region.value in found.made:
            down = Group("columns[:, None]", found.columns, "".join(there))
            across = Group("outer", found.out_width, "((outer < OUT_WIDTH) | (OUT_WIDTH == BLOCK_V))")
            write_tile(self, "v", region.value, down, across, "BLOCK_N, BLOCK_V", self.known)
            return
        place = f"values + columns[:, None]{self.value_down} + outer{self.value_across}"
        loads = [f"v = tl.load({place}{_masked(masks)})" for masks in ([*there, "(outer < OUT_WIDTH)"], there)]
        if found.wide:
            loads[1] = loads[0]
        tiles.read(self, "value", *loads)


def _masked(masks: list[str]) -> str:
    """The further arguments of a load with these masks."""
    return f", mask={' & '.join(masks)}, other=0.0" if masks else ""
