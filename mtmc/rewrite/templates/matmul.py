"""matmul: one matrix product, batched or not, with elementwise work before it and after it, or several of one left
operand (see `product`). Work on one operand may also move its elements.

After the product may also come reductions over its columns ("fuse linear and max"): then a program owns its rows, loops
over columns and never writes the product. `split_k` > 1 cuts the inner dimension among programs, `split_n` > 1 (only with
such reductions) the columns; either adds a second kernel that puts the shares together. With "persistent" there are so
many programs, each for several tiles; with "stream_k" they also share the slices of the tiles that are left over, and a
second kernel adds up the parts. Groups of rows may have a right operand each (see `product_groups`). With "operands" =
"descriptors" tiles are read through tensor descriptors where the operands' rows begin at multiples of 16 bytes. With
"right" = "transposed" the kernel gets a copy of a right operand [k, n] as [n, k], which is how the tensor cores read fp32
numbers and those of 8 bits. Sums of products of 8-bit numbers are kept in fp32 between slices; with "sums" = "fast" the
tensor cores keep them, in fewer bits. With "symmetric" half of a symmetric product's tiles are made (`product_symmetric`),
and with "language" = "gluon" all of it is written in Gluon (`gluon_product`).
"""

from __future__ import annotations

from dataclasses import replace

from mtmc.rewrite.body import Body, NotCovered
from mtmc.rewrite.folding import INDENT
from mtmc.rewrite.graph import Graph, Ref, Varying, power_of_two_above, product
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.templates import gluon_product
from mtmc.rewrite.templates.as_laid import Laid, as_laid
from mtmc.rewrite.templates.gluon_text import is_gluon
from mtmc.rewrite.templates.launcher import (
    OPTIONS,
    Launch,
    Printed,
    allocation,
    contiguous_lines,
    launch_lines,
    printed,
    scope_of,
    size_expression,
)
from mtmc.rewrite.templates.moved_results import Back, moved_results
from mtmc.rewrite.templates.product import Product, analyse, can_transpose, tiles_of
from mtmc.rewrite.templates.product_combine import combine_k, combine_n, combine_parts
from mtmc.rewrite.templates.product_dispatch import dispatch_of
from mtmc.rewrite.templates.product_groups import blocks_in_launcher, grouped_tile
from mtmc.rewrite.templates.product_kernel import ProductKernel
from mtmc.rewrite.templates.product_statistics import MOST_ROWS
from mtmc.rewrite.templates.product_symmetric import SETTING as SYMMETRIC
from mtmc.rewrite.templates.product_symmetric import SIDE, is_symmetric, tiles_of_half
from mtmc.rewrite.templates.product_tiles import SPECIAL, Sizes, launcher_lines
from mtmc.rewrite.templates.product_turned import NAME, turn, turn_launch, turn_lines
from mtmc.rewrite.templates.shares import crowded, shares
from mtmc.rewrite.templates.writer import kernel_text

LONG_INNER, LONG_INNER_OF_BATCH = 4096, 1024
"""Least inner dimension of each program that shares a tile by default: a shorter one is not worth the second kernel. Small
products of a batch stay with tiles of 64 x 64, of which one takes some 13 us for 1024."""
MAX_SPLIT = 64
MANY_ROWS = 512
"""Of the left operand: a copy takes as long as some 200 rows gain by it (H200, three TF32 products)."""
_CUTS = ("aten.slice.Tensor", "aten.view.default", "aten.reshape.default")
"""What may stand between a softmax and the product of its weights: a cut, where one of them is a sink's, and views."""
ELEMENTS_A_WARP = 4096
"""Of a tile that a second kernel adds up: 128 for each thread."""


class Matmul:
    """One matrix product with prologue and epilogue."""

    name = "matmul"

    def matches(self, body: Body) -> bool:
        """Has a matrix product."""
        return any(node.kind == "dot" for node in body.nodes)

    def default(self, graph: Graph, body: Body) -> dict[str, int | str]:
        """64x64 tiles, smaller ones for small matrices of a batch, plain fp32 products; split among programs where tiles, or
        rows of a reduction, are too few."""
        found = analyse(graph, body)
        return {
            "block_m": 64,
            "block_n": 64,
            "block_k": 32,
            "group_m": 8,
            "num_stages": 2,
            "num_warps": 4,
            "order": "mn",
            **({"sums": "fp32"} if found.fp8 and not found.scales else {}),
            "precision": "ieee" if _is_fp32(graph, found) else "input",
            "split_k": _split_k(found),
            "split_n": _split_n(found),
            **_small_matrices(found),
            **(_looking_tile(found) if found.statistics else {}),
            **(grouped_tile(graph, found) if found.offsets else {}),
            **({"right": "transposed"} if _should_transpose(graph, body, found) else {}),
            **({SYMMETRIC: 0} if is_symmetric(graph, body, found) else {}),
        }

    def emit(self, graph: Graph, body: Body, stage: Stage, name: str) -> Printed:
        """One kernel, or two where several programs share a sum. Raises: NotCovered."""
        if is_gluon(stage):
            return gluon_product.emit(graph, body, stage, name)
        try:
            return _Assembler(Laid(graph, body), stage, name).emit()
        except NotCovered:
            laid = as_laid(graph, body)  # a layer of channels that lie last, whose result says that they come first
            moved = None if laid.results or _weighs(graph, body) else moved_results(body)
            if moved is not None:
                return _Assembler(Laid(graph, moved.body), stage, name, moved.back).emit()
            if not laid.results:
                raise
            return _Assembler(laid, stage, name).emit()


def _weighs(graph: Graph, body: Body) -> bool:
    """Whether the rows are weights that a softmax in another kernel has made: an attention kernel takes such a product in,
    and would not with a result in another order."""
    for node in body.nodes:
        op = graph.by_name.get(node.reads()[0]) if node.kind == "dot" and body.node(node.reads()[0]) is None else None
        while op is not None and op.target in _CUTS:
            op = graph.by_name.get(op.args[0].name) if isinstance(op.args[0], Ref) else None
        if op is not None and "softmax" in op.target:
            return True
    return False


def _small_matrices(found: Product) -> dict[str, int]:
    """The tile of a batch of products of which each has no more than 32 rows and columns, and an inner dimension worth it;
    of another batch one that is no wider than the matrices are, and longer where they are narrow.

    8192 products of 27 x 128 by 128 x 27, fp16, H100, with what stands around: 0.119 ms by the usual tile, 0.089 by this.
    """
    if not found.batch or found.reduces:
        return {}
    if max(found.m[0], found.n[0]) <= 32 <= found.k[0]:
        return {"block_m": 32, "block_n": 32, "block_k": min(64, power_of_two_above(found.k[0])), "num_warps": 2}
    if found.of_8_bits:
        return {}
    rows, columns = (max(16, min(64, power_of_two_above(size[0]))) for size in (found.m, found.n))
    wide = {"block_m": 128} if columns <= 32 and found.m[0] >= 128 else {}
    wide |= {"block_n": 128} if rows <= 32 and found.n[0] >= 128 else {}
    inner = max(16, min(32, power_of_two_above(found.k[0])))
    return {"block_m": rows, "block_n": columns, "block_k": inner, **wide}


def _looking_tile(found: Product) -> dict[str, int]:
    """The tile of a product whose rows are looked at before: no more columns than there are, long slices of many rows."""
    if found.m[0] <= MOST_ROWS:
        return {}
    return {
        "block_n": max(16, min(128, power_of_two_above(found.n[0]))),
        "block_k": max(32, min(128, power_of_two_above(found.k[0]))),
    }


def _split_k(found: Product) -> int:
    """How many programs share a tile's inner dimension, where that is long and there are few tiles (1 with a reduction, and
    for several products)."""
    if found.reduces or len(found.factors) > 1 or found.offsets or found.whole_numbers:
        return 1
    tiles = tiles_of(found, 64, 64)
    least = LONG_INNER_OF_BATCH if found.batch else LONG_INNER
    return shares(tiles, 2, lambda split: split <= MAX_SPLIT and found.k[0] // split >= least)


def _split_n(found: Product) -> int:
    """How many programs share the columns of a row, so that there are enough of them (1 without a reduction)."""
    if not found.reduces:
        return 1
    rows = -(-found.m[0] // 64) * (product(found.batch)[0] if found.batch else 1)
    return shares(rows, 2, lambda split: split * 64 <= found.n[0])


class _Assembler:
    """Prints one matmul stage: kernels and launcher."""

    def __init__(self, laid: Laid, stage: Stage, name: str, back: Back | None = None) -> None:
        self.laid, self.stage, self.name = laid, stage, name
        self.graph, self.body = graph, body = laid.graph, laid.body
        self.kernel = ProductKernel(graph, body, stage, name, back)
        self.kernel.write()
        self.scope = scope_of(graph, body)
        self.spare: dict[str, Varying] = {}
        found = self.kernel.found
        labels = ((found.m, "n_m"), (found.n, "n_n"), (found.k, "n_k"))
        self.m, self.n, self.k = (size_expression(size, label, self.scope, self.spare) for size, label in labels)
        self.batch = self._size(product(found.batch), "n_batch") if found.batch else "1"
        self.dispatch = dispatch_of(found, stage, self.m)
        self.tile = self.dispatch.texts

    def _size(self, size: tuple[int, ...], label: str) -> str:
        return size_expression(size, label, self.scope, self.spare)

    def emit(self) -> Printed:
        """The kernels and their launcher."""
        graph, body, stage, kernel = self.graph, self.body, self.stage, self.kernel
        shares = kernel.shares
        stores = () if shares and not kernel.streaming else body.stores
        lines = [*self.laid.before, *contiguous_lines(kernel.writer)]
        lines += [allocation(graph, body, value, self.scope, self.spare) for value in body.stores]
        lines += [INDENT + line for line in self.dispatch.lines]
        lines += self._workspaces()
        made = shares[:1] if kernel.split_k > 1 else () if kernel.found.reduces else body.stores[:1]
        largest = ", ".join(f"{value}.numel()" for value in (*kernel.operands.lefts, *kernel.operands.rights, *made))
        constants = [("WIDE", f"max({largest}) >= 2**31")]
        constants += [(key.upper(), self.tile[key]) for key in ("block_m", "block_n", "block_k")]
        # Where tiles end with the matrices the compiler drops their masks.
        sizes_of = {"m": self.m, "n": self.n, "k": self.k}
        constants += [
            (f"EVEN_{x.upper()}", f"({size}) % {self.tile[f'block_{x}']} == 0") for x, size in sizes_of.items()
        ]
        if kernel.found.scales:
            groups = dict.fromkeys(self._size(group, "group") for _, _, group in kernel.found.scales)
            block_k = self.tile["block_k"]
            constants.append(("IN_GROUPS", " and ".join(f"({group}) % {block_k} == 0" for group in groups)))
        if kernel.found.offsets:
            constants.append(("GROUPS", f"triton.next_power_of_2({self._size(kernel.found.groups, 'n_groups')})"))
        if not kernel.found.reduces:
            constants.append(("GROUP_M", str(stage.number("group_m"))))
        instead, texts = tuple[tuple[str, str], ...](), list[str]()
        if kernel.transposed_copy:
            instead = ((kernel.found.right, NAME),)
            texts.append(self._turned(lines))
        if kernel.way.described:
            count = self._size(kernel.found.groups, "n_groups") if kernel.found.offsets else ""
            sizes = Sizes(self.m, self.n, self.k, self.batch, count)
            lines += [INDENT + line for line in launcher_lines(kernel, self.tile, sizes)]
            constants.append(("DESCRIBED", "described"))
            if kernel.specialized:
                constants.append(("SPECIAL", SPECIAL.format(kernel.found.left)))
        extra = (*kernel.tables, *shares)
        texts.append(kernel_text(kernel.writer, stores, extra, [key for key, _ in constants], self._doc()))
        warps, stages = self.tile["num_warps"], self.tile["num_stages"]
        name = f"{self.name}_kernel"
        more = tuple((key, int(value)) for key, value in stage.schedule if key in OPTIONS and value)
        launch = Launch(
            name, kernel.writer, stores, extra, self._grid(), tuple(constants), warps, stages, instead, more
        )
        lines += launch_lines(launch, self.scope, self.spare)
        if shares:
            texts.append(self._second(lines))
        lines += self.laid.after
        return replace(printed(body, self.name, texts, lines, self.spare), as_laid=self.laid.results)

    def _workspaces(self) -> list[str]:
        """Lines that allocate what the second kernel reads."""
        if self.kernel.streaming:
            size = f"2 * {self.kernel.streaming}, {self.stage.number('block_m')}, {self.stage.number('block_n')}"
            device = f"device={self.kernel.operands.lefts[0]}.device, dtype=torch.float32"
            return [f"{INDENT}shares = torch.empty(({size}), {device})"]
        rows = self.m if self.batch == "1" else f"{self.batch}, {self.m}"
        split_k = f"({self.stage.number('split_k')}, {rows}, {self.n})"
        shape = split_k if self.kernel.split_k > 1 else f"({rows}, {self.stage.number('split_n')})"
        like = f"device={self.kernel.operands.lefts[0]}.device, dtype=torch.float32"
        return [f"{INDENT}{share} = torch.empty({shape}, {like})" for share in self.kernel.shares]

    def _doc(self) -> str:
        ops = ", ".join(self.stage.ops)
        if self.kernel.streaming:
            return f"{ops}: every program makes as many tiles as the others, and a share of those that are left."
        if self.kernel.persistent:
            return f"{ops}: BLOCK_M x BLOCK_N tiles of the product, every program one after the other."
        if self.kernel.found.reduces:
            return f"{ops}: BLOCK_M rows a program, the product is reduced as it is made and never written."
        if self.kernel.symmetric:
            return f"{ops}: a tile on or above the diagonal a program, and what it is below."
        return f"{ops}: a BLOCK_M x BLOCK_N tile of the product a program."

    def _grid(self) -> tuple[str, ...]:
        down = f"triton.cdiv({self.m}, {self.tile['block_m']})"
        if groups := self.kernel.found.groups:
            down = blocks_in_launcher(self.m, self._size(groups, "n_groups"), self.tile["block_m"])
        across = f"triton.cdiv({self.n}, {self.tile['block_n']})"
        tiles = tiles_of_half(across) if self.kernel.symmetric else f"{down} * {across}"
        if self.kernel.streaming:
            return (str(self.kernel.streaming),)
        if self.kernel.persistent:
            return (f"min({self.kernel.persistent}, {tiles if self.batch == '1' else f'{self.batch} * {tiles}'})",)
        first = down if self.kernel.found.reduces else tiles
        two = (self.batch, first) if crowded(self.kernel.found.batch) else (first, self.batch)
        split = max(self.kernel.split_k, self.kernel.split_n)
        if split > 1:
            return (*two, str(split))
        return two if self.kernel.found.batch else (first,)

    def _turned(self, lines: list[str]) -> str:
        """Print the kernel that turns the right operand and add its launch to the launcher's lines."""
        writer = turn(self.kernel)
        lines += [INDENT + line for line in turn_lines(self.kernel)]
        launch = turn_launch(self.kernel, writer, self.n, self.k, self.batch)
        lines += launch_lines(launch, self.scope, self.spare)
        doc = "Copy a tile of the right operand, turned."
        return kernel_text(writer, (), (NAME,), [key for key, _ in launch.constants], doc)

    def _shared_tile(self) -> tuple[tuple[int, int], tuple[str, str]]:
        """The tile of the kernel that adds up shares, and how many programs it takes along two axes."""
        if self.kernel.symmetric:
            side = min(SIDE, self.stage.number("block_m"))
            return (side, side), (tiles_of_half(f"triton.cdiv({self.n}, {side})"), "1")
        return (16, 128), (f"triton.cdiv({self.m}, 16)", f"triton.cdiv({self.n}, 128)")

    def _second(self, lines: list[str]) -> str:
        """Print the second kernel and add its launch to the launcher's lines."""
        kernel, stores, shares = self.kernel, self.body.stores, self.kernel.shares
        constants: tuple[tuple[str, str], ...]
        grid: tuple[str, ...]
        warps = 4
        if kernel.streaming:
            writer, doc = combine_parts(kernel), "Add up the parts of the tiles that several programs made."
            constants = (("WIDE", f"{self.m} * {self.n} >= 2**31"), ("PROGRAMS", str(kernel.streaming)))
            names = ("block_m", "block_n", "block_k", "group_m")
            constants += tuple((name.upper(), str(self.stage.number(name))) for name in names)
            m, n = self.stage.number("block_m"), self.stage.number("block_n")
            warps = max(warps, m * n // ELEMENTS_A_WARP)
            grid = (f"triton.cdiv({self.m}, {m}) * triton.cdiv({self.n}, {n}) % {kernel.streaming}",)
        elif kernel.split_k > 1:
            writer, doc = combine_k(kernel), "Add up the shares of the product."
            wide = f"{kernel.split_k} * {self.batch} * {self.m} * {self.n} >= 2**31"
            tile, tiles = self._shared_tile()
            blocks = zip(("BLOCK_M", "BLOCK_N"), map(str, tile), strict=True)
            constants = (("WIDE", wide), *blocks, ("SPLIT", str(kernel.split_k)))
            grid = (*tiles, self.batch) if kernel.found.batch else tiles
        else:
            writer, doc = combine_n(kernel), "Put together what the programs found in their columns."
            constants = (("BLOCK_ROWS", "16"), ("SPLIT", str(kernel.split_n)))
            rows = self.m if self.batch == "1" else f"{self.batch} * {self.m}"
            grid = (f"triton.cdiv({rows}, 16)",)
        text = kernel_text(writer, stores, shares, [key for key, _ in constants], doc)
        lines.extend(
            launch_lines(Launch(writer.name, writer, stores, shares, grid, constants, warps), self.scope, self.spare)
        )
        return text


def _should_transpose(graph: Graph, body: Body, found: Product) -> bool:
    """Whether a right operand [k, n] of fp32 or 8-bit numbers, which tensor cores read as [n, k], is read so often that a
    transposed copy is worth its two passes."""
    return (_is_fp32(graph, found) or found.of_8_bits) and can_transpose(graph, body, found) and found.m[0] >= MANY_ROWS


def _is_fp32(graph: Graph, found: Product) -> bool:
    return found.dtype == "float32" and (bool(found.prologue) or graph.values[found.right].dtype == "float32")
