"""product_tiles: tiles of a product that are read and written through tensor descriptors, and results in several parts.

A descriptor is made by the launcher ("descriptors") or by the kernel itself ("own_descriptors"), which some compilers need
in order to give the loads warps of their own. Whether there can be descriptors is known at each launch: DESCRIBED.

The matrices of a batch lie one after the other, so they have one descriptor, of a matrix with the rows of all. A tile that
reaches over the end of one gets rows of the next: such rows of a left operand, and columns of a right one, belong to
elements of the result that are not stored. What is added up is another matter, and so are stored tiles: no tile may reach
over the end there. So have the matrices of groups of rows, and a tile of the rows begins where its block does, and
reaches into the next group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from mtmc.rewrite.body import Body, Node, NotCovered
from mtmc.rewrite.graph import Graph
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.space import Group
from mtmc.rewrite.templates.pointwise import Variables
from mtmc.rewrite.templates.product import Product, lie_as_matrices, rights_across
from mtmc.rewrite.templates.product_operands import Operands
from mtmc.rewrite.templates.product_symmetric import mirror
from mtmc.rewrite.templates.writer import Writer

BY_LAUNCHER, BY_KERNEL = "descriptors", "own_descriptors"
STORED = ("float16", "bfloat16", "float32")
"""Types of results that are written through descriptors."""
SPECIAL = "described and (not {0}.is_cuda or torch.cuda.get_device_capability({0}.device) == (9, 0))"
"""Expression of the launcher: whether loads get warps of their own. {0}: a tensor. Elsewhere the kernel does without."""
OWN_WARPS = 4
"""Of a kernel whose loads get warps of their own: the compiler adds a group of eight that multiply."""
MAX_PARTS = 4
"""In which a tile is stored."""


@dataclass(frozen=True)
class Tiles:
    """How a product's tiles come and go.

    operands, results: "pointers", "descriptors", and of operands "own_descriptors". parts: in which a tile is stored. rows:
        of a tile.
    """

    operands: str
    results: str
    parts: int
    rows: int

    @classmethod
    def of(cls, stage: Stage) -> Tiles:
        """Those of a schedule."""
        schedule = dict(stage.schedule)
        operands, results = (str(schedule.get(name, "pointers")) for name in ("operands", "results"))
        return cls(operands, results, int(schedule.get("epilogue", 1)), stage.number("block_m"))

    @property
    def described(self) -> bool:
        """Whether operands are read through descriptors."""
        return self.operands in (BY_LAUNCHER, BY_KERNEL)

    @property
    def stored(self) -> bool:
        """Whether results are written through descriptors."""
        return self.results == BY_LAUNCHER

    @property
    def own(self) -> bool:
        """Whether the kernel makes its descriptors."""
        return self.operands == BY_KERNEL

    def check(self, graph: Graph, body: Body, found: Product, whole: bool) -> None:
        """Raises: NotCovered where they do not suit a product. whole: whether a program makes all of a tile's result."""
        if (self.stored and not self.described) or self.parts not in (1, 2, MAX_PARTS):
            raise NotCovered("results through descriptors where operands have none, or a tile in odd parts")
        if (self.stored or self.parts > 1) and not whole:
            raise NotCovered("a tile's result in parts, or through a descriptor, where it is not made at once")
        if self.described and (found.prologue or found.made):
            raise NotCovered("a descriptor of an operand that is made in the kernel")
        if found.offsets and (self.stored or self.own):
            raise NotCovered("results of groups through descriptors, or descriptors of groups that the kernel makes")
        if self.described and not lie_as_matrices(graph, found):
            raise NotCovered("descriptors of operands that are no contiguous matrices")
        if self.stored and found.batch and found.m[0] % self.rows:
            raise NotCovered("results through descriptors where a tile would reach into the next product's")
        if self.stored:
            for value in body.stores:
                if body.part(value) is not None:
                    raise NotCovered(f"a descriptor of {value}, which is a part of a larger tensor")
                if graph.values[value].dtype not in STORED:
                    raise NotCovered(f"a descriptor of {value}, which is not floating")


class TiledProduct(Protocol):
    """What is asked of the product that is being written, see `ProductKernel`."""

    writer: Writer
    found: Product
    body: Body
    variables: Variables
    way: Tiles
    operands: Operands
    symmetric: bool
    n_batch: str
    n_m: str
    n_n: str
    n_k: str

    def groups(self) -> tuple[Group, ...]: ...
    def after(self, nodes: Sequence[Node], groups: tuple[Group, ...], variables: Variables, writer: Writer) -> None: ...
    def store_wide(self, writer: Writer, variables: Variables) -> None: ...


def make_descriptors(kernel: TiledProduct) -> None:
    """The lines of a kernel that makes its descriptors itself."""
    writer, found = kernel.writer, kernel.found
    columns = f"BLOCK_N // {kernel.way.parts}" if kernel.way.parts > 1 else "BLOCK_N"
    down = _all_rows(kernel, found.left, kernel.n_batch, kernel.n_m)
    made = [(found.tiles_of(found.left), found.left, down, kernel.n_k, kernel.n_k, "BLOCK_M, BLOCK_K")]
    for right in kernel.operands.rights:
        name = found.tiles_of(right, right=True)
        stride = kernel.n_k if kernel.operands.transposed_copy else writer.stride(right, _across(kernel, right))
        down = _all_rows(kernel, right, kernel.n_batch, kernel.n_n if kernel.operands.inner_last else kernel.n_k)
        if kernel.operands.inner_last:
            made.append((name, right, down, kernel.n_k, stride, "BLOCK_N, BLOCK_K"))
        else:
            made.append((name, right, down, kernel.n_n, stride, "BLOCK_K, BLOCK_N"))
    if kernel.way.stored:
        for value in kernel.body.stores:
            down = _all_rows(kernel, value, kernel.n_batch, kernel.n_m)
            made.append((found.tiles_of(value), value, down, kernel.n_n, kernel.n_n, f"BLOCK_M, {columns}"))
    writer.line("if DESCRIBED:")
    for name, value, rows, width, stride, block in made:
        # What the kernel writes is no input, whose pointer `Writer.pointer` would ask for.
        pointer = f"{value}_ptr" if value in kernel.body.stores else writer.pointer(value)
        shape = f"[{rows}, {width}], [{stride}, 1], [{block}]"
        writer.line(f"    {name} = tl.make_tensor_descriptor({pointer}, {shape})")


def _all_rows(kernel: TiledProduct, value: str, batch: str, rows: str) -> str:
    """Expression of a tensor's rows: those of one product times the number of products, where each has its own."""
    return f"{batch} * ({rows})" if _has_batch(kernel, value) else rows


def _has_batch(kernel: TiledProduct, value: str) -> bool:
    """Whether a tensor has rows of its own for each product of a batch: a result always, an operand if it is not shared."""
    own = value in kernel.body.stores or len(kernel.writer.tensor(value).shape) > 2
    return own and bool(kernel.found.batch)


def _lies_inner_last(kernel: TiledProduct) -> bool:
    """Whether the right operands lie as [n, k], for each group or product if there are several."""
    return kernel.operands.inner_last or rights_across(kernel.operands.graph, kernel.found)


def _row(kernel: TiledProduct, value: str, rows: str, inside: str) -> str:
    """Expression of a tile's first row in its descriptor. rows: of one product. inside: its first row in that."""
    if kernel.found.offsets:
        return f"(matrix * {rows} + {inside}).to(tl.int32)"
    return f"(batch * {rows} + {inside}).to(tl.int32)" if _has_batch(kernel, value) else inside


def _across(kernel: TiledProduct, right: str) -> int:
    """The axis of a right operand along which its rows lie."""
    return len(kernel.writer.tensor(right).shape) - 2


def read_tiles(kernel: TiledProduct, named_rows: str) -> None:
    """Read the operands' tiles through descriptors: what lies outside of a matrix is 0. named_rows: the tile's number."""
    writer, found = kernel.writer, kernel.found
    writer.line("if DESCRIBED:")
    writer.level += 1
    row = "begin" if found.offsets else _row(kernel, found.left, kernel.n_m, f"{named_rows} * BLOCK_M")
    writer.line(f"a = {found.tiles_of(found.left)}.load([{row}, start])")
    for factor in found.factors:
        b, tiles = kernel.operands.tile_name("b", factor), found.tiles_of(factor.right, right=True)
        if _lies_inner_last(kernel):
            row = _row(kernel, factor.right, kernel.n_n, "block_n * BLOCK_N")
            writer.line(f"{b} = tl.trans({tiles}.load([{row}, start]))")
        else:
            row = _row(kernel, factor.right, kernel.n_k, "start")
            writer.line(f"{b} = {tiles}.load([{row}, block_n * BLOCK_N])")
    writer.level -= 1


def store_results(kernel: TiledProduct) -> None:
    """What comes after the product, and its stores; of a tile in parts one part after the other."""
    writer, parts = kernel.writer, kernel.way.parts
    if parts == 1:
        kernel.after(kernel.found.after, kernel.groups(), kernel.variables, writer)
        _store(kernel, kernel.variables, "")
        if kernel.symmetric:
            other = ("block_n", "block_m")
            mirror(kernel, writer, kernel.variables, lambda turned: _store(kernel, turned, "", other))
        return
    names = [factor.dot.name for factor in kernel.found.factors]
    pieces = {name: _split(writer, name, parts) for name in names}
    for part in range(parts):
        before = f" + BLOCK_N // {parts} * {part}" if part else ""
        writer.line(f"cols = block_n * BLOCK_N{before} + tl.arange(0, BLOCK_N // {parts})[None, :]")
        writer.line(f"col_mask = (cols < {kernel.n_n}) | EVEN_N")
        variables: Variables = {name: pieces[name][part] for name in names}
        kernel.after(kernel.found.after, kernel.groups(), variables, writer)
        _store(kernel, variables, before)


def _split(writer: Writer, name: str, parts: int) -> list[str]:
    """Lines that cut a tile into parts of neighbouring columns. Returns: their names."""
    pieces, count = [name], 1
    while count < parts:
        count *= 2
        halves = [f"{name}_part_{count}_{number}" for number in range(count)]
        for piece, left, right in zip(pieces, halves[::2], halves[1::2], strict=True):
            split = f"tl.reshape({piece}, [BLOCK_M, 2, BLOCK_N // {count}])"
            writer.line(f"{left}, {right} = tl.split(tl.permute({split}, [0, 2, 1]))")
        pieces = halves
    return pieces


def _store(
    kernel: TiledProduct, variables: Variables, before: str, blocks: tuple[str, str] = ("block_m", "block_n")
) -> None:
    """Store a tile, or the part of it that begins `before` columns later. blocks: down and across, which tile it is."""
    writer, values = kernel.writer, kernel.body.stores
    if kernel.way.stored:
        writer.line("if DESCRIBED:")
        for value in values:
            result = f"{variables[value]}.to({value}_ptr.dtype.element_ty)"
            tiles = kernel.found.tiles_of(value)
            row = _row(kernel, value, kernel.n_m, f"{blocks[0]} * BLOCK_M")
            writer.line(f"    {tiles}.store([{row}, {blocks[1]} * BLOCK_N{before}], {result})")
        writer.line("else:")
    writer.level += int(kernel.way.stored)
    kernel.store_wide(writer, variables)
    writer.level -= int(kernel.way.stored)


@dataclass(frozen=True)
class Sizes:
    """Expressions of the launcher. batch: how many products there are. groups: of rows, "" where there are none."""

    m: str
    n: str
    k: str
    batch: str
    groups: str = ""


def launcher_lines(kernel: TiledProduct, tile: Mapping[str, str], sizes: Sizes) -> list[str]:
    """The launcher's lines, without indentation, that say whether there are descriptors, and make them. tile: texts of the
    tile's sizes, by the settings' names."""
    left, way = kernel.found.left, kernel.way
    rights = ("transposed",) if kernel.operands.transposed_copy else kernel.operands.rights
    lines = [
        "# rows of matrices must begin at multiples of 16 bytes",
        f"described = {left}.data_ptr() % 16 == 0 and ({sizes.k}) * {left}.element_size() % 16 == 0",
    ]
    step = _step(kernel)
    for right in rights:
        lines.append(f"described = described and {right}.data_ptr() % 16 == 0")
        lines.append(f"described = described and {right}.{step} * {right}.element_size() % 16 == 0")
    lines += _ends(kernel, tile, sizes)
    if way.stored:
        for size in dict.fromkeys(f"{value}.element_size()" for value in kernel.body.stores):
            lines.append(f"described = described and ({sizes.n}) * {size} % 16 == 0")
    if way.own:
        space = f"torch.empty(size, device={left}.device, dtype=torch.int8)"
        lines.append("# where the kernel puts its descriptors")
        return [*dict.fromkeys(lines), f"triton.set_allocator(lambda size, alignment, stream: {space})"]
    return [*dict.fromkeys(lines), *_made(kernel, tile, sizes, rights)]


def _ends(kernel: TiledProduct, tile: Mapping[str, str], sizes: Sizes) -> list[str]:
    """Lines for the products of a batch: no tile may reach into the next matrix where its rows would count there."""
    if sizes.groups:
        return _group_ends(kernel, tile, sizes)
    if not kernel.found.batch:
        return []
    longest = ", ".join(dict.fromkeys((sizes.m, sizes.n, sizes.k)))
    lines = [f"described = described and {sizes.batch} * max(1, {longest}) < 2**31  # rows are counted in 32 bits"]
    ends = "# none of a product's tiles may reach into the next one's matrix"
    if not kernel.operands.inner_last and any(_has_batch(kernel, right) for right in kernel.operands.rights):
        lines.append(f"described = described and ({sizes.k}) % {tile['block_k']} == 0  {ends}")
    if kernel.way.stored:
        lines.append(f"described = described and ({sizes.m}) % {tile['block_m']} == 0  {ends}")
    return lines


def _step(kernel: TiledProduct) -> str:
    """A right operand's step from row to row of its descriptor."""
    return "stride(-1)" if rights_across(kernel.operands.graph, kernel.found) else "stride(-2)"


def _group_ends(kernel: TiledProduct, tile: Mapping[str, str], sizes: Sizes) -> list[str]:
    """Lines for the matrices of groups, which must lie one after the other: they have one descriptor."""
    across = rights_across(kernel.operands.graph, kernel.found)
    whole = f"({sizes.n}) * ({sizes.k})"
    steps = f"({whole}, {f'1, {sizes.k}' if across else f'{sizes.n}, 1'})"
    lines = [f"described = described and {right}.stride() == {steps}" for right in kernel.operands.rights]
    lines.append("# rows are counted in 32 bits")
    rows = sizes.n if across else sizes.k
    lines.append(f"described = described and max({sizes.m}, {sizes.groups} * ({rows})) < 2**31")
    if not across:
        ends = "# no slice may reach into the next group's matrix"
        lines.append(f"described = described and ({sizes.k}) % {tile['block_k']} == 0  {ends}")
    return lines


def _made(kernel: TiledProduct, tile: Mapping[str, str], sizes: Sizes, rights: Sequence[str]) -> list[str]:
    m, n, k = (tile[f"block_{axis}"] for axis in "mnk")
    last, step = _lies_inner_last(kernel), _step(kernel)
    down, across, block = (sizes.n, sizes.k, f"{n}, {k}") if last else (sizes.k, sizes.n, f"{k}, {n}")
    found, left = kernel.found, kernel.found.left
    rows = _all_rows(kernel, left, sizes.batch, sizes.m)
    made = [(found.tiles_of(left), left, f"[{rows}, {sizes.k}], [{sizes.k}, 1], [{m}, {k}]")]
    for right, given in zip(kernel.operands.rights, rights, strict=True):
        height = f"{sizes.groups} * ({down})" if sizes.groups else _all_rows(kernel, right, sizes.batch, down)
        shape = f"[{height}, {across}]"
        made.append((found.tiles_of(right, right=True), given, f"{shape}, [{given}.{step}, 1], [{block}]"))
    if kernel.way.stored:
        part = f"[{m}, {int(n) // kernel.way.parts if n.isdigit() else f'{n} // {kernel.way.parts}'}]"
        for value in kernel.body.stores:
            rows = _all_rows(kernel, value, sizes.batch, sizes.m)
            made.append((found.tiles_of(value), value, f"[{rows}, {sizes.n}], [{sizes.n}, 1], {part}"))
    names, tensors = (", ".join(each[at] for each in made) for at in (0, 1))
    return [
        f"{names} = {tensors}",
        "if described:",
        *(f"    {name} = TensorDescriptor({tensor}, {rest})" for name, tensor, rest in made),
    ]
