"""matmul: one matrix product, batched or not, with elementwise work before it (on the left operand) and after it.

After the product may also come reductions over its columns ("fuse linear and max"): then a program owns its rows, walks
over columns and never writes the product. `split_k` > 1 cuts the inner dimension among programs, `split_n` > 1 (only with
such reductions) the columns; either adds a second kernel that puts the shares together.
"""

from __future__ import annotations

from mtmc.rewrite.body import Body
from mtmc.rewrite.families.product import Product, analyse
from mtmc.rewrite.families.product_combine import combine_k, combine_n
from mtmc.rewrite.families.product_kernel import ProductKernel
from mtmc.rewrite.families.writer import (
    INDENT,
    Launch,
    Printed,
    allocation,
    contiguous_lines,
    kernel_text,
    launch_lines,
    printed,
    scope_of,
    size_expression,
)
from mtmc.rewrite.graph import Graph, Varying, product
from mtmc.rewrite.plan import Stage

ENOUGH_PROGRAMS = 264
"""Two for each multiprocessor of an H100-class GPU."""


class Matmul:
    """One matrix product with prologue and epilogue."""

    name = "matmul"

    def takes(self, body: Body) -> bool:
        """Has a matrix product."""
        return any(node.kind == "dot" for node in body.nodes)

    def default(self, graph: Graph, body: Body) -> dict[str, int | str]:
        """64x64 tiles, plain fp32 products; columns split among programs where rows alone are too few."""
        found = analyse(graph, body)
        return {
            "block_m": 64,
            "block_n": 64,
            "block_k": 32,
            "group_m": 8,
            "num_stages": 2,
            "num_warps": 4,
            "order": "mn",
            "precision": "ieee" if _is_fp32(graph, found) else "input",
            "split_k": 1,
            "split_n": _split_n(found),
        }

    def print(self, graph: Graph, body: Body, stage: Stage, name: str) -> Printed:
        """One kernel, two with `split_k` > 1. Raises: NotCovered."""
        return _Assembler(graph, body, stage, name).print()


def _split_n(found: Product) -> int:
    """How many programs share the columns of a row, so that there are enough of them (1 without a reduction)."""
    if not found.reduces:
        return 1
    rows = -(-found.m[0] // 64) * (product(found.batch)[0] if found.batch else 1)
    split = 1
    while rows * split < ENOUGH_PROGRAMS and split * 2 * 64 <= found.n[0]:
        split *= 2
    return split


class _Assembler:
    """Prints one matmul stage: kernels and launcher."""

    def __init__(self, graph: Graph, body: Body, stage: Stage, name: str) -> None:
        self.graph, self.body, self.stage, self.name = graph, body, stage, name
        self.kernel = ProductKernel(graph, body, stage, name)
        self.kernel.write()
        self.scope = scope_of(graph, body)
        self.spare: dict[str, Varying] = {}
        found = self.kernel.found
        labels = ((found.m, "n_m"), (found.n, "n_n"), (found.k, "n_k"))
        self.m, self.n, self.k = (size_expression(size, label, self.scope, self.spare) for size, label in labels)
        self.batch = self._size(product(found.batch), "n_batch") if found.batch else "1"

    def _size(self, size: tuple[int, ...], label: str) -> str:
        return size_expression(size, label, self.scope, self.spare)

    def print(self) -> Printed:
        """The kernels and their launcher."""
        graph, body, stage, kernel = self.graph, self.body, self.stage, self.kernel
        shares = kernel.shares
        stores = () if shares else body.stores
        lines = contiguous_lines(kernel.writer)
        lines += [allocation(graph, body, value, self.scope, self.spare) for value in body.stores]
        lines += self._workspaces()
        made = shares[:1] if kernel.split_k > 1 else () if kernel.found.reduces else body.stores[:1]
        largest = ", ".join(f"{value}.numel()" for value in (kernel.found.left, kernel.found.right, *made))
        constants = [("WIDE", f"max({largest}) >= 2**31")]
        constants += [(key.upper(), str(stage.number(key))) for key in ("block_m", "block_n", "block_k")]
        if not kernel.found.reduces:
            constants.append(("GROUP_M", str(stage.number("group_m"))))
        texts = [kernel_text(kernel.writer, stores, shares, [key for key, _ in constants], self._doc())]
        warps, stages = stage.number("num_warps"), stage.number("num_stages")
        name = f"{self.name}_kernel"
        launch = Launch(name, kernel.writer, stores, shares, self._grid(), tuple(constants), warps, stages)
        lines += launch_lines(launch, self.scope, self.spare)
        if shares:
            texts.append(self._second(lines))
        return printed(body, self.name, texts, lines, self.spare)

    def _workspaces(self) -> list[str]:
        """Lines that allocate what the second kernel reads."""
        rows = self.m if self.batch == "1" else f"{self.batch}, {self.m}"
        split_k = f"({self.stage.number('split_k')}, {rows}, {self.n})"
        shape = split_k if self.kernel.split_k > 1 else f"({rows}, {self.stage.number('split_n')})"
        like = f"device={self.kernel.found.left}.device, dtype=torch.float32"
        return [f"{INDENT}{share} = torch.empty({shape}, {like})" for share in self.kernel.shares]

    def _doc(self) -> str:
        ops = ", ".join(self.stage.ops)
        if self.kernel.found.reduces:
            return f"{ops}: BLOCK_M rows a program, the product is reduced as it is made and never written."
        return f"{ops}: a BLOCK_M x BLOCK_N tile of the product a program."

    def _grid(self) -> tuple[str, ...]:
        down = f"triton.cdiv({self.m}, {self.stage.number('block_m')})"
        tiles = f"{down} * triton.cdiv({self.n}, {self.stage.number('block_n')})"
        first = down if self.kernel.found.reduces else tiles
        split = max(self.kernel.split_k, self.kernel.split_n)
        if split > 1:
            return (first, self.batch, str(split))
        return (first, self.batch) if self.kernel.found.batch else (first,)

    def _second(self, lines: list[str]) -> str:
        """Print the second kernel and add its launch to the launcher's lines."""
        kernel, stores, shares = self.kernel, self.body.stores, self.kernel.shares
        constants: tuple[tuple[str, str], ...]
        grid: tuple[str, ...]
        if kernel.split_k > 1:
            writer, doc = combine_k(kernel), "Add up the shares of the product."
            wide = f"{kernel.split_k} * {self.batch} * {self.m} * {self.n} >= 2**31"
            constants = (("WIDE", wide), ("BLOCK_M", "16"), ("BLOCK_N", "128"), ("SPLIT", str(kernel.split_k)))
            tiles = (f"triton.cdiv({self.m}, 16)", f"triton.cdiv({self.n}, 128)")
            grid = (*tiles, self.batch) if kernel.found.batch else tiles
        else:
            writer, doc = combine_n(kernel), "Put together what the programs found in their columns."
            constants = (("BLOCK_ROWS", "16"), ("SPLIT", str(kernel.split_n)))
            rows = self.m if self.batch == "1" else f"{self.batch} * {self.m}"
            grid = (f"triton.cdiv({rows}, 16)",)
        text = kernel_text(writer, stores, shares, [key for key, _ in constants], doc)
        lines.extend(
            launch_lines(Launch(writer.name, writer, stores, shares, grid, constants, 4), self.scope, self.spare)
        )
        return text


def _is_fp32(graph: Graph, found: Product) -> bool:
    return graph.values[found.left].dtype == "float32" and graph.values[found.right].dtype == "float32"
