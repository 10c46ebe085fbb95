"""gluon_product_kernel: a product's kernel in Gluon for Hopper, with groups of warps that each have work of their own.

A program makes tiles of 128 rows one after the other. One warp does nothing but have slices of the operands brought to
shared memory by the tensor memory accelerator, for the next tile as soon as there is room. Two groups of four warps
multiply 64 rows each. They share the slices of the right operand but do not wait for each other: one may be `num_stages`
slices ahead, and do its work on the result while the other one multiplies.

Where there are two products of one left operand, slices of both right ones lie side by side in shared memory, and one
instruction multiplies with both: it reads the left operand once, where two instructions read it twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from mtmc.rewrite.body import Body
from mtmc.rewrite.folding import INDENT
from mtmc.rewrite.graph import Graph
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.space import Group
from mtmc.rewrite.templates.gluon_text import needed_registers
from mtmc.rewrite.templates.gluon_tiles import GROUP_ROWS, function_text, given_names, taken
from mtmc.rewrite.templates.pointwise import Variables, write_maps
from mtmc.rewrite.templates.product import analyse
from mtmc.rewrite.templates.product_programs import write_block_order
from mtmc.rewrite.templates.writer import Writer

GROUPS = 2
"""Of four warps each."""
ROWS = GROUPS * GROUP_ROWS
MOST_COLUMNS = 256
"""Of one instruction of the tensor cores."""
MEMORY, BARRIERS = ("left_mem", "right_mem", "made_mem"), ("full", "free")
_NAMES = "rows cols row_mask col_mask layout own first given made"
_LOCALS: Variables = {("local", name): name for name in _NAMES.split()}
"""Variables of the function that works on a tile: what is loaded there gets other names."""


class GluonProductKernel:
    """The functions of one kernel in the making. Raises: NotCovered where something cannot be said in Gluon."""

    def __init__(self, graph: Graph, body: Body, stage: Stage, name: str) -> None:
        self.body, self.stage, self.name = body, stage, name
        self.found = analyse(graph, body)
        self.count = len(self.found.factors)
        self.columns, self.inner = stage.number("block_n"), stage.number("block_k")
        self.stages, self.parts = stage.number("num_stages"), int(dict(stage.schedule).get("epilogue", 1))
        self.writer = Writer(graph, body, f"{name}_kernel")

    @property
    def wide(self) -> int:
        """Columns of all products' tiles together."""
        return self.count * self.columns

    @property
    def tables(self) -> tuple[str, ...]:
        """The descriptors that the kernel takes: of the left operand, the right ones, and the result."""
        rights = ("right_tiles",) if self.count == 1 else tuple(f"right_{at + 1}_tiles" for at in range(self.count))
        return ("left_tiles", *rights, "result_tiles")

    def text(self, constants: Sequence[str]) -> str:
        """All functions. constants: names of the kernel's compile-time arguments."""
        writer, found = self.writer, self.found
        for size, name in ((found.m, "n_m"), (found.n, "n_n"), (found.k, "n_k")):
            writer.preset(size, name)
        parts = [self._result(), self._place(), self._group(), self._loads(), self._kernel(constants)]
        unpacked = f"{INDENT}{', '.join(self._given())} = given"
        return "\n\n\n".join(part.replace(f"{INDENT}UNPACKED", unpacked) for part in parts)

    def _given(self) -> list[str]:
        """Names of what the functions are handed in one tuple: two at least."""
        return [*given_names(self.writer), "steps"]

    def _function(self, name: str, arguments: str, doc: str) -> str:
        """One function of the kernel, of the lines written so far."""
        return function_text(f"{self.name}_{name}", arguments, doc, taken(self.writer))

    def _result(self) -> str:
        """What is done with a tile of the products, or a part of it."""
        writer, found, width = self.writer, self.found, self.columns // self.parts
        sums = [f"sums_{at + 1}" if self.count > 1 else "sums" for at in range(self.count)]
        if found.after:
            writer.line("UNPACKED")
            writer.line(f"layout: tl.constexpr = {sums[0]}.type.layout")
            rows, columns = (f"tl.SliceLayout({axis}, layout)" for axis in (1, 0))
            writer.line(f"rows = tl.expand_dims(own + tl.arange(0, {GROUP_ROWS}, {rows}), 1)")
            writer.line(f"cols = tl.expand_dims(first + tl.arange(0, {width}, {columns}), 0)")
            writer.widen("rows")
            writer.line(f"row_mask = rows < {writer.size(found.m)}")
            writer.line(f"col_mask = cols < {writer.size(found.n)}")
        variables: Variables = {factor.dot.name: each for factor, each in zip(found.factors, sums, strict=True)}
        variables.update(_LOCALS)
        variables.update({("local", each): each for each in sums})
        groups = (Group("rows", found.m, "row_mask"), Group("cols", found.n, "col_mask"))
        write_maps(writer, [node.name for node in found.after], groups, variables)
        writer.line(f"return {variables[self.body.stores[0]]}")
        doc = f"The result of {GROUP_ROWS} rows and {width} columns, from the product{'s' * (self.count > 1)} on."
        return self._function("result", f"{', '.join(sums)}, WIDE: gl.constexpr, own, first, given", doc)

    def _place(self) -> str:
        """Which tile a number stands for."""
        writer, found = self.writer, self.found
        writer.line("UNPACKED")
        across = f"tl.cdiv({writer.size(found.n)}, {self.columns})"
        write_block_order(writer, self._down(), across, str(self.stage.setting("order")))
        writer.line("return block_m, block_n")
        return self._function(
            "place", "program, GROUP_M: gl.constexpr, given", "The block of rows and of columns of a tile."
        )

    def _down(self) -> str:
        return f"tl.cdiv({self.writer.size(self.found.m)}, {ROWS})"

    def _unpack(self) -> None:
        """What is handed on in tuples."""
        for part, names in (("tiles", self.tables), ("memory", MEMORY), ("barriers", BARRIERS)):
            self.writer.line(f"{', '.join(names)} = {part}")
        self.writer.line("UNPACKED")

    def _own_tiles(self) -> None:
        """The head of a loop over the program's tiles."""
        writer, found = self.writer, self.found
        writer.line("done = 0")
        tiles = f"{self._down()} * tl.cdiv({writer.size(found.n)}, {self.columns})"
        writer.line(f"for program in range(tl.program_id(0), {tiles}, tl.num_programs(0)):")
        writer.level += 1
        writer.line(f"block_m, block_n = {self.name}_place(program, GROUP_M, given)")

    def _group(self) -> str:
        """What one group of warps does."""
        line, stages = self.writer.line, self.stages
        self._unpack()
        line(f"layout: tl.constexpr = {self._layout(self.wide)}")
        self._own_tiles()
        line(f"sums = tl.zeros([{GROUP_ROWS}, {self.wide}], tl.float32, layout)")
        line("for step in range(steps):")
        self.writer.level += 1
        line(f"at = done % {stages}")
        line(f"hopper.mbarrier.wait(full.index(at), (done // {stages}) & 1)")
        line(f"left = left_mem.index(at * {GROUPS} + GROUP)")
        line(f"right = right_mem.index(at){'.permute((1, 0))' if self.found.transposed else ''}")
        line("begun = hopper.warpgroup_mma(left, right, sums, is_async=True)")
        line("sums = hopper.warpgroup_mma_wait(1, deps=(begun,))")
        self.writer.comment("the step before has ended, and its slices are free")
        line("if step > 0:")
        line(f"    hopper.mbarrier.arrive(free.index((done + {stages - 1}) % {stages}), count=1)")
        line("done += 1")
        self.writer.level -= 1
        line("sums = hopper.warpgroup_mma_wait(0, deps=(sums,))")
        line(f"hopper.mbarrier.arrive(free.index((done + {stages - 1}) % {stages}), count=1)")
        self._store()
        self.writer.level -= 1
        line("hopper.tma.store_wait(0)")
        arguments = "GROUP: gl.constexpr, GROUP_M: gl.constexpr, WIDE: gl.constexpr, tiles, memory, barriers, given"
        return self._function("group", arguments, f"What one group of warps does: {GROUP_ROWS} rows at a time.")

    @staticmethod
    def _layout(columns: int) -> str:
        """Where the threads of a group have sums."""
        return f"tl.NVMMADistributedLayout([3, 0], [4, 1], [16, {columns}, 16])"

    def _pieces(self) -> list[str]:
        """Lines that take the tile apart, in the registers where it is. Returns: names of the pieces, of each product one
        after the other."""
        line, pieces, width = self.writer.line, ["sums"], self.wide
        while width > self.columns // self.parts:
            width //= 2
            layout, halves = ("halves" if len(pieces) == 1 else "quarters"), list[str]()
            line(f"{layout}: tl.constexpr = {self._layout(width)}")
            for piece in pieces:
                names = [f"{piece}_{side}" for side in ("left", "right")]
                cut = f"{piece}.reshape([{GROUP_ROWS}, 2, {width}]).permute((0, 2, 1)).split()"
                line(f"{', '.join(names)} = {cut}")
                for name in names:
                    line(f"{name} = tl.convert_layout({name}, {layout}, assert_trivial=True)")
                halves += names
            pieces = halves
        return pieces

    def _store(self) -> None:
        """Work on the tile and write it, part by part, by way of shared memory."""
        line, width, name = self.writer.line, self.columns // self.parts, self.name
        pieces = self._pieces()
        line(f"own = block_m * {ROWS} + GROUP * {GROUP_ROWS}")
        for part in range(self.parts):
            line(f"first = block_n * {self.columns}{f' + {part * width}' if part else ''}")
            sums = ", ".join(pieces[part :: self.parts])
            line(f"made = {name}_result({sums}, WIDE, own, first, given)")
            line("hopper.tma.store_wait(0)")
            line("made_mem.index(GROUP).store(made.to(made_mem.dtype))")
            line("hopper.fence_async_shared()")
            line(f"{name}_store(result_tiles, [own, first], made_mem.index(GROUP))")

    def _loads(self) -> str:
        """What the warp does that has slices loaded."""
        line, name, stages = self.writer.line, self.name, self.stages
        self._unpack()
        self._own_tiles()
        line("for step in range(steps):")
        self.writer.level += 1
        line(f"at = done % {stages}")
        line(f"hopper.mbarrier.wait(free.index(at), ((done // {stages}) & 1) ^ 1)")
        line(f"hopper.mbarrier.expect(full.index(at), {2 * (ROWS + self.wide) * self.inner})")
        line(f"start = step * {self.inner}")
        line(f"for group in tl.static_range({GROUPS}):")
        row = f"block_m * {ROWS} + group * {GROUP_ROWS}"
        line(f"    {name}_load(left_tiles, [{row}, start], full.index(at), left_mem.index(at * {GROUPS} + group))")
        column, last = f"block_n * {self.columns}", self.found.transposed
        where = f"[{column}, start]" if last else f"[start, {column}]"
        for place, table in enumerate(self.tables[1:-1]):
            own = f".slice({place * self.columns}, {self.columns}, {int(not last)})" if self.count > 1 else ""
            line(f"{name}_load({table}, {where}, full.index(at), right_mem.index(at){own})")
        line("done += 1")
        self.writer.level -= 2
        arguments = "GROUP_M: gl.constexpr, tiles, memory, barriers, given"
        return self._function("loads", arguments, "What the warp does that has slices of the operands loaded.")

    def _kernel(self, constants: Sequence[str]) -> str:
        """The kernel itself: memory, barriers, and who does what."""
        writer, line, stages, inner = self.writer, self.writer.line, self.stages, self.inner
        right = f"{self.wide}, {inner}" if self.found.transposed else f"{inner}, {self.wide}"
        for memory, table, shape in (
            ("left_mem", "left_tiles", f"{stages * GROUPS}, {GROUP_ROWS}, {inner}"),
            ("right_mem", self.tables[1], f"{stages}, {right}"),
            ("made_mem", "result_tiles", f"{GROUPS}, {GROUP_ROWS}, {self.columns // self.parts}"),
        ):
            line(f"{memory} = tl.allocate_shared_memory({table}.dtype, [{shape}], {table}.layout)")
        for name in BARRIERS:
            line(f"{name} = tl.allocate_shared_memory(tl.int64, [{stages}, 1], hopper.mbarrier.MBarrierLayout())")
        line(f"for at in tl.static_range({stages}):")
        line("    hopper.mbarrier.init(full.index(at), count=1)")
        line(f"    hopper.mbarrier.init(free.index(at), count={GROUPS})")
        line("hopper.fence_async_shared()")
        line(f"steps = tl.cdiv({writer.size(self.found.k)}, {inner})")
        for part, names in (
            ("tiles", self.tables),
            ("memory", MEMORY),
            ("barriers", BARRIERS),
            ("given", self._given()),
        ):
            line(f"{part} = ({', '.join(names)})")
        shared = "tiles, memory, barriers, given"
        line("tl.warp_specialize(")
        line("    [")
        for group in range(GROUPS):
            line(f"        ({self.name}_group, ({group}, GROUP_M, WIDE, {shared})),")
        line(f"        ({self.name}_loads, (GROUP_M, {shared})),")
        line("    ],")
        line(f"    [{', '.join(['4'] * (GROUPS - 1) + ['1'])}],")
        line(f"    [{', '.join(map(str, needed_registers(GROUPS)))}],")
        line(")")
        given = given_names(writer)
        pointers = [each for each in given if each.endswith("_ptr")]
        others = [each for each in given if not each.endswith("_ptr")]
        parameters = ", ".join([*pointers, *self.tables, *others, *(f"{each}: gl.constexpr" for each in constants)])
        tiles = f"{ROWS} x {self.columns} tiles of the product, one after the other, by {GROUPS} groups."
        doc = f"{', '.join(self.stage.ops)}: {tiles}"
        return self._function("kernel", parameters, doc)
