"""gluon_memory: what attention in Gluon has in shared memory: tiles, and barriers for when they come and are free."""

from __future__ import annotations

from dataclasses import dataclass

from mtmc.rewrite.templates.gluon_tiles import GROUP_ROWS
from mtmc.rewrite.templates.writer import Writer

BARRIERS = ("q_full", "k_full", "v_full", "k_free", "v_free")


@dataclass(frozen=True)
class Memory:
    """groups: of warps. columns: of a block of keys. stages: blocks of keys and of values at once. slots: blocks of
    queries at once. several: whether a program makes several blocks of queries. turns: whether groups take turns."""

    groups: int
    columns: int
    stages: int
    slots: int
    several: bool
    turns: bool

    @property
    def tiles(self) -> tuple[str, ...]:
        """Names of tiles' places."""
        return ("q_mem", "k_mem", "v_mem", *(["made_mem"] if self.several else []))

    @property
    def barriers(self) -> tuple[str, ...]:
        """Names of barriers."""
        return (*BARRIERS, *(["q_free"] if self.several else []), *(["turns"] if self.turns else []))

    def queries(self, turn: str, group: str) -> str:
        """The place of a group's queries of a turn."""
        return (
            f"q_mem.index({group})"
            if self.slots == 1
            else f"q_mem.index({turn} % {self.slots} * {self.groups} + {group})"
        )

    def query_barrier(self, turn: str, kind: str = "full") -> str:
        """A barrier of the queries of a turn."""
        return f"q_{kind}" if self.slots == 1 else f"q_{kind}.index({turn} % {self.slots})"

    def query_phase(self, turn: str) -> str:
        """The phase of that barrier."""
        return f"{turn} & 1" if self.slots == 1 else f"{turn} // {self.slots} & 1"

    def write(self, writer: Writer, dimensions: int) -> None:
        """Lines that allocate all of it and make the barriers ready. dimensions: of batches."""
        line, ones = writer.line, ", 1" * dimensions
        for kind, role in (("q", "query"), *((("made", "result"),) if self.several else ())):
            shape = f"[{self.groups * (self.slots if kind == 'q' else 1)}{ones}, {GROUP_ROWS}, BLOCK_K]"
            line(f"{kind}_mem = tl.allocate_shared_memory({role}_tiles.dtype, {shape}, {role}_tiles.layout)")
        for kind, role in (("k", "key"), ("v", "value")):
            shape = f"[{self.stages}{ones}, {self.columns}, BLOCK_K]"
            line(f"{kind}_mem = tl.allocate_shared_memory({role}_tiles.dtype, {shape}, {role}_tiles.layout)")
        queries = self.slots if self.slots > 1 else 0
        counts = {"q_full": queries, "q_free": queries, "turns": self.groups}
        for name in self.barriers:
            count = counts.get(name, self.stages)
            shape = f"[{count}, 1]" if count else "[1]"
            line(f"{name} = tl.allocate_shared_memory(tl.int64, {shape}, hopper.mbarrier.MBarrierLayout())")
        for slot in range(self.slots):
            line(f"hopper.mbarrier.init({self.query_barrier(str(slot))}, count=1)")
            if self.several:
                line(f"hopper.mbarrier.init({self.query_barrier(str(slot), 'free')}, count={self.groups})")
        line(f"for at in tl.static_range({self.stages}):")
        for name in BARRIERS[1:]:
            count = self.groups if name.endswith("free") else 1
            line(f"    hopper.mbarrier.init({name}.index(at), count={count})")
        if self.turns:
            line(f"for at in tl.static_range({self.groups}):")
            line("    hopper.mbarrier.init(turns.index(at), count=1)")
        line("hopper.fence_async_shared()")
