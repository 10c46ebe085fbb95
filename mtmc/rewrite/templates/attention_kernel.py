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

from mtmc.rewrite.body import Body, Node, NotCovered
from mtmc.rewrite.graph import Graph, Size, product, same
from mtmc.rewrite.operators.attention import CAUSAL
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.space import Group
from mtmc.rewrite.templates import attention_shares as shares
from mtmc.rewrite.templates import attention_tiles as tiles
from mtmc.rewrite.templates.attention_columns import Stretch, region_ends, write_columns
from mtmc.rewrite.templates.attention_operands import Operands
from mtmc.rewrite.templates.attention_turned import NAMES as TURNED
from mtmc.rewrite.templates.attention_turned import TurnedTiles
from mtmc.rewrite.templates.elements import Elements, home
from mtmc.rewrite.templates.pointwise import Variables, write_maps
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
        *TURNED,
    )
}
"""The kernel's own variables: what is loaded for work on the tiles gets other names."""


class Kernel:
    """The kernel in the making."""

    def __init__(self, graph: Graph, body: Body, stage: Stage, name: str) -> None:
        self.graph, self.body, self.stage = graph, body, stage
        self.found: SoftmaxProduct = analyse(graph, body)
        self.writer = Writer(graph, body, f"{name}_kernel")
        precision = stage.setting("precision")
        self.exact = f', input_precision="{precision}"' if precision != "input" else ""
        self.program = f"tl.program_id({int(crowded(self.found.batch))})"
        schedule = dict(stage.schedule)
        self.edges, self.heavy = schedule.get("masks") == "edges", schedule.get("order") == "heavy"
        self.specialized = bool(schedule.get("specialized", 0))
        self.block = "block" if self.found.wide or self.heavy else self.program
        _, self.scaling = self.found.factor()
        if self.edges and self.found.wide:
            raise NotCovered("blocks without masks of heads that are taken in slices")
        self.way = tiles.way_of(stage)
        self.described = tiles.is_described(self.way)
        tiles.check(graph, self.found, stage, body.stores)
        shares.check(graph, self.found, stage, not self.described)
        self.split, self.packed, self.batch = shares.split_of(stage), shares.is_packed(stage), self.found.batch
        if self.packed:
            self.found = shares.packed(graph, self.found)
        self.operands = Operands(self.writer, self.found, self.way, self.block, _LOCALS)

    def write(self) -> None:
        """Write all of it."""
        writer, found = self.writer, self.found
        self.n_rows, ends = writer.preset(found.rows, "n_rows"), region_ends(writer, found)
        self.n_queries = self.n_rows
        if self.packed:
            self.n_rows = shares.packed_rows(self, self.n_rows)
        self._rows()
        maps = (*found.after, *found.weighing, *(node for node in found.between if node.name not in self.scaling))
        if self.packed and (maps or found.sink):
            shares.row_numbers(self, self.n_queries)
        self._start()
        for stretch in write_columns(self, ends, _LOCALS):
            self._go_through(stretch)
        self._result()

    def _go_through(self, stretch: Stretch) -> None:
        """Loops over columns in one tensor."""
        writer, found, region, begin = self.writer, self.found, stretch.region, stretch.begin
        self.operands.point_to(region, begin)
        if not self.edges:
            self._loop(region, begin, stretch.end, stretch.limit)
            return
        seen = f"tl.minimum({stretch.limit}, {self.block} * BLOCK_M)" if found.causal else stretch.limit
        first = f" - ({begin})" if begin != "0" else ""
        inside = f"tl.maximum({seen}{first}, 0)" if found.causal and first else f"({seen}{first})"
        writer.comment("whole blocks, of which no column is masked for any row, then the others")
        blocks = f"{inside} // BLOCK_N * BLOCK_N"
        writer.line(f"whole = {begin} + {blocks}" if first else f"whole = {blocks}")
        self._loop(region, begin, "", "whole")
        self._loop(region, "whole", stretch.end, stretch.limit)

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
        self.operands.start(self.n_rows, self.n_queries if self.packed else "")
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
        else:
            self.operands.read_keys(region, end)
            writer.line(f"{found.scores.name} = tl.dot(q, k{self.exact})")
        variables: Variables = {found.scores.name: found.scores.name, **_LOCALS}
        turned = TurnedTiles(self, end)
        for node in found.between:
            if node.name in self.scaling or node.kind == "view" or (not end and node.operation == CAUSAL):
                variables[node.name] = variables[node.reads()[0]]
            else:
                turned.read(node, variables)
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

    def _sliced_product(self, region: Region) -> None:
        """Queries times keys, a slice of the heads' width at a time."""
        writer, name = self.writer, self.found.scores.name
        writer.line(f"{name} = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)")
        writer.line("for first in range(0, WIDTH, BLOCK_K):")
        writer.level += 1
        writer.line("inner = first + tl.arange(0, BLOCK_K)")
        self.operands.read_slice(region, "n_cols")
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
        self.operands.read_values(region, end)
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
                    value, self.operands.digits(found.query), self.way, f"{self.block} * BLOCK_M", variables[value]
                )
                writer.line(f"    {stored}")
                writer.line("else:")
            writer.level += int(self.described)
            writer.store(value, variables[value], offset, "row_mask & out_mask")
            writer.level -= int(self.described)
