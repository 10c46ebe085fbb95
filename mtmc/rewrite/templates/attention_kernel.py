"""attention_kernel: the kernel of a softmax between two products, which never writes the scores (online softmax).

A program has BLOCK_M rows (queries) of one head and loops over the columns (keys), BLOCK_N at a time. It keeps each row's
largest score so far, the sum of exponentials, and the weighted sum of values, and scales the last two down whenever a
larger score appears (Milakov and Gimelshein 2018; Dao et al. 2022). Columns that lie in several tensors are looped over
one tensor after the other, with one set of sums: nobody has to write them one behind the other (as DualKV does for a
prompt that many responses share).

Of wide heads neither the rows' queries nor their weighted sums fit the registers. There a program takes queries and keys
in slices of BLOCK_K, and makes BLOCK_V columns of the result; the programs that make its other columns work out the same
scores again.
"""

from __future__ import annotations

from dataclasses import replace

from mtmc.rewrite.body import Body, Node, NotCovered
from mtmc.rewrite.graph import Graph, Size, product, same
from mtmc.rewrite.operators.attention import CAUSAL
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.space import Group
from mtmc.rewrite.templates import attention_shares as shares
from mtmc.rewrite.templates import attention_tiles as tiles
from mtmc.rewrite.templates.attention_bounds import write_bounds, write_window
from mtmc.rewrite.templates.attention_moved import write_tile
from mtmc.rewrite.templates.attention_window import Window, window_of
from mtmc.rewrite.templates.elements import Elements, home
from mtmc.rewrite.templates.pointwise import Variables, write_maps
from mtmc.rewrite.templates.product_tiles import BY_KERNEL, BY_LAUNCHER
from mtmc.rewrite.templates.shares import crowded
from mtmc.rewrite.templates.softmax_product import Region, SoftmaxProduct, analyse
from mtmc.rewrite.templates.writer import Writer

_LOCALS: Variables = {
    ("local", name): name
    for name in (
        "q",
        "k",
        "v",
        "queries",
        "keys",
        "values",
        "top",
        "total",
        "weights",
        "scale",
        "shift",
        "logits",
        "factor",
        "block",
        "whole",
        "larger",
        "heads",
        "positions",
        "first",
        "last",
        "begin",
        "end",
        "wanted",
        "held",
    )
}
"""The kernel's own variables: what is loaded for work on the tiles gets other names."""
_WHOLE = "((inner < WIDTH) | (WIDTH == BLOCK_K))"
"""Which of `inner` are in the heads' width, where that is not taken in slices."""


FEW_QUERIES = 16
"""With so few a program does not look for the columns that its rows have something in common with."""


class Kernel:
    """The kernel in the making."""

    def __init__(self, graph: Graph, body: Body, stage: Stage, name: str) -> None:
        self.graph, self.body, self.stage = graph, body, stage
        self.found: SoftmaxProduct = analyse(graph, body)
        self.writer = Writer(graph, body, f"{name}_kernel")
        precision = stage.setting("precision")
        self.exact = f', input_precision="{precision}"' if precision != "input" else ""
        self.program = f"tl.program_id({int(crowded(self.found.batch))})"
        self.way = tiles.way_of(stage)
        schedule = dict(stage.schedule)
        self.edges, self.heavy = schedule.get("masks") == "edges", schedule.get("order") == "heavy"
        self.specialized = bool(schedule.get("specialized", 0))
        self.block = "block" if self.found.wide or self.heavy else self.program
        _, self.scaling = self.found.factor()
        if self.edges and self.found.wide:
            raise NotCovered("blocks without masks of heads that are taken in slices")
        tiles.check(graph, self.found, stage, body.stores)
        shares.check(graph, self.found, stage, not self.described)
        self.split, self.packed, self.batch = shares.split_of(stage), shares.is_packed(stage), self.found.batch
        if self.packed:
            self.found = shares.packed(graph, self.found)

    def write(self) -> None:
        """Write all of it."""
        writer, found = self.writer, self.found
        self.n_rows, ends = writer.preset(found.rows, "n_rows"), self._ends()
        self.n_queries = self.n_rows
        if self.packed:
            self.n_rows = shares.packed_rows(self, self.n_rows)
        self._rows()
        maps = (*found.after, *found.weighing, *(node for node in found.between if node.name not in self.scaling))
        if self.packed and (maps or found.sink):
            shares.row_numbers(self, self.n_queries)
        self._start()
        if len(found.regions) > 1:
            writer.line(f"n_cols = {ends[-1]}")
            ends[-1] = "n_cols"
        limits = list(ends)
        window = self._window()
        begins = ["first" if window else "0", *ends]
        if window.of_places:
            write_window(writer, found, window, self.block)
        elif window and not found.causal:
            writer.line(f"last = tl.cast({ends[-1]}, tl.int32)")
        if found.causal:
            writer.comment("columns behind the block's last row are masked for all of its rows")
            writer.line(f"last = tl.minimum({ends[-1]}, ({self.block} + 1) * BLOCK_M)")
            limits = [*(f"tl.minimum({end}, last)" for end in ends[:-1]), "last"]
        if window.bounds or window.pairs:
            if not window.of_places:
                writer.line("first = tl.cast(0, tl.int32)")
            write_bounds(self, window, _LOCALS)
        if window:
            limits = ["last"]
        if self.split > 1:
            shares.own_share(self, bool(window))
            begins, ends, limits = ["first"], ["last"], ["last"]
        for region, begin, end, limit in zip(found.regions, begins, ends, limits, strict=False):
            self._operands(region, begin)
            if not self.edges:
                self._loop(region, begin, end, limit)
                continue
            seen = f"tl.minimum({limit}, {self.block} * BLOCK_M)" if found.causal else limit
            first = f" - ({begin})" if begin != "0" else ""
            inside = f"tl.maximum({seen}{first}, 0)" if found.causal and first else f"({seen}{first})"
            writer.comment("whole blocks, of which no column is masked for any row, then the others")
            blocks = f"{inside} // BLOCK_N * BLOCK_N"
            writer.line(f"whole = {begin} + {blocks}" if first else f"whole = {blocks}")
            self._loop(region, begin, "", "whole")
            self._loop(region, "whole", end, limit)
        self._result()

    def _window(self) -> Window:
        """Which columns rows can see, where masks say so and columns are all in one tensor; what rows and columns are apart
        only where programs own all columns."""
        found = self.found
        if len(found.regions) > 1:
            return Window()
        window = window_of(self.graph, self.body, found, self.numbers)
        if found.rows[0] <= FEW_QUERIES:
            window = replace(window, pairs=())
        if found.causal or found.wide or self.split > 1 or self.packed:
            window = replace(window, low=None, high=None)
        return window

    def _loop(self, region: Region, begin: str, end: str, limit: str) -> None:
        """Columns from one on to another. end: of the region, for the mask; "" where none is masked."""
        writer = self.writer
        over = f"range({begin}, {limit}, BLOCK_N)"
        if self.specialized:
            over = f"tl.{over[:-1]}, warp_specialize=SPECIAL)"
        if self._alone(end):
            writer.line("if not EVEN:")
            writer.level += 1
        writer.line(f"for start in {over}:")
        writer.level += 1
        self._scores(region, end)
        self._update(region, end)
        writer.level -= 1 + int(self._alone(end))

    def _ends(self) -> list[str]:
        """Where each region of columns ends, counted through all of them."""
        regions, ends = self.found.regions, list[str]()
        for at, region in enumerate(regions):
            name = self.writer.preset(region.columns, f"n_cols_{at + 1}" if len(regions) > 1 else "n_cols")
            ends.append(f"{ends[-1]} + {name}" if ends else name)
        return ends

    def _rows(self) -> None:
        writer = self.writer
        writer.line(f"batch = tl.program_id({int(not crowded(self.found.batch))})")
        writer.widen("batch")
        outer = "tl.arange(0, BLOCK_V)[None, :]"
        if self.found.wide:
            writer.comment("programs that work on the same rows stand horizontally")
            writer.line("parts = tl.cdiv(OUT_WIDTH, BLOCK_V)")
            writer.line(f"block = {self.program} // parts")
            outer = f"{self.program} % parts * BLOCK_V + {outer}"
        elif self.heavy:
            writer.comment("blocks with the most columns come first")
            writer.line(f"block = tl.cdiv({self.n_rows}, BLOCK_M) - 1 - {self.program}")
        writer.line(f"rows = {self.block} * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]")
        writer.line(f"row_mask = rows < {self.n_rows}")
        if not self.found.wide:
            writer.line("inner = tl.arange(0, BLOCK_K)")
        writer.line(f"outer = {outer}")

    def _start(self) -> None:
        """The queries' tile, and what is kept of the columns seen so far."""
        writer, found = self.writer, self.found
        if found.query not in found.made:
            base, *self.query_strides = self.parts(found.query, -2, -1)
            place = f"rows{self.query_strides[0]}"
            if self.packed:
                base, place = shares.packed_queries(self, self.n_queries)
            self.query_place = place
            writer.line(f"queries = {base}")
        if self.way == BY_KERNEL:
            tiles.make_descriptors(self)
        if not found.wide:
            if self.described:
                writer.line("if DESCRIBED:")
                block = tiles.load(
                    "query", self.digits(found.query), self.way, f"{self.block} * BLOCK_M", "BLOCK_M, BLOCK_K"
                )
                writer.line(f"    q = {block}")
                writer.line("else:")
            writer.level += int(self.described)
            self._read_query("inner < WIDTH", _WHOLE)
            writer.level -= int(self.described)
        writer.line(shares.factor_line(writer, found))
        if found.sink:
            self._sink()
        else:
            writer.line('top = tl.full([BLOCK_M, 1], float("-inf"), tl.float32)')
            writer.line("total = tl.zeros([BLOCK_M, 1], tl.float32)")
        writer.line(f"{found.result.name} = tl.zeros([BLOCK_M, BLOCK_V], tl.float32)")

    def _sink(self) -> None:
        """The largest score so far and the sum of weights begin with the logit that has no value; of programs that share
        the columns, in one alone."""
        writer, groups = self.writer, self.row_groups()
        elements = Elements(writer, groups, dict(_LOCALS))
        at = home(writer, elements.shape(self.found.sink), groups)
        if at is None:
            raise NotCovered(f"{self.found.sink} is no logit of each row")
        sink = elements.value(self.found.sink, at)
        writer.line(f"top = tl.zeros([BLOCK_M, 1], tl.float32) + {sink} * ({shares.LOG2_E} / factor)")
        first = " * (tl.program_id(2) == 0)" if self.split > 1 else ""
        writer.line(f"total = tl.full([BLOCK_M, 1], 1.0, tl.float32){first}")

    @property
    def described(self) -> bool:
        """Whether tiles come and go through descriptors where they can."""
        return self.way in (BY_LAUNCHER, BY_KERNEL)

    def _read_query(self, inside: str, moved: str) -> None:
        """Load the queries' tile. inside, moved: which of `inner` are in the heads' width, `moved` as one factor."""
        if self.found.query in self.found.made:
            last = Group("inner[None, :]", self.found.width, f"{moved}[None, :]")
            rows = Group("rows", self.found.rows, "row_mask")
            write_tile(self, "q", self.found.query, rows, last, "BLOCK_M, BLOCK_K", _LOCALS)
            return
        across = self.query_strides[1]
        mask = f"row_mask & ({inside})[None, :]" if " " in inside else f"row_mask & {inside}[None, :]"
        self.writer.line(f"q = tl.load(queries + {self.query_place} + inner[None, :]{across}, mask={mask}, other=0.0)")

    def _operands(self, region: Region, begin: str) -> None:
        """Pointers to a region's keys and values, such that its columns bear their numbers among all."""
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

    def _scores(self, region: Region, end: str) -> None:
        """The scores of this block of columns, as the softmax takes them. end: of the region's columns, "" where none of
        the block's is behind it."""
        writer, found = self.writer, self.found
        writer.line("columns = start + tl.arange(0, BLOCK_N)")
        writer.line("cols = columns[None, :]")
        if end:
            writer.line(f"col_mask = cols < {end}")
        if found.wide:
            self._sliced_product(region)
        elif region.key in found.made:
            self._moved_keys(region, _WHOLE, end)
            writer.line(f"{found.scores.name} = tl.dot(q, k{self.exact})")
        else:
            tiles.read(self, "key", self._key_load("(inner < WIDTH)", end), self._key_load("", end))
            writer.line(f"{found.scores.name} = tl.dot(q, k{self.exact})")
        variables: Variables = {found.scores.name: found.scores.name, **_LOCALS}
        for node in found.between:
            if node.name in self.scaling or node.kind == "view" or (not end and node.operation == CAUSAL):
                variables[node.name] = variables[node.reads()[0]]
            else:
                self._map(node, ("cols", found.columns, "col_mask" if end else ""), variables)
        logits = variables[found.logits]
        covered = self.even and not self._alone(end)
        if not end or covered:
            writer.line(f"logits = {logits}")
        if end:
            line = f'logits = tl.where(col_mask, {"logits" if covered else logits}, float("-inf"))'
            for each in ["if not EVEN:", f"    {line}"] if covered else [line]:
                writer.line(each)

    @property
    def even(self) -> bool:
        """Whether it matters at which shapes no column needs a mask of its own, EVEN: where blocks end with the columns, or
        no row is behind the last column whose columns are masked anyway."""
        return not self.found.wide and (self.edges or self.specialized)

    def _alone(self, end: str) -> bool:
        """Whether a loop stands where columns are left that fill no block."""
        return bool(end) and self.edges and not self.found.causal

    def _key_load(self, inside: str, end: str) -> str:
        place = f"cols{self.key_down} + inner[:, None]{self.key_across}"
        masks = [*(["col_mask"] if end else []), *([f"{inside}[:, None]"] if inside else [])]
        return f"k = tl.load(keys + {place}{_masked(masks)})"

    def _moved_keys(self, region: Region, inside: str, end: str) -> None:
        """The keys' tile, of elements that lie elsewhere. inside: which of `inner` are in the heads' width."""
        down = Group("inner[:, None]", self.found.width, f"{inside}[:, None]")
        across = Group("cols", self.found.columns, "col_mask" if end else "")
        first, last = (across, down) if self.found.transposed else (down, across)
        write_tile(self, "k", region.key, first, last, "BLOCK_K, BLOCK_N", _LOCALS)

    def _sliced_product(self, region: Region) -> None:
        """Queries times keys, a slice of the heads' width at a time."""
        writer, name = self.writer, self.found.scores.name
        writer.line(f"{name} = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)")
        writer.line("for first in range(0, WIDTH, BLOCK_K):")
        writer.level += 1
        writer.line("inner = first + tl.arange(0, BLOCK_K)")
        writer.line("inside = inner < WIDTH")
        self._read_query("inside", "inside")
        if region.key in self.found.made:
            self._moved_keys(region, "inside", "n_cols")
        else:
            writer.line(self._key_load("inside", "n_cols"))
        writer.line(f"{name} = tl.dot(q, k, {name}{self.exact})")
        writer.level -= 1

    @property
    def numbers(self) -> tuple[str, str]:
        """What the numbers are called of a row's matrix among all of the batch, and of the row in it."""
        return ("heads", "positions") if self.packed else ("batch", "rows")

    def row_groups(self) -> tuple[Group, ...]:
        """The iteration space of rows: matrices and their rows."""
        batch, rows = self.numbers
        mask = "row_mask" if self.packed else ""
        return Group(batch, product(self.batch), mask), Group(rows, self.found.rows, "row_mask")

    def _map(self, node: Node, last: tuple[str, Size, str], variables: Variables) -> None:
        """One elementwise step on a tile; what has no batch is the same for all of it."""
        batch, rows = self.row_groups()
        alone = len(node.shape) <= 2 or same(product(node.shape[:-2]), ())
        groups = (rows, Group(*last)) if alone else (batch, rows, Group(*last))
        write_maps(self.writer, [node.name], groups, variables)

    def _update(self, region: Region, end: str) -> None:
        writer, found = self.writer, self.found
        cast = "" if self.graph.values[region.value].dtype == "float32" else ".to(v.dtype)"
        writer.line("larger = tl.maximum(top, tl.max(logits, axis=1, keep_dims=True))")
        shift = "larger"
        if found.masked:
            writer.comment("a row of which all columns are masked so far has no largest score")
            writer.line('shift = tl.where(larger == float("-inf"), 0.0, larger)')
            shift = "shift"
        writer.line(f"weights = tl.exp2((logits - {shift}) * factor)")
        writer.line(f"scale = tl.exp2((top - {shift}) * factor)")
        writer.line("total = total * scale + tl.sum(weights, axis=1, keep_dims=True)")
        there = ["there"] if end else []
        if end:
            writer.line(f"there = (columns < {end})[:, None]")
        self._read_values(region, there)
        name = found.result.name
        weights = self._weighed(end)
        writer.line(f"{name} = tl.dot({weights}{cast}, v, {name} * scale{self.exact})")
        writer.line("top = larger")

    def _weighed(self, end: str) -> str:
        """The weights as the second product takes them."""
        found, weights = self.found, "weights"
        variables: Variables = {found.weights: weights, **_LOCALS}
        for node in found.weighing:
            if node.operation == "{0} * {1}":
                self._map(node, ("cols", found.columns, "col_mask" if end else ""), variables)
                weights = variables[node.name]
            variables[node.name] = weights
        return weights

    def _read_values(self, region: Region, there: list[str]) -> None:
        """The values' tile. there: what holds of this block's columns where one may be behind the last."""
        found = self.found
        if region.value in found.made:
            down = Group("columns[:, None]", found.columns, "".join(there))
            across = Group("outer", found.out_width, "((outer < OUT_WIDTH) | (OUT_WIDTH == BLOCK_V))")
            write_tile(self, "v", region.value, down, across, "BLOCK_N, BLOCK_V", _LOCALS)
            return
        place = f"values + columns[:, None]{self.value_down} + outer{self.value_across}"
        loads = [f"v = tl.load({place}{_masked(masks)})" for masks in ([*there, "(outer < OUT_WIDTH)"], there)]
        if found.wide:
            loads[1] = loads[0]
        tiles.read(self, "value", *loads)

    def _result(self) -> None:
        writer, found = self.writer, self.found
        if self.split > 1:
            shares.store_share(self, f"tl.num_programs({int(not crowded(found.batch))})")
            return
        name = found.result.name
        writer.line(f"{name} = {found.quotient(name, 'total')}")
        variables: Variables = {name: name, **_LOCALS}
        writer.line("out_mask = outer < OUT_WIDTH")
        for node in found.after:
            self._map(node, ("outer", found.out_width, "out_mask"), variables)
        for value in self.body.stores:
            offset = f"(batch * {self.n_rows} + rows) * OUT_WIDTH + outer"
            if self.described:
                writer.line("if DESCRIBED:")
                stored = tiles.store(
                    value, self.digits(found.query), self.way, f"{self.block} * BLOCK_M", variables[value]
                )
                writer.line(f"    {stored}")
                writer.line("else:")
            writer.level += int(self.described)
            writer.store(value, variables[value], offset, "row_mask & out_mask")
            writer.level -= int(self.described)


def _masked(masks: list[str]) -> str:
    """The further arguments of a load with these masks."""
    return f", mask={' & '.join(masks)}, other=0.0" if masks else ""
