"""product_operands: the lines of a product's kernel that find its operands in memory, load tiles of them, and work on them.

What makes an operand out of other tensors is in `product_prologue`, and what is known of the left one's rows before its
tiles in `product_statistics`.
"""

from __future__ import annotations

from mtmc.rewrite.body import Node
from mtmc.rewrite.graph import FP8, Shape, Tensor, is_one, product
from mtmc.rewrite.space import Group
from mtmc.rewrite.templates.pointwise import Variables, write_maps
from mtmc.rewrite.templates.product import Factor, Product
from mtmc.rewrite.templates.product_prologue import sources, write_left, write_right
from mtmc.rewrite.templates.writer import Writer


class Operands:
    """The operands of the product that is being written.

    transposed_copy: whether the launcher makes a copy of the right one whose inner dimension is the last.
    """

    def __init__(self, writer: Writer, found: Product, transposed_copy: bool) -> None:
        self.graph, self.body, self.writer, self.found = writer.graph, writer.body, writer, found
        self.n_n, self.n_k = writer.size(found.n), writer.size(found.k)
        self.transposed_copy = transposed_copy
        self.down: dict[str, str] = {}
        """Strides along k of right operands, as " * stride"."""

    @property
    def lefts(self) -> tuple[str, ...]:
        """The left operand, or what it is made of."""
        return sources(self.body, self.found.made) if self.found.made else (self.found.left,)

    @property
    def rights(self) -> tuple[str, ...]:
        """The right operands, or what the only one is made of."""
        if self.found.prologue:
            return sources(self.body, self.found.prologue)
        return tuple(factor.right for factor in self.found.factors)

    @property
    def loaded(self) -> tuple[Factor, ...]:
        """The factors whose right operand is loaded as it lies in memory."""
        return () if self.found.prologue else self.found.factors

    @property
    def inner_last(self) -> bool:
        """Whether the right operand, as the kernel gets it, is [n, k]."""
        return self.found.transposed or self.transposed_copy

    @property
    def statistics(self) -> tuple[Node, ...]:
        """What is known of each row of the left operand."""
        return self.found.statistics

    @property
    def before(self) -> tuple[Node, ...]:
        """Work on the left operand's elements."""
        return self.found.before

    @property
    def _zero(self) -> str:
        """What stands for elements outside of the bounds."""
        return "0" if self.found.whole_numbers else "0.0"

    def tile_name(self, word: str, factor: Factor) -> str:
        """What a factor's tile or pointer is called: by the word alone where there is one factor."""
        number = self.found.factors.index(factor)
        return f"{word}_{number + 1}" if number else word

    def point(self) -> None:
        """Pointers to the program's rows and columns."""
        writer, found = self.writer, self.found
        if not found.made:
            a = self.graph.values[found.left]
            writer.line(f"left = {self.base(found.left)} + rows{self._stride_m(a)}")
        for factor in self.loaded:
            self.down[factor.right], across = self.right_strides(factor.right)
            writer.line(f"{self.tile_name('right', factor)} = {self.base(factor.right)} + cols{across}")

    def load_left(self) -> None:
        """Load the tile of the left operand at `ks`, or make it."""
        if self.found.made:
            write_left(self)
            return
        along = self._times(self.found.left, tensor := self.graph.values[self.found.left], len(tensor.shape) - 1)
        mask = f"mask=row_mask & k_mask[None, :], other={self._zero}"
        self.writer.line(f"a = tl.load(left + ks[None, :]{along}, {mask})")

    def load_rights(self) -> None:
        """Load the tiles of the right operands at `ks`, but for what is made of others."""
        for factor in self.loaded:
            tile, right = self.tile_name("b", factor), self.tile_name("right", factor)
            address = f"{right} + ks[:, None]{self.down[factor.right]}"
            self.writer.line(f"{tile} = tl.load({address}, mask=k_mask[:, None] & col_mask, other={self._zero})")

    def work(self, known: Variables, last: str) -> None:
        """Work on the tiles at hand, and the right one that is made. known: variables with what is known of the left
        operand's rows. last: where the slices end."""
        if self.found.before:
            self._work_on_left(known)
        if self.found.prologue:
            write_right(self, "start", last)

    def _work_on_left(self, known: Variables) -> None:
        """Elementwise work on the left operand's tile, in fp32, then back to its dtype for the product."""
        found, writer = self.found, self.writer
        fp32 = self.graph.values[found.left].dtype == "float32"
        made = found.fp8 and not self.graph.values[found.left].is_fp8
        variables = {**known, **self.left_variables(found.before[-1].shape)}
        groups = self.left_groups()
        write_maps(writer, [node.name for node in found.before], groups, variables)
        # What lies outside the bounds must stay 0 whatever the work made of it.
        result = f"tl.where(row_mask & k_mask[None, :], {variables[found.before[-1].name]}, 0.0)"
        kind = f"tl.{FP8[found.dtype]}" if made else f"{writer.pointer(found.left)}.dtype.element_ty"
        writer.line(f"a = {result}" + ("" if fp32 and not made else f".to({kind})"))

    def left_variables(self, shape: Shape) -> Variables:
        """The left operand's tile as work on it knows it."""
        fp32 = self.graph.values[self.found.left].dtype == "float32"
        return {(self.found.left, shape): "a" if fp32 else "a.to(tl.float32)"}

    def left_groups(self) -> tuple[Group, ...]:
        """Iteration space of the left operand's tile."""
        groups = (Group("rows", self.found.m, "row_mask"), Group("ks[None, :]", self.found.k, "k_mask[None, :]"))
        shared = len(self.graph.values[self.found.left].shape) == 2  # by all products of a batch
        return (Group("batch", product(self.found.batch), ""), *groups) if self.found.batch and not shared else groups

    def base(self, value: str) -> str:
        """Pointer to a tensor's matrix of this program's batch."""
        pointer, tensor = self.writer.pointer(value), self.graph.values[value]
        if self.found.offsets and value != self.found.left:
            return f"{pointer} + matrix * {self.writer.stride(value, 0)}"
        if not self.found.batch or len(tensor.shape) <= 2:
            return pointer
        if self.transposed_copy and value == self.found.right:
            return f"{pointer} + batch * {self.n_n} * {self.n_k}"
        found, missing = [pointer], len(self.found.batch) - (len(tensor.shape) - 2)
        for axis in range(len(tensor.shape) - 2):  # where it has one matrix for several products, these all read it
            if not is_one(tensor.shape[axis]):
                found.append(f"{self._batch_index(missing + axis)} * {self.writer.stride(value, axis)}")
        return " + ".join(found)

    def _batch_index(self, axis: int) -> str:
        """Which of a dimension of the batch this program's product is, dimensions in order."""
        batch, inner = self.found.batch, self.found.batch[axis + 1 :]
        index = "batch" if not inner else f"(batch // {self.writer.size(product(inner))})"
        if axis == 0:
            return index
        return f"({index} % {self.writer.size(batch[axis])})"

    def _times(self, value: str, tensor: Tensor, axis: int) -> str:
        """ " * stride" along an axis, "" where the tensor is contiguous along its last one."""
        if tensor.contiguous and axis == len(tensor.shape) - 1:
            self.writer.contiguous.add(value)
            return ""
        return f" * {self.writer.stride(value, axis)}"

    def _stride_m(self, tensor: Tensor) -> str:
        if tensor.contiguous:
            self.writer.contiguous.add(self.found.left)
            return f" * {self.n_k}"
        return f" * {self.writer.stride(self.found.left, len(tensor.shape) - 2)}"

    def right_strides(self, right: str) -> tuple[str, str]:
        """Strides of a right operand along k and along n, as " * stride"."""
        if self.transposed_copy:
            return "", f" * {self.n_k}"
        tensor = self.graph.values[right]
        rank = len(tensor.shape)
        axes = (rank - 1, rank - 2) if self.found.transposed else (rank - 2, rank - 1)
        return self._times(right, tensor, axes[0]), self._times(right, tensor, axes[1])
