"""gluon_overlap: persistent attention in Gluon whose blocks of queries are one pipeline (the setting "overlap").

Without it a block's first scores and softmax, and its last weighted sum, overlap with nothing in their group. With it,
a group starts the next block's first scores and then this block's last weighted sum, as in any other step: the first
softmax of the next block is worked out during that sum, which is then divided and stored. The next queries have a place
of their own, and which they are is worked out during the products, but where that says which keys come first.

A program's last block has no next one. The same products are made of what lies in shared memory, once a program, and
nothing is kept of them: a branch around products makes ptxas spill sums (read off its code for heads of 64 and of 128).

Why nobody waits in a circle. The loading warp brings k(i), v(i), k(i + 1), v(i + 1), ..., through all blocks of
queries. A group that still needs v(i) waits for k(i + 1), which takes the place of a k that all have read, as within a
block. A group that skips m blocks of keys (see gluon_keys) waits for k(i + m + 1), hence for v(i + m) before it: all of
v(i), ..., v(i + m) must have places at once, so m is less than the number of stages. Values of the next block are
waited for once v(i) is free.

Where groups take turns, each step has one but a program's first, also what follows the last block.
"""

from __future__ import annotations

from collections.abc import Sequence

from mtmc.rewrite.body import Body, NotCovered
from mtmc.rewrite.graph import Graph
from mtmc.rewrite.plan import Setting, Stage
from mtmc.rewrite.templates.gluon_kernel import RESCALED, GluonKernel
from mtmc.rewrite.templates.gluon_programs import OF_BLOCK
from mtmc.rewrite.templates.gluon_tiles import GROUP_ROWS, taken


def overlaps(schedule: dict[str, Setting]) -> bool:
    """Whether a schedule's blocks of queries are one pipeline. Raises: NotCovered where they cannot be."""
    overlap = schedule.get("overlap", 0)
    if overlap not in (0, 1):
        raise NotCovered(f"overlap={overlap!r}: it is 0 or 1")
    if overlap and not schedule.get("persistent", 0):
        raise NotCovered("blocks of queries that overlap, of programs that make one each")
    return bool(overlap)


class OverlappedKernel(GluonKernel):
    """One whose groups begin the next block of queries before the last one's sums end."""

    slots = 2

    def __init__(self, graph: Graph, body: Body, stage: Stage, name: str) -> None:
        super().__init__(graph, body, stage, name)
        skipped = self.keys.most_skipped(self.groups * GROUP_ROWS)
        if skipped >= self.stages:
            raise NotCovered(
                f"blocks of queries that overlap, where {skipped} of keys are skipped in {self.stages} stages"
            )

    @property
    def _turns_before(self) -> str:
        return "done"

    def _group(self, digits: Sequence[str]) -> list[str]:
        """The functions of what one group of warps does."""
        line = self.writer.line
        write = self._write(digits)
        self._layouts()
        line(f"none = tl.zeros([{GROUP_ROWS}, {self.columns}], tl.float32, scores_layout)")
        line("done = 0")
        self._begin()
        line("for turn in range(rounds):")
        self.writer.level += 1
        at, phase = self._first()
        line(f"hopper.mbarrier.wait(v_full.index({at}), {phase})")
        line(f"out = tl.zeros([{GROUP_ROWS}, BLOCK_K], tl.float32, out_layout)")
        self._queries("q", "turn")
        self._loop()
        line(f"hopper.mbarrier.arrive({self.memory.query_barrier('turn', 'free')}, count=1)")
        line("number = done + steps - 1")
        line(f"last, last_phase = number % {self.stages}, (number // {self.stages}) & 1")
        line(f"last_v = v_mem.index(last).reshape([{self.columns}, BLOCK_K])")
        line("made_own, made_batch, made_total = own, batch, total")
        line("done += steps")
        self._both()
        line("hopper.mbarrier.arrive(v_free.index(last), count=1)")
        line(f"{self.name}_write(out, made_total, GROUP, made_own, made_batch, tiles, memory, given)")
        self.writer.level -= 1
        line("hopper.tma.store_wait(0)")
        return [write, self._function()]

    def _begin(self) -> None:
        """A program's first block of queries: its first weights. Names that are not kept are no others'."""
        line = self.writer.line
        self._place_of("0")
        self._skip()
        self._nothing_kept()
        at, phase = self._first()
        self._wait_for_first("0", at, phase)
        self._queries("first_q", "0")
        line(f"first_k = k_mem.index({at}).reshape([{self.columns}, BLOCK_K]).permute((1, 0))")
        line("first_begun = hopper.warpgroup_mma(first_q, first_k, none, use_acc=False, is_async=True)")
        line("first_scores = hopper.warpgroup_mma_wait(0, deps=(first_begun,))")
        self._first_softmax(at, "first_")

    def _place_of(self, turn: str) -> None:
        """Which queries those of a turn are."""
        self.writer.line(f"{', '.join(OF_BLOCK)} = {self.name}_place({turn}, WIDE, given)")
        self._own_row()
        self._count_skipped()

    def _both(self) -> None:
        """The next block's first scores and this one's last weighted sum."""
        line = self.writer.line
        following = "tl.minimum(turn + 1, rounds - 1)"
        line("more = turn + 1 < rounds")
        if self.keys.skips:
            self._place_of(following)
            line("skipped *= more.to(tl.int32)")
            self._skip(first="step - 1")
        at, phase = self._first()
        self._wait_for_first("(turn + 1)", at, phase, ", pred=more")
        self._wait_for_turn("skipped - 1" if self.keys.skips else "-1")
        self._queries("next_q", "(turn + 1)")
        line(f"next_k = k_mem.index({at}).reshape([{self.columns}, BLOCK_K]).permute((1, 0))")
        line("begun = hopper.warpgroup_mma(next_q, next_k, none, use_acc=False, is_async=True)")
        self._rescale_late()
        line("ended = hopper.warpgroup_mma(p, last_v, out, is_async=True)")
        self._pass_turn()
        if not self.keys.skips:
            self._place_of(following)
        line("scores = hopper.warpgroup_mma_wait(1, deps=(begun,))")
        self._nothing_kept()
        self._first_softmax(at, where=", pred=more")
        # They are there: it is the branch that keeps the exponentials in front of the wait for the sum, as in `_loop`.
        line("hopper.mbarrier.wait(v_full.index(last), last_phase)")
        line("out = hopper.warpgroup_mma_wait(0, deps=(ended,))")

    def _wait_for_first(self, turn: str, at: str, phase: str, where: str = "") -> None:
        """Wait for a block's queries and its first keys. where: there are some."""
        full, of_queries = self.memory.query_barrier(turn), self.memory.query_phase(turn)
        self.writer.line(f"hopper.mbarrier.wait({full}, {of_queries}{where})")
        self.writer.line(f"hopper.mbarrier.wait(k_full.index({at}), {phase}{where})")

    def _queries(self, name: str, turn: str) -> None:
        queries = self.memory.queries(turn, "GROUP")
        self.writer.line(f"{name} = {queries}.reshape([{GROUP_ROWS}, BLOCK_K])")

    def _rescale_late(self) -> None:
        if self.late:
            self.writer.line(RESCALED)

    def _write(self, digits: Sequence[str]) -> str:
        """The function that divides and stores a block's sums."""
        line = self.writer.line
        self._unpack(2)
        line("UNPACKED")
        line("BLOCK_K: tl.constexpr = q_mem.shape[-1]")
        line("out_layout: tl.constexpr = out.type.layout")
        self._store(digits)
        doc = "The results of a group's rows, from their weighted sums of values and the weights' sums on."
        arguments = "out, total, GROUP: gl.constexpr, own, batch, tiles, memory, given"
        return self.tiles.function("write", arguments, doc, taken(self.writer))
