"""row_launcher: prints a rowwise stage: one kernel, or two where rows are split or a total is taken, and their launcher."""

from __future__ import annotations

from mtmc.rewrite.body import Body
from mtmc.rewrite.folding import INDENT
from mtmc.rewrite.graph import Graph, Varying, power_of_two_above, product
from mtmc.rewrite.open_sizes import is_open
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.sizes import Scope
from mtmc.rewrite.templates import row_shared
from mtmc.rewrite.templates.channels_last import channels_last_values, handed_over, is_channels_last
from mtmc.rewrite.templates.launcher import (
    Launch,
    Printed,
    launch_lines,
    printed,
    scope_of,
    scope_with_results,
    size_expression,
)
from mtmc.rewrite.templates.permuted_body import in_memory_order
from mtmc.rewrite.templates.row_combine import apply_split, combine_split, combine_totals
from mtmc.rewrite.templates.row_kernel import ALIGNMENT, RowKernel
from mtmc.rewrite.templates.writer import Writer, kernel_text

THREAD_COLUMNS = 8
"""Of 16 bits each, which a thread loads at once: a tile of fewer takes no less time."""


def _blocks(rows: str, each: int) -> str:
    """Expression of the number of programs that take `each` rows."""
    return f"triton.cdiv({rows}, {each})" if each > 1 else rows


class RowLauncher:
    """One rowwise stage in the making: kernels and launcher."""

    def __init__(self, graph: Graph, body: Body, stage: Stage, name: str) -> None:
        self.graph, self.body, self.stage, self.name = graph, body, stage, name
        self.kernel = RowKernel(*in_memory_order(graph, body, stage), stage, name)
        self.kernel.write()
        self.parts = self.kernel.partial_names()

    def emit(self) -> Printed:
        """The kernels and their launcher. Raises: NotCovered."""
        graph, body, stage, name, kernel = self.graph, self.body, self.stage, self.name, self.kernel
        scope, spare = scope_with_results(graph, body), dict[str, Varying]()
        rows = size_expression(kernel.layout.rows, "n_rows", scope, spare)
        cols = size_expression(kernel.layout.cols, "n_cols", scope, spare)
        stores, constants = self._stores(), self._constants(kernel.writer, rows, cols, scope, spare)
        self.programs = self._programs(rows, scope, spare)
        extra = (*self.parts, *([row_shared.TURNS] if kernel.shared else []))
        texts = [kernel_text(kernel.writer, stores, extra, [key for key, _ in constants], self._doc())]
        lines = handed_over(graph, body, stage, kernel.writer, scope_of(graph, body), spare)
        lines += self._workspaces(rows, cols)
        warps = stage.number("num_warps")
        launch = Launch(f"{name}_kernel", kernel.writer, stores, extra, self._grid(rows), tuple(constants), warps)
        lines += launch_lines(launch, scope, spare)
        if self.parts and not kernel.shared:
            texts.append(self._second(lines, self.parts, (rows, cols), scope, spare))
        last = channels_last_values(graph, body) if is_channels_last(stage) else ()
        return printed(body, name, texts, lines, spare, last)

    def _stores(self) -> tuple[str, ...]:
        """Results that the first kernel writes."""
        kernel = self.kernel
        if not self.parts or kernel.shared:
            return self.body.stores
        return tuple(value for value in self.body.stores if kernel.split == 1 and kernel.layout.place[value] != "total")

    def _programs(self, rows: str, scope: Scope, spare: dict[str, Varying]) -> str:
        """Expression of the number of blocks of rows."""
        layout, each = self.kernel.layout, self.stage.number("block_rows")
        found = self.kernel.looked_up
        if not self.kernel.within and found is None:
            return _blocks(rows, each)
        sizes = (found.count, found.rows) if found is not None else (layout.outer, layout.inner)
        named = zip(sizes, ("n_outer", "n_inner"), strict=True)
        outer, inner = (size_expression(size, name, scope, spare) for size, name in named)
        return f"{f'({outer})' if ' ' in outer else outer} * {_blocks(inner, each)}"

    def _grid(self, rows: str) -> tuple[str, ...]:
        if self.kernel.shared:
            return (f"({rows}) * split",)
        return (self.programs, str(self.kernel.split)) if self.kernel.split > 1 else (self.programs,)

    def _doc(self) -> str:
        if self.kernel.loop:
            does = "several passes over each row."
        elif self.kernel.shared:
            does = "SPLIT programs that wait for each other hold each row."
        else:
            does = "each row held in registers."
        return f"{', '.join(self.stage.ops)}: BLOCK_ROWS rows a program, {does}"

    def _workspaces(self, rows: str, cols: str) -> list[str]:
        """Lines that make what programs leave for others."""
        kernel, like, lines = self.kernel, self.body.loads[0], list[str]()
        count = f"({rows}, {kernel.split})" if kernel.split > 1 else f"({self.programs},)"
        if kernel.shared:
            count = f"({rows}, split)"
            lines = row_shared.launcher_lines(rows, cols, self.stage.number("block_cols"), like)
        for part in self.parts:
            dtype = kernel.partial_dtype(part)
            lines.append(f"{INDENT}{part} = torch.empty({count}, device={like}.device, dtype=torch.{dtype})")
        return lines

    def _constants(
        self, writer: Writer, rows: str, cols: str, scope: Scope, spare: dict[str, Varying]
    ) -> list[tuple[str, str]]:
        """Compile-time arguments of a kernel that goes over rows and columns."""
        block = str(self.stage.number("block_cols") or 1024)
        elements = product(tuple(size for size in (self.kernel.layout.rows, self.kernel.layout.cols) if size))
        wide = writer.wide(f"{rows} * {cols}", elements)
        constants = [("WIDE", wide), ("BLOCK_ROWS", str(self.stage.number("block_rows")))]
        if self.kernel.shared:
            block = "block_cols"
            constants += [("BLOCK_COLS", block), ("SPLIT", "split"), ("SHARES", "triton.next_power_of_2(split)")]
        else:
            constants.append(("BLOCK_COLS", block if self.kernel.loop else self._held(cols)))
        chunk = f"triton.cdiv({cols}, {self.kernel.split * ALIGNMENT}) * {ALIGNMENT}"
        if writer.alike:
            names = {name: size for size, name in writer.sizes.items() if name in writer.alike}
            alike = [size_expression(size, name, scope, spare) for name, size in sorted(names.items())]
            block_rows = self.stage.number("block_rows")
            constants.append(("ALIKE", " and ".join(f"({size}) % {block_rows} == 0" for size in alike)))
        if writer.segments:
            sizes = [
                size_expression(size, name, scope, spare)
                for size, name in writer.sizes.items()
                if name in writer.segments
            ]
            conditions = [f"({cols}) % ({size}) == ({size}) % {block} == 0" for size in sizes]
            conditions += [f"{chunk} % {block} == 0"] * (self.kernel.split > 1)
            constants.append(("ALIGNED", " and ".join(conditions)))
            long = [f"({cols}) % ({size}) == 0 and ({size}) >= {block}" for size in sizes]
            constants.append(("LONG", " and ".join(long)))
        return constants

    def _held(self, cols: str) -> str:
        """How many columns a program holds in registers, which are given out at compile time: one kernel for each power of
        two. Where columns are open, short rows share one, as long as a thread has but one load of 16 bytes."""
        columns, held = self.kernel.layout.cols, f"triton.next_power_of_2({cols})"
        threads = 32 * self.stage.number("num_warps") // self.stage.number("block_rows")
        least = min(power_of_two_above(columns[0]), THREAD_COLUMNS * threads) if columns else 1
        return f"max({least}, {held})" if is_open(self.graph, columns) and least > 1 else held

    def _second(
        self, lines: list[str], parts: list[str], sizes: tuple[str, str], scope: Scope, spare: dict[str, Varying]
    ) -> str:
        """Print the second kernel and add its launch to the launcher's lines. sizes: expressions of rows and columns."""
        kernel, (rows, cols), split = self.kernel, sizes, ("SPLIT", str(self.kernel.split))
        grid: tuple[str, ...] = ("1",)
        stores, extra, warps = self.body.stores, tuple(parts), 4
        if kernel.split > 1 and kernel.full_stores:
            writer = apply_split(kernel)
            constants = [*self._constants(writer, rows, cols, scope, spare), split]
            grid = (self.programs, str(kernel.split))
            doc, warps = "Put the shares of each split row together, and use them.", self.stage.number("num_warps")
        elif kernel.split > 1:
            writer, together = combine_split(kernel), max(1, 1024 // kernel.split)
            constants = [("BLOCK_ROWS", str(together)), split]
            grid = (_blocks(rows, together),)
            doc = "Put the shares of each split row together."
        else:
            writer, constants, warps = combine_totals(kernel), [("BLOCK", "8192")], 16
            stores = tuple(value for value in self.body.stores if kernel.layout.place[value] == "total")
            extra = (*parts, "n_parts")
            doc = "Add up what the programs of the first kernel found."
            lines.append(f"{INDENT}n_parts = {parts[0]}.numel()")
        text = kernel_text(writer, stores, extra, [key for key, _ in constants], doc)
        lines.extend(
            launch_lines(Launch(writer.name, writer, stores, extra, grid, tuple(constants), warps), scope, spare)
        )
        return text
