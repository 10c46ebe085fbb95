"""writer: collects a kernel's arguments and lines while a template writes its body, and prints the `@triton.jit` function.

Beside it stands a function that launches it, see `launcher`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mtmc.rewrite.body import Body, Count, Index, NotCovered, Number, Operand, Part, Trailing
from mtmc.rewrite.folding import INDENT, docstring, wrapped
from mtmc.rewrite.graph import Graph, Shape, Size, Tensor, Varying, is_one, product, same
from mtmc.rewrite.open_sizes import is_open
from mtmc.rewrite.space import Access, Group, access, bare, flat, term
from mtmc.rewrite.templates.divisors import FULL, Divisors, divisors_of

_COLUMN, _SEGMENT = re.compile(r"\bcols\b"), re.compile(r"\bcols\)? // (\w+)")
_BLANK = re.compile(r"\bcol_mask\b")
_ROW, _ROWS = re.compile(r"\binner\b"), re.compile(r"\binner // (\w+)")

KEEP_ZERO = ("{0}", "{0} * {1}", "{0} * {0}", "{0} + {1}", "{0} - {1}", "-{0}", "tl.abs({0})")
"""Operations that make 0 of zeros."""


class Writer:
    """One kernel in the making.

    blocks: whether the columns at hand are BLOCK_COLS of them from `start` on. policy: how the cache should treat what is
    loaded for each row and column, or for each element of a space of `streamed` elements. segments: sizes by which such
    loads divide the column's number.
    rows_of_one: whether the rows at hand are BLOCK_ROWS neighbours, from the inner index `first_row` on, of one outer index.
    alike: sizes by which loads divide that inner index.
    blank: variables that are 0 where `col_mask` does not hold, or NaN in all of a row; None where nobody asks.
    wanted: names of sizes that the compiler had better know, besides divisors.
    moved: values that are read at other places than the one at hand. elsewhere: how many values are computed there.
    hangs: variables that hold an index which was loaded, with the running indices that it was loaded by.
    windows: whether each element is asked for once, so that the taps of a window may be gone through there.
    """

    def __init__(self, graph: Graph, body: Body, name: str) -> None:
        self.graph = graph
        self.body = body
        self.name = name
        self.lines: list[str] = []
        self.level = 1
        self.sizes: dict[Size, str] = {}
        self.strides: dict[tuple[str, int], str] = {}
        self.numbers: dict[Varying, str] = {}
        self.given: dict[str, str] = {}
        self.given_sizes: dict[str, Size] = {}
        self.wanted: set[str] = set()
        self.used: set[str] = set()
        self.contiguous: set[str] = set()
        self.moved: set[str] = set()
        self.elsewhere = 0
        self.hangs: dict[str, frozenset[str]] = {}
        self.policy = ""
        self.streamed: Size | None = None
        self.blocks = False
        self.windows = False
        self.segments: set[str] = set()
        self.rows_of_one = False
        self.alike: set[str] = set()
        self.blank: set[str] | None = None

    # -- lines ---------------------------------------------------------------------------------------------------
    def line(self, text: str) -> None:
        """Add one line at the present indentation."""
        self.lines.append(INDENT * self.level + text)

    def widen(self, *names: str) -> None:
        """Lines that make whole numbers of 64 bits of variables, where the launcher says that offsets need them (WIDE)."""
        self.line("if WIDE:  # more elements than a 32-bit offset can reach")
        for name in names:
            self.line(f"    {name} = {name}.to(tl.int64)")

    def comment(self, text: str) -> None:
        """Add a comment line."""
        self.line(f"# {text}")

    def round(self, tile: str) -> None:
        """Lines that round a tile of fp32 numbers in registers to the nearest of TF32; infinities and NaN stay."""
        self.line(f"{tile}_bits = ({tile}.to(tl.int32, bitcast=True) + 4096) & -8192  # to the nearest of TF32")
        self.line(f"{tile} = tl.where({tile} == {tile}, {tile}_bits.to(tl.float32, bitcast=True), {tile})")

    # -- arguments -----------------------------------------------------------------------------------------------
    @property
    def inputs(self) -> list[str]:
        """The values from outside that the lines so far point to, in the body's order."""
        return [value for value in self.body.loads if value in self.used]

    def tensor(self, value: str) -> Tensor:
        """What is known of a value from outside."""
        return self.graph.values[value]

    def preset(self, size: Size, name: str) -> str:
        """Give a size its argument name before it is first used."""
        if size and not is_one(size):
            self.sizes.setdefault(size, name)
        return self.size(size)

    def size(self, size: Size) -> str:
        """Name of the kernel argument that holds a size."""
        if not size or is_one(size):
            return "1"
        if size not in self.sizes:
            self.sizes[size] = f"size_{len(self.sizes)}"
        return self.sizes[size]

    def number(self, number: Varying) -> str:
        """Name of the kernel argument that holds a scalar."""
        if all(isinstance(value, int) for value in number.values):
            return self.size(tuple(int(value) for value in number.values))
        return self.numbers.setdefault(number, f"scale_{len(self.numbers)}")

    def argument(self, name: str, expression: str, size: Size) -> str:
        """An argument of its own, whose expression in the launcher is known: sizes that only happen to be equal wherever
        the reference was exported (height and width, say) are not taken for one. size: what it was there."""
        self.given[name], self.given_sizes[name] = expression, size
        return name

    def divisors(self) -> Divisors:
        """The sizes that the lines so far divide by."""
        named = {**{name: size for size, name in self.sizes.items()}, **self.given_sizes}
        sizes = {name: size[0] for name, size in named.items() if size}
        opened = {name: number for name, number in sizes.items() if is_open(self.graph, named[name])}
        return divisors_of(self.lines, sizes, opened, self.wanted)

    def stride(self, value: str, axis: int) -> str:
        """Name of the kernel argument that holds a tensor's stride along an axis, in elements."""
        return self.strides.setdefault((value, axis), f"{value}_stride_{axis}")

    def pointer(self, value: str) -> str:
        """Name of the kernel argument that points to a value."""
        self.used.add(value)
        return f"{value}_ptr"

    def access(self, operand: str | Trailing, shape: Shape, groups: tuple[Group, ...]) -> Access:
        """How to reach an operand from outside at a logical shape."""
        value, ones = (operand.value, operand.ones) if isinstance(operand, Trailing) else (operand, 0)
        tensor = self.tensor(value)
        if tensor.contiguous:
            self.contiguous.add(value)
        return access(tensor, ones, shape, groups, self.size, lambda axis: self.stride(value, axis))

    def index(self, item: Index, shape: Shape, groups: tuple[Group, ...]) -> str:
        """The position along a dimension of a logical shape."""
        numbers = Tensor((shape[-item.axis],), "int32", True)
        found = access(numbers, item.axis - 1, shape, groups, self.size, lambda axis: "1")
        return found.offset or "0"

    def load(self, operand: str | Trailing, shape: Shape, groups: tuple[Group, ...], variable: str) -> None:
        """Write the load of an operand into a variable; floats are computed on in fp32."""
        value = operand.value if isinstance(operand, Trailing) else operand
        reach = self.access(operand, shape, groups)
        offset = bare(reach.offset)
        address = f"{self.pointer(value)} + {offset}" if offset else self.pointer(value)
        other = ", other=0.0" if self.tensor(value).is_float else ", other=0"
        guard = f", mask={bare(reach.mask)}{other}" if reach.mask else ""
        segment = self._segment(offset)
        if self.policy and not segment and self._is_read_once(value, reach):
            guard += f', eviction_policy="{self.policy}"'
        cast = ".to(tl.float32)" if self.tensor(value).is_float else ""
        shared = self._shared_by_rows(offset)
        self._note_blank(variable, "" if segment else reach.mask)
        if shared:
            self.alike.add(shared)
            first, without = _ROW.sub("first_row", address), _guard(reach.mask, "row_mask", other)
            self.line("if ALIKE:  # the rows at hand have it in common")
            self.line(f"    {variable} = tl.load({first}{without}){cast}")
            self.line("else:")
        elif segment:
            self.segments.add(segment)
            first = _COLUMN.sub("start", address)
            last, without = _COLUMN.sub("last_col", address), _guard(reach.mask, "col_mask", other)
            self.line("if ALIGNED:  # the columns at hand have it in common")
            self.line(f"    {variable} = tl.load({first}{without}){cast}")
            self.line("elif LONG:  # or there is one border between them")
            self.line(f"    {variable}_first = tl.load({first}{without}){cast}")
            self.line("    last_col = tl.minimum(start + BLOCK_COLS, n_cols) - 1")
            self.line(f"    {variable}_last = tl.load({last}{without}){cast}")
            border = f"cols < (start // {segment} + 1) * {segment}"
            self.line(f"    {variable} = tl.where({border}, {variable}_first, {variable}_last)")
            self.line("else:")
        self.line(f"{INDENT * bool(shared or segment)}{variable} = tl.load({address}{guard}){cast}")

    def wide(self, count: str, elements: Size) -> str:
        """Whether an offset may be more than 32 bits hold: expression of the launcher.

        count: expression of the number of elements that the kernel goes over, which were `elements`. Operands with gaps in
        memory, and those of which elements are picked, may reach further.
        """
        reaches, ones = [count], (1,) * len(self.graph.variants)
        for value in dict.fromkeys((*(value for value, _ in self.strides), *sorted(self.moved))):
            tensor = self.tensor(value)
            if not tensor.contiguous:
                axes = [axis for other, axis in self.strides if other == value]
                reaches.append(" + ".join(f"{value}.shape[{axis}] * {value}.stride({axis})" for axis in axes))
            elif tensor.shape and any(a > b for a, b in zip(product(tensor.shape), elements or ones, strict=True)):
                reaches.append(f"{value}.numel()")
        return f"max({', '.join(reaches)}) >= 2**31" if len(reaches) > 1 else f"{count} >= 2**31"

    def load_from(self, value: str, offset: str, mask: str, variable: str, other: str = "") -> None:
        """Write the load of a value at an offset, where a mask holds ("": everywhere), into a variable. other: what stands
        elsewhere, if that is not 0."""
        address = f"{self.pointer(value)} + {offset}" if offset else self.pointer(value)
        other = other or ("0.0" if self.tensor(value).is_float else "0")
        guard = f", mask={mask}, other={other}" if mask else ""
        cast = ".to(tl.float32)" if self.tensor(value).is_float else ""
        self._note_blank(variable, mask)
        self.line(f"{variable} = tl.load({address}{guard}){cast}")

    def _note_blank(self, variable: str, mask: str) -> None:
        """Note whether a variable, loaded where a mask holds, is 0 where no column is."""
        if self.blank is not None:
            (self.blank.add if _BLANK.search(mask) else self.blank.discard)(variable)

    def note_made(self, variable: str, operation: str, parts: Sequence[str]) -> None:
        """Note whether a variable, made by an operation from others, is 0 where no column is."""
        if self.blank is not None and operation in KEEP_ZERO and self.blank.issuperset(parts):
            self.blank.add(variable)

    def _is_read_once(self, value: str, reach: Access) -> bool:
        """Whether a value has an element for each at hand."""
        whole = self.streamed is not None and same(product(self.tensor(value).shape), self.streamed)
        return whole or ("row_mask" in reach.mask and "col_mask" in reach.mask)

    def _segment(self, offset: str) -> str:
        """Of a block of columns: the size by which an offset divides them, if nothing else of it depends on them."""
        found = _SEGMENT.search(offset) if self.blocks and len(_COLUMN.findall(offset)) == 1 else None
        return found.group(1) if found else ""

    def _shared_by_rows(self, offset: str) -> str:
        """The size by which an offset divides the inner index of rows, if nothing else of it depends on that."""
        found = _ROWS.search(offset) if self.rows_of_one and len(_ROW.findall(offset)) == 1 else None
        return found.group(1) if found else ""

    def store_at(self, value: str, variable: str, groups: tuple[Group, ...], mask: str, offset: str = "") -> None:
        """Write the store of a result's elements at hand. offset: where they lie in a tensor of their own, if that stands
        anywhere."""
        part = self.body.part(value)
        if part is not None and part.dim:
            offset = self._in_part(part, groups)
        offset = offset or bare(flat(groups, self.size).index)
        self._store(value, variable, offset, mask)

    def _in_part(self, part: Part, groups: tuple[Group, ...]) -> str:
        """Where the elements at hand lie in a part of a larger tensor: in order from one dimension on, while what is before
        that steps over the other parts."""
        shape = self.graph.values[part.value].shape

        def place(first: int, end: int) -> str:
            numbers = Tensor(shape[first:end], "int32", True)
            return access(numbers, len(shape) - end, shape, groups, self.size, lambda axis: "").offset

        outer, inner = place(0, part.dim), place(part.dim, len(shape))
        steps = f"{term(outer)}.to(tl.int64) * {self.stride(part.value, part.axis)}" if outer else ""
        return " + ".join(each for each in (steps, inner) if each)

    def store(self, value: str, variable: str, offset: str, mask: str) -> None:
        """Write the store of a result. Raises: NotCovered for a part of a larger tensor."""
        if (part := self.body.part(value)) and part.dim:
            raise NotCovered(f"{value} as a part of a larger tensor")
        self._store(value, variable, offset, mask)

    def _store(self, value: str, variable: str, offset: str, mask: str) -> None:
        target = f"{self.pointer(value)} + {offset}" if offset else self.pointer(value)
        guard = f", mask={mask}" if mask else ""
        if value in self.body.rounded:
            self.line(f"{value}_near = {variable}")
            self.round(f"{value}_near")
            variable = f"{value}_near"
        self.line(f"tl.store({target}, {variable}{guard})")

    def text_of(self, operand: Operand) -> str:
        """A number inside an expression. Raises: NotCovered for a value that is not at hand."""
        if isinstance(operand, Number):
            return _literal(operand.value)
        if isinstance(operand, Varying):
            return self.number(operand)
        if isinstance(operand, Count):
            size = self.size(operand.size)
            return f"({size} - {operand.less})" if operand.less else size
        raise NotCovered(f"{operand} is not at hand")


def _guard(mask: str, known: str, other: str) -> str:
    """The arguments of a load by some masks, but for one that holds. other: what there is where they do not."""
    rest = " & ".join(each for each in bare(mask).split(" & ") if each != known)
    return f", mask={rest}{other}" if rest else ""


def _literal(value: float) -> str:
    text = repr(value)
    if text in ("inf", "-inf", "nan"):
        return f'float("{text}")'
    return f"({text})" if value < 0 else text


def kernel_text(
    writer: Writer, outputs: Sequence[str], extra: Sequence[str], constants: Sequence[str], doc: str
) -> str:
    """The `@triton.jit` function. extra: names of further pointers (workspaces), passed after the outputs."""
    parameters = [f"{value}_ptr" for value in (*writer.inputs, *outputs)]
    divisors = writer.divisors()
    sizes = [f"{name}: tl.constexpr" if name in divisors.constants else name for name in writer.sizes.values()]
    parameters += [*extra, *sizes, *writer.strides.values(), *writer.numbers.values()]
    parameters += [f"{name}: tl.constexpr" if name in divisors.constants else name for name in writer.given]
    parameters += [f"{name}: tl.constexpr" for name in (*([FULL] if divisors.full else []), *constants)]
    head = wrapped(f"def {writer.name}(", parameters, "):")
    known = [INDENT + line for line in divisors.lines()]
    return "\n".join(["@triton.jit", *head, *docstring(doc), *known, *writer.lines])
