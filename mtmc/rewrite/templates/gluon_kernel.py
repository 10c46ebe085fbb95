"""gluon_kernel: attention's kernel in Gluon for Hopper, with groups of warps that each have work of their own.

A program has 64 rows (queries) of one head for each group of four warps. One more warp does nothing but have blocks of
keys and values brought to shared memory by the tensor memory accelerator. A group starts the next block's scores, then the
last block's weighted sum of values, and works out exponentials while the tensor cores are at it.

With "persistent" so many programs make several such blocks each, see gluon_programs.py: the loading warp is ahead, so that a
block's first keys come while the last one's result is written.

Keys may be taken from the last to the first, so that masks are in the first step alone, see gluon_keys.py.

Where groups take turns, the first starts its products, then the second its own, and so on: one group's exponentials are
worked out during another one's products, rather than all groups' at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from mtmc.rewrite.body import Body
from mtmc.rewrite.folding import INDENT
from mtmc.rewrite.graph import Graph
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.templates import attention_tiles as tiles
from mtmc.rewrite.templates.attention_shares import factor_line
from mtmc.rewrite.templates.gluon_keys import keys_of
from mtmc.rewrite.templates.gluon_memory import Memory
from mtmc.rewrite.templates.gluon_programs import OF_BLOCK, Programs, write_range
from mtmc.rewrite.templates.gluon_scaling import is_joined
from mtmc.rewrite.templates.gluon_text import needed_registers
from mtmc.rewrite.templates.gluon_tiles import GROUP_ROWS, TileFunctions, taken
from mtmc.rewrite.templates.shares import crowded
from mtmc.rewrite.templates.softmax_product import SoftmaxProduct, analyse

RESCALED = "out = out * tl.expand_dims(tl.convert_layout(scale, tl.SliceLayout(1, out_layout)), 1)"
"""Earlier blocks' sums come to the scale of the largest score."""


class GluonKernel:
    """The functions of one kernel in the making. Raises: NotCovered where something cannot be said in Gluon."""

    slots = 1
    """Blocks of queries that a program has in shared memory at once."""

    def __init__(self, graph: Graph, body: Body, stage: Stage, name: str) -> None:
        self.body, self.stage, self.name = body, stage, name
        self.found: SoftmaxProduct = analyse(graph, body)
        schedule = dict(stage.schedule)
        self.groups = stage.number("block_m") // GROUP_ROWS
        self.keys, self.stages = keys_of(self.found, schedule), stage.number("num_stages")
        self.columns = self.keys.columns
        self.late = schedule.get("rescale") == "late"
        self.turns, self.heavy = bool(schedule.get("turns", 0)), schedule.get("order") == "heavy"
        self.programs = Programs(stage.number("persistent") if "persistent" in schedule else 0, self.heavy)
        places = (self.groups, self.columns, self.stages, self.slots)
        self.memory = Memory(*places, self.programs.several, self.turns)
        self.tiles = TileFunctions(graph, body, self.found, name, self.columns, is_joined(schedule))
        self.writer = self.tiles.writer

    def text(self, constants: Sequence[str]) -> str:
        """All functions. constants: names of the kernel's compile-time arguments."""
        writer, found = self.writer, self.found
        self.tiles.begin()
        self.programs.begin(writer, found, self.body)
        read = (found.query, found.regions[0].key, found.regions[0].value)
        digits = [tiles.narrow(tiles.digits(writer, found, value)) for value in read]
        parts = [self.tiles.scores(), self.tiles.softmax(), self.tiles.result()]
        if self.programs.several:
            parts.append(self._place())
        parts += [*self._group(digits[0]), self._loads(digits)]
        parts.append(self._kernel(constants))
        unpacked = f"{INDENT}{', '.join(self.tiles.given())} = given"
        return "\n\n\n".join(part.replace(f"{INDENT}UNPACKED", unpacked) for part in parts)

    def _unpack(self, count: int = 4) -> None:
        """What is handed on in tuples. count: of the tuples, the first ones."""
        names = (tiles.TABLES, self.memory.tiles, self.memory.barriers, self.programs.place)
        for part, each in list(zip(("tiles", "memory", "barriers", "place"), names, strict=True))[:count]:
            self.writer.line(f"{', '.join(each)} = {part}")

    def _own_blocks(self) -> None:
        """The head of a loop over the program's blocks of queries, where it has several."""
        if self.programs.several:
            self.writer.line("done = 0")
            self.writer.line("for turn in range(rounds):")
            self.writer.level += 1
            self.writer.line(f"{', '.join(OF_BLOCK)} = {self.name}_place(turn, WIDE, given)")

    def _at(self, step: str) -> str:
        """The number of a block of keys among all that the program takes."""
        return f"(done + {step})" if self.programs.several else step if step.isalnum() else f"({step})"

    def _layouts(self) -> None:
        """What a group is given, and where its threads have scores, weights and sums."""
        line = self.writer.line
        self._unpack()
        line("UNPACKED")
        line("BLOCK_K: tl.constexpr = q_mem.shape[-1]")
        line(f"scores_layout: tl.constexpr = tl.NVMMADistributedLayout([3, 0], [4, 1], [16, {self.columns}, 16])")
        line("out_layout: tl.constexpr = tl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_K, 16])")
        line("weights_layout: tl.constexpr = tl.DotOperandLayout(0, out_layout, 2)")

    def _nothing_kept(self) -> None:
        """What is kept of each row, before a block's first scores."""
        for name in self.tiles.kept.split(", "):
            value = 'float("-inf")' if name == "top" else "0.0"
            layout = "tl.SliceLayout(1, scores_layout)"
            self.writer.line(f"{name} = tl.full([{GROUP_ROWS}], {value}, tl.float32, {layout})")

    def _own_row(self) -> None:
        self.writer.line(f"own = block * {self.groups * GROUP_ROWS} + GROUP * {GROUP_ROWS}")

    def _first(self) -> tuple[str, str]:
        """Where the first block of keys lies that a group sees, and its barriers' phase."""
        number, stages = (
            self._at("skipped") if self.keys.skips else "done" if self.programs.several else "",
            self.stages,
        )
        return (f"{number} % {stages}", f"({number} // {stages}) & 1") if number else ("0", "0")

    def _first_softmax(self, at: str, prefix: str = "", where: str = "") -> None:
        """Lines from a block's first product on. prefix: of what is not kept. where: there are keys to free."""
        line, scores, weights = self.writer.line, f"{prefix}scores", f"{prefix}weights"
        line(f"hopper.mbarrier.arrive(k_free.index({at}), count=1{where})")
        start = self.keys.start("skipped" if self.keys.skips else "")
        line(f"{scores} = {self.name}_scores({scores}, EVEN, own, {start}, batch, given)")
        line(f"{weights}, scale, {self.tiles.kept} = {self.name}_softmax({scores}, factor, {self.tiles.kept})")
        line(f"p = tl.convert_layout({weights}.to(q_mem.dtype), weights_layout)")

    def _group(self, digits: Sequence[str]) -> list[str]:
        """The functions of what one group of warps does."""
        line, columns, stages, several = self.writer.line, self.columns, self.stages, self.programs.several
        self._layouts()
        self._own_blocks()
        self._nothing_kept()
        line(f"out = tl.zeros([{GROUP_ROWS}, BLOCK_K], tl.float32, out_layout)")
        line(f"none = tl.zeros([{GROUP_ROWS}, {columns}], tl.float32, scores_layout)")
        self._own_row()
        line(f"q = q_mem.index(GROUP).reshape([{GROUP_ROWS}, BLOCK_K])")
        self._count_skipped()
        self._skip()
        at, phase = self._first()
        line(f"hopper.mbarrier.wait(q_full, {'turn & 1' if several else 0})")
        line(f"hopper.mbarrier.wait(k_full.index({at}), {phase})")
        line(f"first_k = k_mem.index({at}).reshape([{columns}, BLOCK_K]).permute((1, 0))")
        line("begun = hopper.warpgroup_mma(q, first_k, none, use_acc=False, is_async=True)")
        line("scores = hopper.warpgroup_mma_wait(0, deps=(begun,))")
        self._first_softmax(at)
        line(f"hopper.mbarrier.wait(v_full.index({at}), {phase})")
        self._loop()
        if several:
            line("hopper.mbarrier.arrive(q_free, count=1)")
        if self.late:
            line(RESCALED)
        line(f"last = {self._at('steps - 1')} % {stages}")
        line(f"last_v = v_mem.index(last).reshape([{columns}, BLOCK_K])")
        line("ended = hopper.warpgroup_mma(p, last_v, out, is_async=True)")
        line("out = hopper.warpgroup_mma_wait(0, deps=(ended,))")
        if several:
            line("hopper.mbarrier.arrive(v_free.index(last), count=1)")
        self._store(digits)
        if several:
            line("done += steps")
            self.writer.level -= 1
        line("hopper.tma.store_wait(0)")
        return [self._function()]

    def _function(self) -> str:
        """What one group of warps does, of the lines written so far."""
        wide, each = (" WIDE: gl.constexpr,", " at a time") if self.programs.several else ("", "")
        arguments = f"GROUP: gl.constexpr, EVEN: gl.constexpr,{wide} tiles, memory, barriers, place, given"
        doc = f"What one group of warps does: {GROUP_ROWS} rows{each}."
        return self.tiles.function("group", arguments, doc, taken(self.writer))

    def _store(self, digits: Sequence[str]) -> None:
        """Divide, and write the results: by way of the queries' place or, where others come there, of one of its own."""
        line, several = self.writer.line, self.programs.several
        line("total = tl.expand_dims(tl.convert_layout(total, tl.SliceLayout(1, out_layout)), 1)")
        line(f"out = {self.found.quotient('out', 'total')}")
        memory, place = ("made_mem", "made") if several else ("q_mem", "q")
        if several:
            line(f"made = made_mem.index(GROUP).reshape([{GROUP_ROWS}, BLOCK_K])")
            line("hopper.tma.store_wait(0)")
        line(f"{place}.store({self.name}_result(out, own, batch, given).to(q_mem.dtype))")
        line("hopper.fence_async_shared()")
        line(f"{self.name}_store(result_tiles, [{', '.join([*digits, 'own', '0'])}], {memory}.index(GROUP))")

    def _count_skipped(self) -> None:
        """How many blocks of keys only other groups see."""
        if self.keys.skips:
            self.writer.line(f"skipped = {self.keys.skipped(self.tiles.n_cols)}")

    def _skip(self, first: str = "step") -> None:
        """Blocks of keys that others see: a group waits for them and frees them. first: its number of turns before."""
        line, stages = self.writer.line, self.stages
        if not self.keys.skips:
            return
        line("for step in range(skipped):")
        self.writer.level += 1
        line(f"at = {self._at('step')} % {stages}")
        self._wait_for_turn(first)
        self._pass_turn()
        for kind in "kv":  # freed before it came, a block would count for the one before it at this place
            line(f"hopper.mbarrier.wait({kind}_full.index(at), ({self._at('step')} // {stages}) & 1)")
            line(f"hopper.mbarrier.arrive({kind}_free.index(at), count=1)")
        self.writer.level -= 1

    def _wait_for_turn(self, number: str) -> None:
        """number: how many turns of this block of queries came before."""
        if self.turns:
            phase = f"({self._turns_before} + {number}) & 1" if self.programs.several else f"({number}) & 1"
            self.writer.line(f"hopper.mbarrier.wait(turns.index(GROUP), {phase} if GROUP > 0 else ({phase}) ^ 1)")

    @property
    def _turns_before(self) -> str:
        """How many turns a group had in earlier blocks, whose first products have none."""
        return "done - turn"

    def _pass_turn(self) -> None:
        if self.turns:
            self.writer.line(f"hopper.mbarrier.arrive(turns.index((GROUP + 1) % {self.groups}), count=1)")

    def _loop(self) -> None:
        """Each turn starts a block's scores and adds the values of the one before."""
        line, columns, stages = self.writer.line, self.columns, self.stages
        line(f"for step in range({'skipped + 1' if self.keys.skips else 1}, steps):")
        self.writer.level += 1
        line(f"at = {self._at('step')} % {stages}")
        line(f"before = {self._at('step - 1')} % {stages}")
        line(f"hopper.mbarrier.wait(k_full.index(at), ({self._at('step')} // {stages}) & 1)")
        self._wait_for_turn("step - 1")
        line(f"k = k_mem.index(at).reshape([{columns}, BLOCK_K]).permute((1, 0))")
        line("begun = hopper.warpgroup_mma(q, k, none, use_acc=False, is_async=True)")
        if self.late:
            line(RESCALED)
        line(f"v = v_mem.index(before).reshape([{columns}, BLOCK_K])")
        line("summed = hopper.warpgroup_mma(p, v, out, is_async=True)")
        self._pass_turn()
        line("scores = hopper.warpgroup_mma_wait(1, deps=(begun,))")
        line("hopper.mbarrier.arrive(k_free.index(at), count=1)")
        if not self.keys.backward:
            line(f"scores = {self.name}_scores(scores, EVEN, own, {self.keys.start('step')}, batch, given)")
        line(f"weights, scale, {self.tiles.kept} = {self.name}_softmax(scores, factor, {self.tiles.kept})")
        # ptxas has the exponentials wait for the weighted sum, unless there is a branch between them.
        line("next_p = tl.convert_layout(weights.to(q_mem.dtype), weights_layout)")
        line(f"hopper.mbarrier.wait(v_full.index(at), ({self._at('step')} // {stages}) & 1)")
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
        self._own_blocks()
        full = self.memory.query_barrier("turn")
        if self.programs.several:
            free, phase = self.memory.query_barrier("turn", "free"), self.memory.query_phase("turn")
            line(f"hopper.mbarrier.wait({free}, ({phase}) ^ 1)")
        line(f"hopper.mbarrier.expect({full}, {2 * self.groups * GROUP_ROWS} * BLOCK_K)")
        line(f"for group in tl.static_range({self.groups}):")
        row, where = f"block * {self.groups * GROUP_ROWS} + group * {GROUP_ROWS}", self.memory.queries("turn", "group")
        line(f"    {self.name}_load(query_tiles, [{query}, {row}, 0], {full}, {where})")
        line("for step in range(steps):")
        writer.level += 1
        line(f"at = {self._at('step')} % {self.stages}")
        line(f"phase = (({self._at('step')} // {self.stages}) & 1) ^ 1")
        for kind, role, place in (("k", "key", key), ("v", "value", value)):
            line(f"hopper.mbarrier.wait({kind}_free.index(at), phase)")
            line(f"hopper.mbarrier.expect({kind}_full.index(at), {2 * self.columns} * BLOCK_K)")
            where = f"[{place}, {self.keys.start('step')}, 0]"
            line(f"{self.name}_load({role}_tiles, {where}, {kind}_full.index(at), {kind}_mem.index(at))")
        writer.level -= 1
        if self.programs.several:
            line("done += steps")
            writer.level -= 1
        arguments = f"{'WIDE: gl.constexpr, ' if self.programs.several else ''}tiles, memory, barriers, place, given"
        doc = "What the warp does that has queries, keys and values loaded."
        return self.tiles.function("loads", arguments, doc, taken(self.writer))

    def _place(self) -> str:
        """Which block of queries a program makes in a turn, where it makes several."""
        writer = self.writer
        writer.line("UNPACKED")
        self.programs.write_place(writer, self.n_blocks)
        write_range(self.tiles, self.groups * GROUP_ROWS)
        writer.line(f"return {', '.join(OF_BLOCK)}")
        doc = "The head and the block of queries of a program's turn, its first column, and how many blocks of columns."
        return self.tiles.function("place", "turn, WIDE: gl.constexpr, given", doc, taken(writer))

    @property
    def n_blocks(self) -> str:
        """How many blocks of queries a head has."""
        return f"tl.cdiv({self.tiles.n_rows}, {self.groups * GROUP_ROWS})"

    def _kernel(self, constants: Sequence[str]) -> str:
        """The kernel itself: memory, barriers, which columns a program sees, and who does what."""
        writer, line, batch, several = self.writer, self.writer.line, self.found.batch, self.programs.several
        self.memory.write(writer, len(batch))
        if several:
            self.programs.write_rounds(writer, self.n_blocks)
        else:
            self._own_block()
        line(factor_line(writer, self.found))
        line(f"tiles = ({', '.join(tiles.TABLES)})")
        line(f"memory = ({', '.join(self.memory.tiles)})")
        line(f"barriers = ({', '.join(self.memory.barriers)})")
        line(f"place = ({', '.join(self.programs.place)})")
        line("GIVEN")
        self._specialize()
        given = self.tiles.given()
        lines = [each.replace("GIVEN", f"given = ({', '.join(given)})") for each in taken(self.writer)]
        names = [*[each for each in given if each.endswith("_ptr")], *tiles.TABLES,
                 *[each for each in given if not each.endswith("_ptr")]]  # fmt: skip
        parameters = ", ".join([*names, *(f"{name}: gl.constexpr" for name in constants)])
        each = "a program" if not several else "at a time"
        rows = f"{self.groups * GROUP_ROWS} rows of one head {each}, by {self.groups} groups."
        return self.tiles.function("kernel", parameters, f"{', '.join(self.stage.ops)}: {rows}", lines)

    def _own_block(self) -> None:
        """Which block of queries a program makes that makes one."""
        writer, line, batch = self.writer, self.writer.line, self.found.batch
        line(f"batch = tl.program_id({int(not crowded(batch))})")
        writer.widen("batch")
        program = int(crowded(batch))
        if self.heavy:
            writer.comment("blocks with the most columns come first")
            line(f"block = tl.num_programs({program}) - 1 - tl.program_id({program})")
        else:
            line(f"block = tl.program_id({program})")
        write_range(self.tiles, self.groups * GROUP_ROWS)

    def _specialize(self) -> None:
        """Who does what."""
        line, wide = self.writer.line, "WIDE, " if self.programs.several else ""
        shared = f"{wide}tiles, memory, barriers, place, given"
        who = [f"({self.name}_group, ({group}, EVEN, {shared}))" for group in range(self.groups)]
        who.append(f"({self.name}_loads, ({shared}))")
        warps, registers = ", ".join(["4"] * (self.groups - 1) + ["1"]), needed_registers(self.groups)
        line("tl.warp_specialize(")
        line(f"    [{', '.join(who)}],")
        line(f"    [{warps}],")
        line(f"    [{', '.join(map(str, registers))}],")
        line(")")
