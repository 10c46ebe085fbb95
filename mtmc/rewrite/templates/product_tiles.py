"""product_tiles: tiles of a product that are read and written through tensor descriptors, and results in several parts.

A descriptor is made by the launcher ("descriptors") or by the kernel itself ("own_descriptors"), which some compilers need
in order to give the loads warps of their own. Whether there can be descriptors is known at each launch: DESCRIBED.
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
from mtmc.rewrite.templates.product import Product
from mtmc.rewrite.templates.product_operands import Operands
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

    operands, results: "pointers", "descriptors", and of operands "own_descriptors". parts: in which a tile is stored.
    """

    operands: str
    results: str
    parts: int

    @classmethod
    def of(cls, stage: Stage) -> Tiles:
        """Those of a schedule."""
        schedule = dict(stage.schedule)
        operands, results = (str(schedule.get(name, "pointers")) for name in ("operands", "results"))
        return cls(operands, results, int(schedule.get("epilogue", 1)))

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
        if self.described and (found.prologue or found.made or found.offsets):
            raise NotCovered("a descriptor of an operand that is made in the kernel, or of one for each group")
        if self.described:
            tensors = [graph.values[value] for value in (found.left, *(factor.right for factor in found.factors))]
            if found.batch or not all(tensor.contiguous and len(tensor.shape) > 1 for tensor in tensors):
                raise NotCovered("descriptors of operands that are no contiguous matrices")
        if self.stored:
            for value in body.stores:
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
    n_m: str
    n_n: str
    n_k: str

    def groups(self) -> tuple[Group, ...]: ...
    def after(self, nodes: Sequence[Node], groups: tuple[Group, ...], variables: Variables, writer: Writer) -> None: ...
    def offset(self) -> str: ...


def make_descriptors(kernel: TiledProduct) -> None:
    """The lines of a kernel that makes its descriptors itself."""
    writer, found = kernel.writer, kernel.found
    columns = f"BLOCK_N // {kernel.way.parts}" if kernel.way.parts > 1 else "BLOCK_N"
    made = [(found.tiles_of(found.left), found.left, kernel.n_m, kernel.n_k, kernel.n_k, "BLOCK_M, BLOCK_K")]
    for right in kernel.operands.rights:
        name = found.tiles_of(right, right=True)
        stride = kernel.n_k if kernel.operands.transposed_copy else writer.stride(right, _across(kernel, right))
        if kernel.operands.inner_last:
            made.append((name, right, kernel.n_n, kernel.n_k, stride, "BLOCK_N, BLOCK_K"))
        else:
            made.append((name, right, kernel.n_k, kernel.n_n, stride, "BLOCK_K, BLOCK_N"))
    if kernel.way.stored:
        sizes = (kernel.n_m, kernel.n_n, kernel.n_n, f"BLOCK_M, {columns}")
        made += [(found.tiles_of(value), value, *sizes) for value in kernel.body.stores]
    writer.line("if DESCRIBED:")
    for name, value, rows, width, stride, block in made:
        # What the kernel writes is no input, whose pointer `Writer.pointer` would ask for.
        pointer = f"{value}_ptr" if value in kernel.body.stores else writer.pointer(value)
        shape = f"[{rows}, {width}], [{stride}, 1], [{block}]"
        writer.line(f"    {name} = tl.make_tensor_descriptor({pointer}, {shape})")


def _across(kernel: TiledProduct, right: str) -> int:
    """The axis of a right operand along which its rows lie."""
    return len(kernel.writer.tensor(right).shape) - 2


def read_tiles(kernel: TiledProduct, named_rows: str) -> None:
    """Read the operands' tiles through descriptors: what lies outside of a matrix is 0. named_rows: the tile's number."""
    writer, found = kernel.writer, kernel.found
    writer.line("if DESCRIBED:")
    writer.level += 1
    writer.line(f"a = {found.tiles_of(found.left)}.load([{named_rows} * BLOCK_M, start])")
    for factor in found.factors:
        b, tiles = kernel.operands.tile_name("b", factor), found.tiles_of(factor.right, right=True)
        if kernel.operands.inner_last:
            writer.line(f"{b} = tl.trans({tiles}.load([block_n * BLOCK_N, start]))")
        else:
            writer.line(f"{b} = {tiles}.load([start, block_n * BLOCK_N])")
    writer.level -= 1


def store_results(kernel: TiledProduct) -> None:
    """What comes after the product, and its stores; of a tile in parts one part after the other."""
    writer, parts = kernel.writer, kernel.way.parts
    if parts == 1:
        kernel.after(kernel.found.after, kernel.groups(), kernel.variables, writer)
        _store(kernel, kernel.variables, "")
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


def _store(kernel: TiledProduct, variables: Variables, before: str) -> None:
    """Store a tile, or the part of it that begins `before` columns later."""
    writer, values = kernel.writer, kernel.body.stores
    if kernel.way.stored:
        writer.line("if DESCRIBED:")
        for value in values:
            result = f"{variables[value]}.to({value}_ptr.dtype.element_ty)"
            tiles = kernel.found.tiles_of(value)
            writer.line(f"    {tiles}.store([block_m * BLOCK_M, block_n * BLOCK_N{before}], {result})")
        writer.line("else:")
    writer.level += int(kernel.way.stored)
    for value in values:
        writer.store(value, variables[value], kernel.offset(), "row_mask & col_mask")
    writer.level -= int(kernel.way.stored)


@dataclass(frozen=True)
class Sizes:
    """Expressions of the launcher."""

    m: str
    n: str
    k: str


def launcher_lines(kernel: TiledProduct, tile: Mapping[str, str], sizes: Sizes) -> list[str]:
    """The launcher's lines, without indentation, that say whether there are descriptors, and make them. tile: texts of the
    tile's sizes, by the settings' names."""
    left, way = kernel.found.left, kernel.way
    rights = ("transposed",) if kernel.operands.transposed_copy else kernel.operands.rights
    lines = [
        "# rows of matrices must begin at multiples of 16 bytes",
        f"described = {left}.data_ptr() % 16 == 0 and ({sizes.k}) * {left}.element_size() % 16 == 0",
    ]
    for right in rights:
        lines.append(f"described = described and {right}.data_ptr() % 16 == 0")
        lines.append(f"described = described and {right}.stride(0) * {right}.element_size() % 16 == 0")
    if way.stored:
        for size in dict.fromkeys(f"{value}.element_size()" for value in kernel.body.stores):
            lines.append(f"described = described and ({sizes.n}) * {size} % 16 == 0")
    if way.own:
        space = f"torch.empty(size, device={left}.device, dtype=torch.int8)"
        lines.append("# where the kernel puts its descriptors")
        return [*lines, f"triton.set_allocator(lambda size, alignment, stream: {space})"]
    return [*lines, *_made(kernel, tile, sizes, rights)]


def _made(kernel: TiledProduct, tile: Mapping[str, str], sizes: Sizes, rights: Sequence[str]) -> list[str]:
    m, n, k = (tile[f"block_{axis}"] for axis in "mnk")
    last = kernel.operands.inner_last
    shape, block = (f"{sizes.n}, {sizes.k}", f"{n}, {k}") if last else (f"{sizes.k}, {sizes.n}", f"{k}, {n}")
    found, left = kernel.found, kernel.found.left
    made = [(found.tiles_of(left), left, f"[{sizes.m}, {sizes.k}], [{sizes.k}, 1], [{m}, {k}]")]
    for right, given in zip(kernel.operands.rights, rights, strict=True):
        made.append((found.tiles_of(right, right=True), given, f"[{shape}], [{given}.stride(0), 1], [{block}]"))
    if kernel.way.stored:
        part = f"[{m}, {int(n) // kernel.way.parts if n.isdigit() else f'{n} // {kernel.way.parts}'}]"
        for value in kernel.body.stores:
            made.append((found.tiles_of(value), value, f"[{sizes.m}, {sizes.n}], [{sizes.n}, 1], {part}"))
    names, tensors = (", ".join(each[at] for each in made) for at in (0, 1))
    return [
        f"{names} = {tensors}",
        "if described:",
        *(f"    {name} = TensorDescriptor({tensor}, {rest})" for name, tensor, rest in made),
    ]
