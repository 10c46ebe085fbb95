"""attention_tiles: tiles of queries, keys, values and results that come and go through tensor descriptors.

Made by the launcher they are of whole tensors, [batch, heads, columns, width] with any strides; made by the kernel
("own_descriptors") they are of its head's matrices. Whether there can be any is known at each launch: DESCRIBED. What lies
outside of a matrix is read as 0 and not written.
"""

from __future__ import annotations

from typing import Protocol

from mtmc.rewrite.body import Body, NotCovered
from mtmc.rewrite.graph import Graph, is_one, product, same
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.templates.product_tiles import BY_KERNEL, BY_LAUNCHER, OWN_WARPS, STORED
from mtmc.rewrite.templates.softmax_product import SoftmaxProduct
from mtmc.rewrite.templates.writer import Writer

TABLES = ("query_tiles", "key_tiles", "value_tiles", "result_tiles")
"""The descriptors that a kernel takes."""


def way_of(stage: Stage) -> str:
    """How a schedule wants operands read."""
    return str(dict(stage.schedule).get("operands", "pointers"))


def is_described(way: str) -> bool:
    """Whether tiles come and go through descriptors where they can."""
    return way in (BY_LAUNCHER, BY_KERNEL)


def describable(graph: Graph, found: SoftmaxProduct) -> bool:
    """Whether there can be descriptors: of keys and values in one tensor each, in rows at multiples of 16 bytes."""
    sizes = {"float16": 2, "bfloat16": 2, "float32": 4}
    dtype = graph.values[found.query].dtype
    if found.wide or found.made or len(found.regions) > 1 or dtype not in sizes:
        return False
    return not any(length[0] * sizes[dtype] % 16 for length in (found.width, found.out_width))


def check(graph: Graph, found: SoftmaxProduct, stage: Stage, stores: tuple[str, ...]) -> None:
    """Raises: NotCovered where a schedule's descriptors, or warps of their own, do not suit."""
    way, schedule = way_of(stage), dict(stage.schedule)
    if is_described(way):
        tensors = [graph.values[value] for value in stores]
        if found.wide or found.made or len(found.regions) > 1:
            raise NotCovered("descriptors of keys and values in several tensors or in pages, or of wide heads")
        if len(tensors) != 1 or tensors[0].dtype not in STORED:
            raise NotCovered("a descriptor of several results, or of one that is not floating")
    if schedule.get("specialized") and (way != BY_KERNEL or schedule.get("masks") == "edges"):
        raise NotCovered("warps of their own for loads without descriptors of the kernel's own, or in two loops")
    if schedule.get("specialized") and stage.number("num_warps") != OWN_WARPS:
        raise NotCovered(f"warps of their own for loads of a kernel with other than {OWN_WARPS} warps")


class TiledAttention(Protocol):
    """What is asked of the attention that is being written, see `attention_operands.Operands`."""

    writer: Writer
    found: SoftmaxProduct
    body: Body
    way: str
    query_strides: list[str]

    def digits(self, value: str) -> list[str]: ...
    def parts(self, value: str, first: int, second: int) -> tuple[str, str, str]: ...


def digits(writer: Writer, found: SoftmaxProduct, value: str) -> list[str]:
    """Which of a tensor's matrices a program reads: its number along each dimension of the batch, by the number `batch`."""
    tensor, batch, numbers = writer.graph.values[value], found.batch, list[str]()
    for axis in range(len(batch)):
        below, own = product(batch[axis + 1 :]), tensor.shape[axis]
        if is_one(own):
            numbers.append("0")
            continue
        number = "batch" if not below or is_one(below) else f"batch // {writer.size(below)}"
        if axis > 0:
            number = f"batch % {writer.size(batch[axis])}"
        if not same(own, batch[axis]):
            heads = f"{found.query}.shape[{axis}] // {value}.shape[{axis}]"
            if found.made:
                share = f"({writer.size(batch[axis])} // {writer.size(own)})"
            else:
                each = tuple(a // b for a, b in zip(batch[axis], own, strict=True))
                share = writer.argument(f"{value}_share", heads, each)
            number = f"{number} // {share}"
        numbers.append(number)
    return numbers


def make_descriptors(kernel: TiledAttention, rows: str) -> None:
    """The lines of a kernel that makes the descriptors of its head's matrices itself. rows: their number."""
    writer, found, region, (stored,) = kernel.writer, kernel.found, kernel.found.regions[0], kernel.body.stores
    key, *key_steps = kernel.parts(region.key, -2, -1)
    value, value_step, _ = kernel.parts(region.value, -2, -1)
    columns = writer.size(found.columns)
    made = (
        ("query", "queries", rows, "WIDTH", kernel.query_strides[0], "BLOCK_M, BLOCK_K"),
        ("key", key, columns, "WIDTH", key_steps[0 if found.transposed else 1], "BLOCK_N, BLOCK_K"),
        ("value", value, columns, "OUT_WIDTH", value_step, "BLOCK_N, BLOCK_V"),
        ("result", f"{stored}_ptr + batch * {rows} * OUT_WIDTH", rows, "OUT_WIDTH", "OUT_WIDTH", "BLOCK_M, BLOCK_V"),
    )
    writer.line("if DESCRIBED:")
    for role, pointer, height, width, step, block in made:
        shape = f"[{height}, {width}], [{step.removeprefix(' * ') or 1}, 1], [{block}]"
        writer.line(f"    {role}_tiles = tl.make_tensor_descriptor({pointer}, {shape})")


def read(kernel: TiledAttention, role: str, masked: str, unmasked: str) -> None:
    """Load a tile of keys or values, through a descriptor if it has one. masked: the load through pointers. unmasked: the
    one that will do where the heads' width is a power of two."""
    writer, region, cases = kernel.writer, kernel.found.regions[0], list[tuple[str, str]]()
    if is_described(kernel.way):
        value, width = (region.key, "BLOCK_K") if role == "key" else (region.value, "BLOCK_V")
        tile = load(role, kernel.digits(value), kernel.way, "start", f"BLOCK_N, {width}")
        cases.append(("DESCRIBED", f"k = tl.trans({tile})" if role == "key" else f"v = {tile}"))
    if unmasked != masked:
        cases.append(("WIDTH == BLOCK_K" if role == "key" else "OUT_WIDTH == BLOCK_V", unmasked))
    for number, (condition, line) in enumerate(cases):
        writer.line(f"{'elif' if number else 'if'} {condition}:")
        writer.line(f"    {line}")
    if cases:
        writer.line("else:")
    writer.line(f"{'    ' if cases else ''}{masked}")


def load(role: str, digits: list[str], way: str, first: str, block: str) -> str:
    """A tile whose first row has this number. role: "query", "key" or "value". digits: of the program's matrix."""
    if way == BY_KERNEL:
        return f"{role}_tiles.load([{first}, 0])"
    return f"tl.reshape({role}_tiles.load([{', '.join([*narrow(digits), first, '0'])}]), [{block}])"


def store(value: str, digits: list[str], way: str, first: str, result: str) -> str:
    """Write a tile of the result, `value`."""
    cast = f"{result}.to({value}_ptr.dtype.element_ty)"
    if way == BY_KERNEL:
        return f"result_tiles.store([{first}, 0], {cast})"
    block = ", ".join([*(["1"] * len(digits)), "BLOCK_M", "BLOCK_V"])
    return f"result_tiles.store([{', '.join([*narrow(digits), first, '0'])}], tl.reshape({cast}, [{block}]))"


def narrow(digits: list[str]) -> list[str]:
    """The same numbers as 32-bit ones, which is what a descriptor takes."""
    return [digit if digit == "0" else f"({digit}).to(tl.int32)" for digit in digits]


def launcher_lines(found: SoftmaxProduct, stage: Stage, stored: str, inner: str, outer: str) -> list[str]:
    """The launcher's lines that say whether there are descriptors, and make them. inner, outer: blocks of the widths."""
    region, rows, columns = found.regions[0], stage.number("block_m"), stage.number("block_n")
    key = region.key if found.transposed else f"{region.key}.transpose(-2, -1)"
    tensors = ", ".join(dict.fromkeys((found.query, key, region.value, stored)))
    lines = [
        "# rows must begin at multiples of 16 bytes, and their elements lie side by side",
        f"described = all(x.data_ptr() % 16 == 0 and x.stride(-1) == 1 for x in ({tensors}))",
        "described = described and all(",
        f"    step > 0 and step * x.element_size() % 16 == 0 for x in ({tensors}) for step in x.stride()[:-1]",
        ")",
    ]
    if way_of(stage) == BY_KERNEL:
        space = f"torch.empty(size, device={found.query}.device, dtype=torch.int8)"
        lines.append("# where the kernel puts its descriptors")
        return [*lines, f"triton.set_allocator(lambda size, alignment, stream: {space})"]
    ones = ", ".join(["1"] * len(found.batch))
    made = (
        ("query", found.query, f"{rows}, {inner}"),
        ("key", key, f"{columns}, {inner}"),
        ("value", region.value, f"{columns}, {outer}"),
        ("result", stored, f"{rows}, {outer}"),
    )
    lines.append(f"{', '.join(TABLES)} = {', '.join(value for _, value, _ in made)}")
    lines.append("if described:")
    for role, value, block in made:
        shape = f"list({value}.shape), list({value}.stride()), [{ones}, {block}]"
        lines.append(f"    {role}_tiles = TensorDescriptor({value}, {shape})")
    return lines
