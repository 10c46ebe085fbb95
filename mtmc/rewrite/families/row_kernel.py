"""row_kernel: writes the kernel that goes over rows, in registers or in passes."""

from __future__ import annotations

from mtmc.rewrite.body import Body, Node, NotCovered
from mtmc.rewrite.families.pointwise import Variables, load_once, write_maps
from mtmc.rewrite.families.rows import lay_out
from mtmc.rewrite.families.writer import Writer
from mtmc.rewrite.graph import Graph, is_one
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.space import Group, bare, flat

IDENTITY = {"sum": "0.0", "max": 'float("-inf")', "min": 'float("inf")'}
"""What a reduction starts from, and what stands for elements outside the bounds."""

_COMBINE = {"sum": "{0} + {1}", "max": "tl.maximum({0}, {1})", "min": "tl.minimum({0}, {1})"}


class RowKernel:
    """The first (mostly the only) kernel of a rowwise stage in the making."""

    def __init__(self, graph: Graph, body: Body, stage: Stage, name: str) -> None:
        self.graph, self.body, self.name = graph, body, name
        self.layout = lay_out(graph, body)
        self.split = stage.number("split")
        self.loop = stage.setting("passes") == "loop" or self.split > 1
        self.totals = [node for node in body.nodes if self.place(node) == "total"]
        self.reductions = [node for node in body.nodes if node.kind == "reduce" and self.place(node) == "row"]
        self.variables: Variables = {}
        self.writer = Writer(graph, body, f"{name}_kernel")

    def place(self, node: Node) -> str:
        """Where a node's values lie: "full", "row" or "total"."""
        return self.layout.place[node.name]

    def write(self) -> Writer:
        """Write the whole kernel. Raises: NotCovered where the body cannot be split as the schedule says."""
        if self.split > 1:
            self._check_split()
        groups = self._head()
        if self.loop:
            self._passes(groups)
        else:
            self._once(groups)
        if self.split > 1:
            self._store_partials()
        else:
            self._store_row_values(self.writer)
            self._store_total_partials()
        return self.writer

    def _check_split(self) -> None:
        if self.totals or any(
            self.place(node) == "row" and self.layout.level[node.name] > 1 for node in self.body.nodes
        ):
            raise NotCovered("rows can be split only where no reduction waits for another")
        if any(node.operation.startswith("arg") for node in self.reductions):
            raise NotCovered("a split argmax")
        if any(self.layout.place[value] == "full" for value in self.body.stores):
            raise NotCovered("rows can be split only where nothing but reductions is stored")

    # -- the first kernel ----------------------------------------------------------------------------------------
    def _head(self) -> tuple[Group, ...]:
        writer, layout = self.writer, self.layout
        rows, cols = writer.preset(layout.rows, "n_rows"), writer.preset(layout.cols, "n_cols")
        inner = writer.preset(layout.inner, "n_inner")
        writer.line("rows = (tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]")
        writer.line("if WIDE:  # more elements than a 32-bit offset can reach")
        writer.line("    rows = rows.to(tl.int64)")
        writer.line(f"row_mask = rows < {rows}")
        outer = Group("rows", layout.outer, "row_mask")
        behind: tuple[Group, ...] = ()
        if not is_one(layout.inner):
            writer.line(f"outer = rows // {inner}")
            writer.line(f"inner = rows % {inner}")
            outer = Group("outer", layout.outer, "row_mask")
            behind = (Group("inner", layout.inner, "row_mask"),)
        if not self.loop:
            writer.line("cols = tl.arange(0, BLOCK_COLS)[None, :]")
            writer.line(f"col_mask = cols < {cols}")
            writer.line("mask = row_mask & col_mask")
        return (outer, Group("cols", layout.cols, "col_mask"), *behind)

    def _row_groups(self, groups: tuple[Group, ...]) -> tuple[Group, ...]:
        return (groups[0], *groups[2:])

    def _once(self, groups: tuple[Group, ...]) -> None:
        """All nodes in order, each row read once and held in registers."""
        for node in self.body.nodes:
            place = self.place(node)
            if place == "total":
                continue
            if node.kind == "reduce":
                value = self._operand(node, groups, self.variables)
                self._whole(node, self._guarded(node, value))
            else:
                chosen = groups if place == "full" else self._row_groups(groups)
                write_maps(self.writer, [node.name], chosen, self.variables)
            if place == "full" and node.name in self.body.stores:
                self._store_full(node.name, groups)

    def _operand(self, node: Node, groups: tuple[Group, ...], variables: Variables) -> str:
        """The variable a reduction reads, loaded if it comes straight from outside."""
        read = node.reads()[0]
        if read in variables:
            return variables[read]
        return load_once(self.writer, read, self.graph.values[read].shape, groups, variables)

    def _guarded(self, node: Node, value: str) -> str:
        """A reduction's operand with what lies outside the bounds made neutral."""
        operation = node.operation.removeprefix("arg")
        return f"tl.where(mask, {value}, {IDENTITY[operation]})"

    def _whole(self, node: Node, guarded: str) -> None:
        writer = self.writer
        if node.operation.startswith("arg"):
            which = node.operation.removeprefix("arg")
            writer.line(f"{node.name}_all = {guarded}")
            writer.line(f"{node.name}_top = tl.{which}({node.name}_all, axis=1, keep_dims=True)")
            index = f"tl.where({node.name}_all == {node.name}_top, cols, {writer.size(self.layout.cols)})"
            writer.line(f"{node.name} = tl.min({index}, axis=1, keep_dims=True)  # the first of equals")
        else:
            writer.line(f"{node.name} = tl.{node.operation}({guarded}, axis=1, keep_dims=True)")
        self.variables[node.name] = node.name

    def _passes(self, groups: tuple[Group, ...]) -> None:
        """One pass over the row for each level of reductions, and one more for full results that wait for the last."""
        layout = self.layout
        full = [node for node in self.body.nodes if self.place(node) == "full"]
        stores = [node for node in full if node.name in self.body.stores]
        last = max([layout.level[node.name] - 1 for node in self.reductions] + [layout.level[n.name] for n in stores])
        self._row_maps(groups, 0)
        for level in range(last + 1):
            reductions = [node for node in self.reductions if layout.level[node.name] == level + 1]
            results = [node for node in stores if layout.level[node.name] == level]
            if reductions or results:
                self._one_pass(groups, reductions, results)
            if self.split == 1:
                self._row_maps(groups, level + 1)

    def _row_maps(self, groups: tuple[Group, ...], level: int) -> None:
        names = [
            node.name
            for node in self.body.nodes
            if self.place(node) == "row" and node.kind != "reduce" and self.layout.level[node.name] == level
        ]
        write_maps(self.writer, names, self._row_groups(groups), self.variables)

    def _one_pass(self, groups: tuple[Group, ...], reductions: list[Node], results: list[Node]) -> None:
        writer = self.writer
        for node in reductions:
            operation = node.operation.removeprefix("arg")
            writer.line(f"{node.name}_acc = tl.full([BLOCK_ROWS, BLOCK_COLS], {IDENTITY[operation]}, tl.float32)")
            if node.operation.startswith("arg"):
                writer.line(f"{node.name}_at = tl.zeros([BLOCK_ROWS, BLOCK_COLS], tl.int32)")
        first, last = ("tl.program_id(1) * CHUNK", "last") if self.split > 1 else ("0", writer.size(self.layout.cols))
        if self.split > 1:
            writer.line(f"last = tl.minimum({first} + CHUNK, {writer.size(self.layout.cols)})")
        writer.line(f"for start in range({first}, {last}, BLOCK_COLS):")
        writer.level += 1
        writer.line("cols = start + tl.arange(0, BLOCK_COLS)[None, :]")
        writer.line(f"col_mask = cols < {last}")
        writer.line("mask = row_mask & col_mask")
        local = dict(self.variables)
        write_maps(writer, self._slice([*reductions, *results], local), groups, local)
        for node in reductions:
            self._accumulate(node, self._operand(node, groups, local))
        for node in results:
            self._store_full(node.name, groups)
        writer.level -= 1
        if self.split == 1:
            for node in reductions:
                self._finish(node)

    def _slice(self, wanted: list[Node], known: Variables) -> list[str]:
        """Full nodes that the wanted ones need and that are not at hand, in order."""
        needed = {read for node in wanted for read in (node.reads() if node.kind == "reduce" else (node.name,))}
        chosen = []
        for node in reversed(self.body.nodes):
            if node.name in needed and node.name not in known and node.kind != "reduce":
                chosen.append(node.name)
                needed |= set(node.reads())
        return list(reversed(chosen))

    def _accumulate(self, node: Node, value: str) -> None:
        writer, guarded = self.writer, self._guarded(node, value)
        if node.operation.startswith("arg"):
            better = ">" if node.operation == "argmax" else "<"
            writer.line(f"{node.name}_new = {guarded}")
            writer.line(f"{node.name}_at = tl.where({node.name}_new {better} {node.name}_acc, cols, {node.name}_at)")
            combine = _COMBINE[node.operation.removeprefix("arg")].format(f"{node.name}_acc", f"{node.name}_new")
            writer.line(f"{node.name}_acc = {combine}")
        else:
            combine = _COMBINE[node.operation].format(f"{node.name}_acc", guarded)
            writer.line(f"{node.name}_acc = {combine}")

    def _finish(self, node: Node) -> None:
        writer = self.writer
        if node.operation.startswith("arg"):
            which = node.operation.removeprefix("arg")
            writer.line(f"{node.name}_top = tl.{which}({node.name}_acc, axis=1, keep_dims=True)")
            size = writer.size(self.layout.cols)
            index = f"tl.where({node.name}_acc == {node.name}_top, {node.name}_at, {size})"
            writer.line(f"{node.name} = tl.min({index}, axis=1, keep_dims=True)  # the first of equals")
        else:
            writer.line(f"{node.name} = tl.{node.operation}({node.name}_acc, axis=1, keep_dims=True)")
        self.variables[node.name] = node.name

    # -- results -------------------------------------------------------------------------------------------------
    def _store_full(self, value: str, groups: tuple[Group, ...]) -> None:
        whole = flat(groups, self.writer.size)
        self.writer.store(value, value, bare(whole.index), "mask")

    def _store_row_values(self, writer: Writer) -> None:
        for value in self.body.stores:
            if self.layout.place[value] == "row":
                writer.store(value, self.variables[value], "rows", "row_mask")

    def partial_names(self) -> list[str]:
        """Workspaces that the second kernel reads, one for each reduction that is put together there."""
        nodes = self.reductions if self.split > 1 else [node for node in self.totals if node.kind == "reduce"]
        return [f"{node.name}_parts" for node in nodes]

    def _store_partials(self) -> None:
        """Each program's share of a split row: one number a row and reduction."""
        self.writer.comment("this program's share of each row; the second kernel puts the shares together")
        for node in self.reductions:
            share = f"tl.{node.operation}({node.name}_acc, axis=1, keep_dims=True)"
            offset = f"rows * {self.split} + tl.program_id(1)"
            self.writer.line(f"tl.store({node.name}_parts + {offset}, {share}, mask=row_mask)")

    def _store_total_partials(self) -> None:
        for node in self.totals:
            if node.kind != "reduce":
                continue
            value = self._operand(node, (Group("rows", self.layout.rows, "row_mask"),), self.variables)
            share = f"tl.sum(tl.where(row_mask, {value}, 0.0))"
            self.writer.line(f"tl.store({node.name}_parts + tl.program_id(0), {share})")
