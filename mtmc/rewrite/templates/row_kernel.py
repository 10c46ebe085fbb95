"""row_kernel: writes the kernel that goes over rows, in registers or in passes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mtmc.rewrite.body import Body, Node, NotCovered, Trailing
from mtmc.rewrite.graph import Graph, Shape, is_one, power_of_two_above, product
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.space import Group
from mtmc.rewrite.templates import row_online, row_order, row_parts, row_shared, row_space
from mtmc.rewrite.templates.eviction import FORGOTTEN, KEPT, policy_of
from mtmc.rewrite.templates.pointwise import ELSEWHERE, Variables, load_once, write_maps
from mtmc.rewrite.templates.row_passes import Pass, accumulate, accumulator, finish, pick, picked, start, whole
from mtmc.rewrite.templates.row_shared import SHARED, why_not_shared
from mtmc.rewrite.templates.rows import lay_out, loops, why_not_split
from mtmc.rewrite.templates.writer import Writer

ALIGNMENT = 128
"""Of a program's share of a split row, in elements: so that its loads begin where lines of the cache do."""


MOST_AHEAD = 64
"""Numbers that a thread holds at most of what is loaded before a reduction. Layer norm of 16384 x 4096 fp32 with weight and
bias, H200: 0.133 ms without, 0.130 with; 8192 x 4096 of 16 bits 37.5 and 38.3 us, so these are left where they are read."""


class RowKernel:
    """The first (mostly the only) kernel of a rowwise stage in the making."""

    def __init__(self, graph: Graph, body: Body, stage: Stage, name: str) -> None:
        self.graph, self.body, self.stage, self.name = graph, body, stage, name
        self.layout = lay_out(graph, body)
        self.split = stage.number("split")
        self.loop = stage.setting("passes") == "loop" or self.split > 1
        self.shared = stage.setting("passes") == SHARED
        self.within = row_space.within(self.layout, stage.number("block_rows")) and not self.shared
        ordered = dict(stage.schedule).get("order") == row_order.LOOKED_UP and self.split == 1 and not self.shared
        self.looked_up = row_order.matrices(graph, body, self.layout) if ordered else None
        self.totals = [node for node in body.nodes if self.place(node) == "total"]
        self.reductions = [node for node in body.nodes if node.kind == "reduce" and self.place(node) == "row"]
        self.picked = self._picked()
        """Reductions of which one element of each row is all there is -> what they would sum up."""
        self.variables: Variables = {}
        self.writer = Writer(graph, body, f"{name}_kernel")
        self.writer.blank = set()
        self.writer.windows = not self.loop and not self.shared

    def _picked(self) -> dict[str, Node]:
        if self.split > 1 or self.layout.lead or not is_one(self.layout.inner):
            return {}
        found = {node.name: picked(self.body, node) for node in self.reductions}
        return {name: node for name, node in found.items() if node is not None}

    def place(self, node: Node) -> str:
        """Where a node's values lie: "full", "row" or "total"."""
        return self.layout.place[node.name]

    @property
    def full_stores(self) -> list[Node]:
        """Results with an element for each row and column."""
        return [node for node in self.body.nodes if node.name in self.body.stores and self.place(node) == "full"]

    def write(self) -> Writer:
        """Write the whole kernel. Raises: NotCovered where the body cannot be split or shared as the schedule says."""
        reason = why_not_split(self.body, self.layout) if self.split > 1 else None
        reason = why_not_shared(self.body, self.layout) if self.shared else reason
        if reason:
            raise NotCovered(reason)
        groups = self.head(self.writer)
        if self.loop:
            self._passes(groups)
        else:
            self.writer.policy = policy_of(self.stage)
            (self._rounds if self.shared else self._once)(groups)
            self.writer.policy = ""
        if self.split > 1:
            self._store_partials()
        else:
            self._store_row_values(self.writer)
            self._store_total_partials()
        return self.writer

    # -- rows and columns ----------------------------------------------------------------------------------------
    def head(self, writer: Writer) -> tuple[Group, ...]:
        """Write which rows a program has, and which columns where it holds them all; the iteration space."""
        layout = self.layout
        for size, name in ((layout.rows, "n_rows"), (layout.cols, "n_cols"), (layout.inner, "n_inner")):
            writer.preset(size, name)
        writer.preset(layout.inside, "n_inside")
        writer.streamed = product(tuple(size for size in (layout.rows, layout.cols) if size))
        if self.shared:
            row_shared.begin(writer)
            rows = row_space.any_rows(writer, layout, "")
        elif self.within:
            rows = row_space.rows_of_one(writer, layout)
        elif self.looked_up:
            rows = row_order.rows_of_one(writer, self.looked_up)
        else:
            rows = row_space.any_rows(
                writer, layout, "(tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]"
            )
        if self.shared:
            writer.line("start = share * BLOCK_COLS")
            writer.blocks = True
        if not self.loop:
            first = "start + " if self.shared else ""
            self.columns(writer, f"{first}tl.arange(0, BLOCK_COLS)[None, :]", writer.size(layout.cols))
        return row_space.space(layout, rows)

    def columns(self, writer: Writer, columns: str, last: str) -> None:
        """Write which columns are at hand, up to `last`."""
        row_space.columns_at_hand(writer, self.layout, columns, last)

    def row_groups(self, groups: tuple[Group, ...]) -> tuple[Group, ...]:
        """The part of the iteration space that rows run over."""
        return tuple(group for group in groups if group.index in row_space.ROWS)

    # -- the first kernel ----------------------------------------------------------------------------------------
    def _once(self, groups: tuple[Group, ...]) -> None:
        """All nodes in order, each row read once and held in registers."""
        nodes, ahead = self._here(), False
        for node in nodes:
            if node.kind == "reduce" and not ahead:
                self._load_ahead(nodes, groups)
                ahead = True
            if node.name in self.picked:
                self._pick(node, groups)
            elif node.kind == "reduce":
                value = self._operand(node, groups, self.variables)
                whole(self.writer, node, value, self.variables, self.writer.size(self.layout.cols))
            else:
                self._map(node, groups)

    def _load_ahead(self, nodes: list[Node], groups: tuple[Group, ...]) -> None:
        """Load before the first reduction what maps behind it read, where a thread has registers for it: no load passes the
        barriers of a reduction, so it would be waited for anew."""
        waiting = (node for node in nodes if self.place(node) == "full" and self.layout.level[node.name])
        # 16 bits would be held as 32: fewer programs have room
        behind = [
            (item, shape)
            for item, value, shape in self._from_outside(waiting)
            if self.graph.values[value].dtype == "float32"
        ]
        if self._elements_a_thread() * (1 + len(set(behind))) <= MOST_AHEAD:
            for item, shape in behind:
                load_once(self.writer, item, shape, groups, self.variables)

    def _from_outside(self, nodes: Iterable[Node]) -> Iterator[tuple[str | Trailing, str, Shape]]:
        """What the maps among some nodes read that the kernel does not make: the operand, its value, at which shape."""
        for node in nodes:
            for item in node.operands if node.kind == "map" else ():
                if isinstance(item, str | Trailing):
                    value = item.value if isinstance(item, Trailing) else item
                    if self.body.node(value) is None:
                        yield item, value, node.shape

    def _elements_a_thread(self) -> int:
        """How many elements of the rows at hand a thread holds, at the full shapes."""
        columns = power_of_two_above(max(self.layout.cols, default=1))
        return columns * self.stage.number("block_rows") // (32 * self.stage.number("num_warps"))

    def _rounds(self, groups: tuple[Group, ...]) -> None:
        """All nodes by the number of reductions that they wait for, since programs that share rows tell each other at once
        what they have found of all that wait for as many."""
        nodes, level_of, rounds = self._here(), self.layout.level, 0
        for level in range(max(level_of[node.name] for node in nodes) + 1):
            for node in nodes:
                if node.kind != "reduce" and level_of[node.name] == level:
                    self._map(node, groups)
            found = [node for node in nodes if node.kind == "reduce" and level_of[node.name] == level + 1]
            for node in found:
                if node.name in self.picked:
                    self._pick(node, groups)
            found = [node for node in found if node.name not in self.picked]
            if found:
                rounds += 1
                values = {node.name: self._operand(node, groups, self.variables) for node in self._first(found)}
                row_shared.exchange(self.writer, self.layout, found, values, rounds)
                self.variables.update({node.name: node.name for node in found})

    def _first(self, reductions: list[Node]) -> list[Node]:
        """Those of some that read what is at hand; a sum of exponentials is made of what its maximum reads."""
        return [node for node in reductions if node.name not in self.layout.online]

    def _map(self, node: Node, groups: tuple[Group, ...]) -> None:
        full = self.place(node) == "full"
        write_maps(self.writer, [node.name], groups if full else self.row_groups(groups), self.variables)
        if full and node.name in self.body.stores:
            self.store_full(self.writer, node.name, groups, self.variables)

    def _here(self) -> list[Node]:
        """The nodes that are computed where an element of each row and column is at hand, in order."""
        home, others = self._at_home(), self.picked.values()
        return [node for node in self.body.nodes if node.name in home and node not in others]

    def _at_home(self) -> set[str]:
        """The nodes that are needed at the place at hand; the others are computed at those where an element is needed."""
        needed = set(self.body.stores)
        for node in reversed(self.body.nodes):
            if node.name in needed and node.kind not in ELSEWHERE:
                needed |= set(node.reads())
            elif node.kind == "reduce":  # what is computed elsewhere may read it
                needed |= {node.name, *self._awaited(node)}
        return {name for name in needed if self.layout.place.get(name) not in ("elsewhere", "total")}

    def _awaited(self, node: Node) -> tuple[str, ...]:
        """What a reduction is made of: where programs share rows, its own mean, or largest of all, is each one's own."""
        if not self.shared:
            return node.reads()
        return (self.layout.online[node.name],) if node.name in self.layout.online else node.reads()[:1]

    def _pick(self, node: Node, groups: tuple[Group, ...]) -> None:
        cols = self.writer.size(self.layout.cols)
        pick(self.writer, node, self.picked[node.name], groups, self.variables, cols)

    def _operand(self, node: Node, groups: tuple[Group, ...], variables: Variables) -> str:
        """The variable a reduction reads, loaded if it comes straight from outside."""
        read = node.reads()[0]
        if read in variables:
            return variables[read]
        return load_once(self.writer, read, self.graph.values[read].shape, groups, variables)

    def _passes(self, groups: tuple[Group, ...]) -> None:
        """One pass over the row for each level of reductions, and one more for full results that wait for the last."""
        passes = loops(self.body, self.layout)
        self._row_maps(groups, 0)
        for level in range(1 if self.split > 1 else max(passes) + 1):
            if level in passes:
                reductions, results = passes[level]
                self.writer.policy = policy_of(self.stage)
                if len(passes) > 1:  # what is read again should stay in the cache, what is not should leave it
                    self.writer.policy = KEPT if level < max(passes) else FORGOTTEN
                self._one_pass(groups, reductions, [] if self.split > 1 else results)
                self.writer.policy = ""
            if self.split == 1:
                self._row_maps(groups, level + 1)

    def _row_maps(self, groups: tuple[Group, ...], level: int) -> None:
        names = [
            node.name
            for node in self.body.nodes
            if self.place(node) == "row" and node.kind != "reduce" and self.layout.level[node.name] == level
        ]
        write_maps(self.writer, names, self.row_groups(groups), self.variables)

    def span(self, writer: Writer) -> tuple[str, str]:
        """First column of a program and the one behind its last; written where rows are split."""
        cols = writer.size(self.layout.cols)
        if self.split == 1:
            return "0", cols
        self.share(writer)
        writer.line("first = tl.program_id(1) * chunk")
        writer.line(f"last = tl.minimum(first + chunk, {cols})")
        return "first", "last"

    def share(self, writer: Writer) -> None:
        """Write how many columns a program's share of a row has."""
        cols = writer.size(self.layout.cols)
        writer.line(f"chunk = tl.cdiv({cols}, {self.split * ALIGNMENT}) * {ALIGNMENT}")

    def before_walk(self, writer: Writer, names: list[str], groups: tuple[Group, ...], variables: Variables) -> None:
        """Load what the maps of a loop read of each row once, before it."""
        for item, value, shape in self._from_outside(node for node in self.body.nodes if node.name in names):
            if value not in variables and writer.access(item, shape, groups).mask in ("row_mask", ""):
                load_once(writer, item, shape, groups, variables)

    def open_loop(self, writer: Writer) -> tuple[str, str]:
        """Open a loop over a program's columns. Returns: the first one, and the one behind the last."""
        first, last = self.span(writer)
        writer.line(f"for start in range({first}, {last}, BLOCK_COLS):")
        writer.level += 1
        writer.blocks = not self.layout.lead
        self.columns(writer, "start + tl.arange(0, BLOCK_COLS)[None, :]", last)
        return first, last

    def end_walk(self, writer: Writer) -> None:
        """Close it."""
        writer.level -= 1
        writer.blocks = False

    def _one_pass(self, groups: tuple[Group, ...], reductions: list[Node], results: list[Node]) -> None:
        for node in reductions:
            if node.name in self.picked:
                self._pick(node, groups)
        reductions = [node for node in reductions if node.name not in self.picked]
        writer, online = self.writer, self._online(reductions)
        others = [node for node in reductions if node.name not in online and node.name not in self.layout.online]
        for top, total in online.values():
            row_online.start(writer, top, total)
        for node in others:
            start(writer, node)
        names = self.slice([*reductions, *results], self.variables)
        self.before_walk(writer, names, groups, self.variables)
        first, last = self.open_loop(writer)
        local = dict(self.variables)
        write_maps(writer, names, groups, local)
        for top, total in online.values():
            row_online.accumulate(writer, top, total, self._operand(top, groups, local))
        for node in others:
            accumulate(writer, node, self._operand(node, groups, local), Pass(first, last))
        for node in results:
            self.store_full(writer, node.name, groups, local)
        self.end_walk(writer)
        for top, total in online.values():
            row_online.put_together(writer, top, total, f"{top.name}_acc", f"{total.name}_acc")
            if self.split == 1:
                row_online.restore(writer, top, total)
        for node in others:
            finish(writer, node, Pass(first, last))
        self.variables.update({node.name: node.name for node in reductions})

    def _online(self, reductions: list[Node]) -> dict[str, tuple[Node, Node]]:
        """Maxima that are found together with a sum of exponentials: name -> (maximum, sum)."""
        named = {node.name: node for node in reductions}
        return {
            top: (named[top], named[total])
            for total, top in self.layout.online.items()
            if total in named and top in named
        }

    def slice(self, wanted: list[Node], known: Variables) -> list[str]:
        """Full nodes that the wanted ones need and that are not at hand, in order."""
        wanted = [node for node in wanted if node.name not in self.layout.online]  # its maximum reads what it needs
        needed = {read for node in wanted for read in (node.reads()[:1] if node.kind == "reduce" else (node.name,))}
        chosen = []
        for node in reversed(self.body.nodes):
            if self.place(node) == "elsewhere":
                continue
            if node.name in needed and node.name not in known and node.kind != "reduce":
                chosen.append(node.name)
                needed |= set(node.reads()) if node.kind not in ELSEWHERE else set()
        return list(reversed(chosen))

    # -- results -------------------------------------------------------------------------------------------------
    def store_full(self, writer: Writer, value: str, groups: tuple[Group, ...], variables: Variables) -> None:
        """Store a result with an element for each row and column; a view of another value stands in that one's variable."""
        writer.store_at(value, variables[value], groups, "mask")

    def _store_row_values(self, writer: Writer) -> None:
        of_row = [value for value in self.body.stores if self.layout.place[value] == "row"]
        if self.shared and of_row:
            writer.line("if share == 0:  # the programs of a row all know it")
        writer.level += self.shared
        for value in of_row:
            writer.store_at(value, self.variables[value], (Group("rows", self.layout.rows, "row_mask"),), "row_mask")
        writer.level -= self.shared

    def partial_dtype(self, part: str) -> str:
        """torch's name of a workspace's dtype."""
        kept = {f"{node.name}_parts": node for node in (*self.totals, *self.reductions) if node.kind == "reduce"}
        whole = part in kept and accumulator(self.body, kept[part])[1] == "tl.int64"
        return "int32" if part.endswith("_places") else "int64" if whole else "float32"

    def partial_names(self) -> list[str]:
        """Workspaces for each reduction that is put together from parts, by a second kernel or by programs that wait."""
        found = [node for node in self.reductions if node.name not in self.picked]
        if self.split == 1 and not self.shared:
            return [f"{node.name}_parts" for node in self.totals if node.kind == "reduce"]
        return [name for node in found for name in row_parts.workspaces(found, node)]

    def _store_partials(self) -> None:
        """Each program's share of a split row."""
        self.writer.comment("this program's share of each row; the second kernel puts the shares together")
        self.writer.line(f"share = rows * {self.split} + tl.program_id(1)")
        row_parts.leave(self.writer, self.reductions, "share")

    def _store_total_partials(self) -> None:
        for node in self.totals:
            if node.kind != "reduce":
                continue
            value = self._operand(node, (Group("rows", self.layout.rows, "row_mask"),), self.variables)
            share = f"tl.sum(tl.where(row_mask, {value}, {accumulator(self.body, node)[0]}))"
            self.writer.line(f"tl.store({node.name}_parts + tl.program_id(0), {share})")
