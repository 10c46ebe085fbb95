"""gluon_kernel: attention's kernel in Gluon for Hopper, with groups of warps that each have work of their own.

A program has 64 rows (queries) of one head for each group of four warps. One more warp does nothing but have blocks of
keys and values brought to shared memory by the tensor memory accelerator. A group starts the next block's scores, then the
last block's weighted sum of values, and works out exponentials while the tensor cores are at it.

Where groups take turns, the first starts its products, then the second its own, and so on: one group's exponentials are
worked out during another one's products, rather than all groups' at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from mtmc.rewrite.body import Body
from mtmc.rewrite.graph import Graph
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.templates import attention_tiles as tiles
from mtmc.rewrite.templates.attention_bounds import write_window
from mtmc.rewrite.templates.attention_shares import factor_line
from mtmc.rewrite.templates.gluon_scaling import is_joined
from mtmc.rewrite.templates.gluon_text import needed_registers
from mtmc.rewrite.templates.gluon_tiles import GROUP_ROWS, TileFunctions, taken
from mtmc.rewrite.templates.shares import crowded
from mtmc.rewrite.templates.softmax_product import SoftmaxProduct, analyse
from mtmc.rewrite.templates.writer import INDENT

BARRIERS = ("q_full", "k_full", "v_full", "k_free", "v_free")
RESCALED = "out = out * tl.expand_dims(tl.convert_layout(scale, tl.SliceLayout(1, out_layout)), 1)"
"""Earlier blocks' sums come to the scale of the largest score."""
PLACE = ("batch", "block", "first", "steps", "factor")


class GluonKernel:
    """The functions of one kernel in the making. Raises: NotCovered where something cannot be said in Gluon."""

    def __init__(self, graph: Graph, body: Body, stage: Stage, name: str) -> None:
        self.stage, self.name = stage, name
        self.found: SoftmaxProduct = analyse(graph, body)
        schedule = dict(stage.schedule)
        self.groups = stage.number("block_m") // GROUP_ROWS
        self.columns, self.stages = stage.number("block_n"), stage.number("num_stages")
        self.late = schedule.get("rescale") == "late"
        self.turns, self.heavy = bool(schedule.get("turns", 0)), schedule.get("order") == "heavy"
        self.tiles = TileFunctions(graph, body, self.found, name, self.columns, is_joined(schedule))
        self.writer = self.tiles.writer

    def text(self, constants: Sequence[str]) -> str:
        """All functions. constants: names of the kernel's compile-time arguments."""
        writer, found = self.writer, self.found
        self.tiles.begin()
        read = (found.query, found.regions[0].key, found.regions[0].value)
        digits = [tiles.narrow(tiles.digits(writer, found, value)) for value in read]
        parts = [self.tiles.scores(), self.tiles.softmax(), self.tiles.result()]
        parts += [*self._group(digits[0]), self._loads(digits)]
        parts.append(self._kernel(constants))
        unpacked = f"{INDENT}{', '.join(self.tiles.given())} = given"
        return "\n\n\n".join(part.replace(f"{INDENT}UNPACKED", unpacked) for part in parts)

    def _unpack(self) -> None:
        writer, turns = self.writer, ["turns"] if self.turns else []
        writer.line(f"{', '.join(tiles.TABLES)} = tiles")
        writer.line("q_mem, k_mem, v_mem = memory")
        writer.line(f"{', '.join([*BARRIERS, *turns])} = barriers")
        writer.line(f"{', '.join(PLACE)} = place")

    def _group(self, digits: Sequence[str]) -> list[str]:
        """What one group of warps does."""
        line, columns = self.writer.line, self.columns
        self._unpack()
        line("UNPACKED")
        line("BLOCK_K: tl.constexpr = q_mem.shape[-1]")
        line(f"scores_layout: tl.constexpr = tl.NVMMADistributedLayout([3, 0], [4, 1], [16, {columns}, 16])")
        line("out_layout: tl.constexpr = tl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_K, 16])")
        line("weights_layout: tl.constexpr = tl.DotOperandLayout(0, out_layout, 2)")
        for name in self.tiles.kept.split(", "):
            value = 'float("-inf")' if name == "top" else "0.0"
            line(f"{name} = tl.full([{GROUP_ROWS}], {value}, tl.float32, tl.SliceLayout(1, scores_layout))")
        line(f"out = tl.zeros([{GROUP_ROWS}, BLOCK_K], tl.float32, out_layout)")
        line(f"none = tl.zeros([{GROUP_ROWS}, {columns}], tl.float32, scores_layout)")
        line(f"own = block * {self.groups * GROUP_ROWS} + GROUP * {GROUP_ROWS}")
        line(f"q = q_mem.index(GROUP).reshape([{GROUP_ROWS}, BLOCK_K])")
        line("hopper.mbarrier.wait(q_full, 0)")
        line("hopper.mbarrier.wait(k_full.index(0), 0)")
        line(f"first_k = k_mem.index(0).reshape([{columns}, BLOCK_K]).permute((1, 0))")
        line("begun = hopper.warpgroup_mma(q, first_k, none, use_acc=False, is_async=True)")
        line("scores = hopper.warpgroup_mma_wait(0, deps=(begun,))")
        line("hopper.mbarrier.arrive(k_free.index(0), count=1)")
        line(f"scores = {self.name}_scores(scores, EVEN, own, first, batch, given)")
        line(f"weights, scale, {self.tiles.kept} = {self.name}_softmax(scores, factor, {self.tiles.kept})")
        line("p = tl.convert_layout(weights.to(q_mem.dtype), weights_layout)")
        line("hopper.mbarrier.wait(v_full.index(0), 0)")
        self._loop()
        if self.late:
            line(RESCALED)
        line(f"last = (steps - 1) % {self.stages}")
        line(f"last_v = v_mem.index(last).reshape([{columns}, BLOCK_K])")
        line("ended = hopper.warpgroup_mma(p, last_v, out, is_async=True)")
        line("out = hopper.warpgroup_mma_wait(0, deps=(ended,))")
        line("total = tl.expand_dims(tl.convert_layout(total, tl.SliceLayout(1, out_layout)), 1)")
        line(f"out = {self.found.quotient('out', 'total')}")
        line(f"q.store({self.name}_result(out, own, batch, given).to(q_mem.dtype))")
        line("hopper.fence_async_shared()")
        line(f"{self.name}_store(result_tiles, [{', '.join([*digits, 'own', '0'])}], q_mem.index(GROUP))")
        line("hopper.tma.store_wait(0)")
        arguments = "GROUP: gl.constexpr, EVEN: gl.constexpr, tiles, memory, barriers, place, given"
        return [self.tiles.function("group", arguments, "What one group of warps does: 64 rows.", taken(self.writer))]

    def _loop(self) -> None:
        """Each turn starts a block's scores and adds the values of the one before."""
        line, columns, stages = self.writer.line, self.columns, self.stages
        line("for step in range(1, steps):")
        self.writer.level += 1
        line(f"at = step % {stages}")
        line(f"before = (step - 1) % {stages}")
        line(f"hopper.mbarrier.wait(k_full.index(at), (step // {stages}) & 1)")
        if self.turns:
            phase = "(step - 1) & 1"
            line(f"hopper.mbarrier.wait(turns.index(GROUP), {phase} if GROUP > 0 else ({phase}) ^ 1)")
        line(f"k = k_mem.index(at).reshape([{columns}, BLOCK_K]).permute((1, 0))")
        line("begun = hopper.warpgroup_mma(q, k, none, use_acc=False, is_async=True)")
        if self.late:
            line(RESCALED)
        line(f"v = v_mem.index(before).reshape([{columns}, BLOCK_K])")
        line("summed = hopper.warpgroup_mma(p, v, out, is_async=True)")
        if self.turns:
            line(f"hopper.mbarrier.arrive(turns.index((GROUP + 1) % {self.groups}), count=1)")
        line("scores = hopper.warpgroup_mma_wait(1, deps=(begun,))")
        line("hopper.mbarrier.arrive(k_free.index(at), count=1)")
        line(f"scores = {self.name}_scores(scores, EVEN, own, first + step * {columns}, batch, given)")
        line(f"weights, scale, {self.tiles.kept} = {self.name}_softmax(scores, factor, {self.tiles.kept})")
        # ptxas has the exponentials wait for the weighted sum, unless there is a branch between them.
        line("next_p = tl.convert_layout(weights.to(q_mem.dtype), weights_layout)")
        line(f"hopper.mbarrier.wait(v_full.index(at), (step // {stages}) & 1)")
        line("out = hopper.warpgroup_mma_wait(0, deps=(summed,))")
        line("hopper.mbarrier.arrive(v_free.index(before), count=1)")
        if not self.late:
            line(RESCALED)
        line("p = next_p")
        self.writer.level -= 1

    def _loads(self, digits: Sequence[Sequence[str]]) -> str:
        """What the warp does that has tiles loaded."""
        writer, line = self.writer, self.writer.line
        query, key, value = (", ".join(each) for each in digits)
        self._unpack()
        line("UNPACKED")
        line("BLOCK_K: tl.constexpr = q_mem.shape[-1]")
        line(f"hopper.mbarrier.expect(q_full, {2 * self.groups * GROUP_ROWS} * BLOCK_K)")
        line(f"for group in tl.static_range({self.groups}):")
        row = f"block * {self.groups * GROUP_ROWS} + group * {GROUP_ROWS}"
        line(f"    {self.name}_load(query_tiles, [{query}, {row}, 0], q_full, q_mem.index(group))")
        line("for step in range(steps):")
        writer.level += 1
        line(f"at = step % {self.stages}")
        line(f"phase = ((step // {self.stages}) & 1) ^ 1")
        for kind, role, place in (("k", "key", key), ("v", "value", value)):
            line(f"hopper.mbarrier.wait({kind}_free.index(at), phase)")
            line(f"hopper.mbarrier.expect({kind}_full.index(at), {2 * self.columns} * BLOCK_K)")
            where = f"[{place}, first + step * {self.columns}, 0]"
            line(f"{self.name}_load({role}_tiles, {where}, {kind}_full.index(at), {kind}_mem.index(at))")
        writer.level -= 1
        arguments = "tiles, memory, barriers, place, given"
        doc = "What the warp does that has queries, keys and values loaded."
        return self.tiles.function("loads", arguments, doc, taken(self.writer))

    def _kernel(self, constants: Sequence[str]) -> str:
        """The kernel itself: memory, barriers, which columns a program sees, and who does what."""
        writer, line, batch = self.writer, self.writer.line, self.found.batch
        ones = ", 1" * len(batch)
        line(f"q_mem = tl.allocate_shared_memory(query_tiles.dtype, [{self.groups}{ones}, {GROUP_ROWS}, BLOCK_K], "
             "query_tiles.layout)")  # fmt: skip
        for kind, role in (("k", "key"), ("v", "value")):
            shape = f"[{self.stages}{ones}, {self.columns}, BLOCK_K]"
            line(f"{kind}_mem = tl.allocate_shared_memory({role}_tiles.dtype, {shape}, {role}_tiles.layout)")
        self._barriers()
        line(f"batch = tl.program_id({int(not crowded(batch))})")
        line("if WIDE:  # more elements than a 32-bit offset can reach")
        line("    batch = batch.to(tl.int64)")
        program = int(crowded(batch))
        if self.heavy:
            writer.comment("blocks with the most columns come first")
            line(f"block = tl.num_programs({program}) - 1 - tl.program_id({program})")
        else:
            line(f"block = tl.program_id({program})")
        self._range()
        line(factor_line(writer, self.found))
        turns = ["turns"] if self.turns else []
        line(f"tiles = ({', '.join(tiles.TABLES)})")
        line("memory = (q_mem, k_mem, v_mem)")
        line(f"barriers = ({', '.join([*BARRIERS, *turns])})")
        line(f"place = ({', '.join(PLACE)})")
        line("GIVEN")
        shared = "tiles, memory, barriers, place, given"
        who = [f"({self.name}_group, ({group}, EVEN, {shared}))" for group in range(self.groups)]
        who.append(f"({self.name}_loads, ({shared}))")
        warps, registers = ", ".join(["4"] * (self.groups - 1) + ["1"]), needed_registers(self.groups)
        line("tl.warp_specialize(")
        line(f"    [{', '.join(who)}],")
        line(f"    [{warps}],")
        line(f"    [{', '.join(map(str, registers))}],")
        line(")")
        given = self.tiles.given()
        lines = [each.replace("GIVEN", f"given = ({', '.join(given)})") for each in taken(self.writer)]
        names = [*[each for each in given if each.endswith("_ptr")], *tiles.TABLES,
                 *[each for each in given if not each.endswith("_ptr")]]  # fmt: skip
        parameters = ", ".join([*names, *(f"{name}: gl.constexpr" for name in constants)])
        doc = f"{', '.join(self.stage.ops)}: {self.groups * GROUP_ROWS} rows of one head a program, by {self.groups} groups."
        return self.tiles.function("kernel", parameters, doc, lines)

    def _barriers(self) -> None:
        line = self.writer.line
        turns = ["turns"] if self.turns else []
        counts = {"q_full": 0, "turns": self.groups}
        for name in (*BARRIERS, *turns):
            count = counts.get(name, self.stages)
            shape = f"[{count}, 1]" if count else "[1]"
            line(f"{name} = tl.allocate_shared_memory(tl.int64, {shape}, hopper.mbarrier.MBarrierLayout())")
        line("hopper.mbarrier.init(q_full, count=1)")
        line(f"for at in tl.static_range({self.stages}):")
        for name in BARRIERS[1:]:
            count = self.groups if name.endswith("free") else 1
            line(f"    hopper.mbarrier.init({name}.index(at), count={count})")
        if self.turns:
            line(f"for at in tl.static_range({self.groups}):")
            line("    hopper.mbarrier.init(turns.index(at), count=1)")
        line("hopper.fence_async_shared()")

    def _range(self) -> None:
        """From which column on a program looks, and at how many blocks."""
        writer, found = self.writer, self.found
        first, last, rows = "0", self.tiles.n_cols, self.groups * GROUP_ROWS
        if self.tiles.window is not None and self.tiles.window.of_places:
            write_window(writer, found, self.tiles.window, "block")
            bounds, writer.lines = writer.lines[-2:], writer.lines[:-2]
            writer.lines += [
                each.replace("BLOCK_M", str(rows)).replace("BLOCK_N", str(self.columns)) for each in bounds
            ]
            first, last = "first", "last"
        elif found.causal:
            writer.line(f"last = tl.minimum({self.tiles.n_cols}, (block + 1) * {rows})")
            last = "last"
        if first != "first":
            writer.line(f"first = {first}")
        span = f"{last} - first" if first == "first" else last
        writer.line(f"steps = tl.maximum(tl.cdiv({span}, {self.columns}), 1)")
