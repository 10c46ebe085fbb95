"""product_kernel: writes the kernel that makes a matrix product, with what comes before and after it."""

from __future__ import annotations

from collections.abc import Sequence

from mtmc.rewrite.body import Body, Node, NotCovered
from mtmc.rewrite.graph import Graph, product
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.space import Group
from mtmc.rewrite.templates.awaited_sums import await_sums
from mtmc.rewrite.templates.moved_results import Back, offset_of
from mtmc.rewrite.templates.pointwise import Variables, write_maps
from mtmc.rewrite.templates.product import Product, analyse, can_transpose, triangle
from mtmc.rewrite.templates.product_groups import blocks_in_kernel, own_group
from mtmc.rewrite.templates.product_operands import Operands
from mtmc.rewrite.templates.product_programs import own_slices, own_tiles, store_part, write_block_order
from mtmc.rewrite.templates.product_rows import row_work, write_rows
from mtmc.rewrite.templates.product_scales import add_scaled
from mtmc.rewrite.templates.product_statistics import write_statistics
from mtmc.rewrite.templates.product_symmetric import SETTING as SYMMETRIC
from mtmc.rewrite.templates.product_symmetric import check_symmetric, fold_lines, rectangle, tiles_of_half
from mtmc.rewrite.templates.product_tiles import OWN_WARPS, Tiles, make_descriptors, read_tiles, store_results
from mtmc.rewrite.templates.shares import crowded
from mtmc.rewrite.templates.writer import Writer


class ProductKernel:
    """The first (mostly the only) kernel of a matmul stage in the making."""

    def __init__(self, graph: Graph, body: Body, stage: Stage, name: str, back: Back | None = None) -> None:
        """back: of results in another order than the product's, see `moved_results`."""
        self.graph, self.body, self.stage, self.name = graph, body, stage, name
        self.back: Back = back or {}
        self.found = analyse(graph, body)
        self.split_k, self.split_n = stage.number("split_k"), stage.number("split_n")
        schedule = dict(stage.schedule)
        self.persistent, self.streaming = int(schedule.get("persistent", 0)), int(schedule.get("stream_k", 0))
        self.way, self.specialized = Tiles.of(stage), bool(schedule.get("specialized", 0))
        self.swapped = bool(schedule.get("swapped", 0))
        self.fast_sums = schedule.get("sums") == "fast"
        self.transposed_copy = schedule.get("right") == "transposed"
        self.symmetric = bool(schedule.get(SYMMETRIC, 0))
        self._check()
        self.writer = Writer(graph, body, f"{name}_kernel")
        self.n_batch, self.n_m, self.n_n = preset_sizes(self.writer, self.found)
        self.n_k = self.writer.preset(self.found.k, "n_k")
        self.operands = Operands(self.writer, self.found, self.transposed_copy)
        self.variables: Variables = {}
        self.rows_work = row_work(body, self.found.dot, self.found.after, self.found.n)

    def _check(self) -> None:
        """Raises: NotCovered where settings do not go together, or not with the body."""
        found = self.found
        if found.reduces and self.split_k > 1:
            raise NotCovered("split_k with a reduction over the columns")
        if not found.reduces and self.split_n > 1:
            raise NotCovered("split_n without a reduction over the columns")
        if self.persistent or self.streaming:
            if found.reduces or self.split_k > 1:
                raise NotCovered("a program for many tiles of a product that is split otherwise")
            if (self.persistent and self.streaming) or (self.streaming and found.batch):
                raise NotCovered("slices of several products, or tiles that go to programs in two ways")
        if len(found.factors) > 1 and (self.split_k > 1 or self.streaming):
            raise NotCovered("several products that are split among programs")
        if found.scales and (self.swapped or self.specialized or found.reduces):
            raise NotCovered("scales of groups in a product that is made in another way")
        if self.swapped and self.specialized:
            raise NotCovered("warps of their own for loads of a product whose operands have changed places")
        if self.transposed_copy and not can_transpose(self.graph, self.body, found):
            raise NotCovered("a right operand that is transposed already, or is needed elsewhere as it is")
        if self.back and (found.reduces or found.offsets or self.way.stored or self.way.parts > 1 or self.symmetric):
            raise NotCovered(
                "results in another order of a product that is reduced, in groups, or stored in another way"
            )
        if self.symmetric:
            check_symmetric(self.graph, self.body, found, self.stage)
        whole = not (found.reduces or self.split_k > 1 or self.streaming)
        self.way.check(self.graph, self.body, found, whole)
        if self.specialized and (not (whole and self.way.own) or found.before or len(found.factors) > 1):
            raise NotCovered("warps of their own for loads of anything but a plain product with its own descriptors")
        if found.whole_numbers and (self.split_k > 1 or self.streaming):
            raise NotCovered("products of whole numbers that are split among programs")
        if found.offsets and (self.split_k > 1 or self.streaming):
            raise NotCovered("products of groups that are split among programs")
        if self.specialized and self.stage.number("num_warps") != OWN_WARPS:
            raise NotCovered(f"warps of their own for loads of a kernel with other than {OWN_WARPS} warps")

    def write(self) -> Writer:
        """Write the whole kernel. Raises: NotCovered where body and schedule do not go together."""
        writer, found = self.writer, self.found
        if self.way.own:
            make_descriptors(self)
        self._rows_and_columns()
        if found.reduces:
            write_rows(self)
        else:
            self.write_product()
            if self.split_k > 1:
                self._store_share()
            elif self.streaming:
                store_part(self)
            else:
                store_results(self)
        return writer

    @property
    def batched(self) -> bool:
        """Whether there are several products."""
        return bool(self.found.batch)

    @property
    def shares(self) -> tuple[str, ...]:
        """Workspaces that a second kernel reads: the product's shares, or each reduction's."""
        if self.split_k > 1 or self.streaming:
            return ("shares",)
        return tuple(f"{node.name}_parts" for node in self.rows_work.reductions) if self.split_n > 1 else ()

    def _rows_and_columns(self) -> None:
        writer = self.writer
        if self.persistent:
            own_tiles(self)
        elif self.streaming:
            own_slices(self)
        else:
            writer.line(f"program = tl.program_id({int(crowded(self.found.batch))})")
        if self.found.reduces:
            writer.line("rows = program * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]")
        else:
            self.block_order(writer)
            if not self.found.offsets:
                writer.line("rows = block_m * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]")
            writer.line("cols = block_n * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]")
            writer.line(f"col_mask = (cols < {self.n_n}) | EVEN_N")
        if self.found.offsets:
            own_group(self)
            return
        writer.widen("rows", *(("cols",) if self.back else ()))
        writer.line(f"row_mask = (rows < {self.n_m}) | EVEN_M")
        if self.found.batch:
            if not self.persistent:
                writer.line(f"batch = tl.program_id({int(not crowded(self.found.batch))})")
            writer.line("if WIDE:")
            writer.line("    batch = batch.to(tl.int64)")

    def tiles(self) -> str:
        """Number of tiles of one product that are made."""
        if self.symmetric:
            return tiles_of_half(self._across())
        return f"{self._down()} * tl.cdiv({self.n_n}, BLOCK_N)"

    def _down(self) -> str:
        """Number of blocks of rows."""
        if self.found.offsets:
            return blocks_in_kernel(self.n_m, self.writer.size(self.found.groups))
        return f"tl.cdiv({self.n_m}, BLOCK_M)"

    def _across(self) -> str:
        """Number of blocks of columns."""
        return f"tl.cdiv({self.n_n}, BLOCK_N)"

    def block_order(self, writer: Writer) -> None:
        """Which tile `program` stands for."""
        down, across = rectangle(self._across()) if self.symmetric else (self._down(), self._across())
        write_block_order(writer, down, across, str(self.stage.setting("order")))
        if self.symmetric:
            fold_lines(writer, self._across())

    def groups(self) -> tuple[Group, ...]:
        """Iteration space of what comes after the product."""
        groups: tuple[Group, ...] = (
            Group("rows", self.found.m, "row_mask"),
            Group("cols", self.found.n, "col_mask"),
        )
        return (Group("batch", product(self.found.batch), ""), *groups) if self.found.batch else groups

    def write_product(self) -> None:
        """The loop over k; leaves the products in the dots' variables."""
        writer, found = self.writer, self.found
        self.operands.point()
        for factor in found.factors:
            shape = "[BLOCK_N, BLOCK_M]" if self.swapped else "[BLOCK_M, BLOCK_N]"
            writer.line(f"{factor.dot.name} = tl.zeros({shape}, {self.sums})")
        first, last = self._slices()
        known = write_statistics(self.operands) if found.statistics else {}
        alone = self.specialized and not self.persistent
        over = (
            f"tl.range({first}, {last}, BLOCK_K, warp_specialize=SPECIAL)"
            if alone
            else f"range({first}, {last}, BLOCK_K)"
        )
        writer.line(f"for start in {over}:")
        writer.level += 1
        writer.line("ks = start + tl.arange(0, BLOCK_K)")
        writer.line(f"k_mask = (ks < {last}) | EVEN_K")
        if found.made:
            writer.widen("ks")
        if self.way.described:
            read_tiles(self, "program" if found.reduces else "block_m")
            writer.line("else:")
            writer.level += 1
        self.operands.load_left()
        self.operands.load_rights()
        writer.level -= int(self.way.described)
        self.operands.work(known, last)
        if found.scales:
            add_scaled(self.operands)
        else:
            self._add_up()
            self._await_sums(last)
        for factor in found.factors:
            self.variables[factor.dot.name] = factor.dot.name
        writer.level -= 1
        for factor in found.factors if self.swapped else ():
            writer.line(f"{factor.dot.name} = tl.trans({factor.dot.name})")

    def _slices(self) -> tuple[str, str]:
        """Where the loop over k begins and ends."""
        writer, found = self.writer, self.found
        if self.split_k > 1:
            writer.line(f"share = tl.cdiv(tl.cdiv({self.n_k}, BLOCK_K), {self.split_k}) * BLOCK_K")
            writer.line("first = tl.program_id(2) * share")
            writer.line(f"last = tl.minimum(first + share, {self.n_k})")
            first, last = "first", "last"
        elif self.streaming:
            writer.line(f"last = tl.minimum((first + count) * BLOCK_K, {self.n_k})")
            first, last = "first * BLOCK_K", "last"
        else:
            first, last = "0", self.n_k
        needed = triangle(found)
        if needed and not (self.persistent or self.streaming):
            writer.line(f"last = tl.where({needed}, {last}, 0)  # nothing to add up where the whole tile is cut off")
            last = "last"
        if found.offsets:
            writer.line(f"last = tl.where(begin < end, {last}, 0)  # nothing to add up where the block has no rows")
            last = "last"
        return first, last

    @property
    def sums(self) -> str:
        """Triton's name of the type that products are added up in."""
        return "tl.int32" if self.found.whole_numbers else "tl.float32"

    def _add_up(self) -> None:
        """Add the product of the tiles at hand to what there is of it."""
        precision = self.stage.setting("precision")
        exact = f', input_precision="{precision}"' if precision != "input" else ""
        exact += ", out_dtype=tl.int32" if self.found.whole_numbers else ""  # Triton 3.6 asks for it
        for factor in self.found.factors:
            accumulator, tile = factor.dot.name, self.operands.tile_name("b", factor)
            operands = f"tl.trans({tile}), tl.trans(a)" if self.swapped else f"a, {tile}"
            if self.found.fp8 and not self.fast_sums:
                self.writer.line(f"{accumulator} += tl.dot({operands})")
            else:
                self.writer.line(f"{accumulator} = tl.dot({operands}, {accumulator}{exact})")

    def _await_sums(self, last: str) -> None:
        """Have the tensor cores end with a slice where they read its left tile from registers. last: where slices end."""
        made = self.found.prologue if self.swapped else self.found.before or self.found.made
        if made:
            await_sums(self.writer, [each.dot.name for each in self.found.factors], f"start < {last}", self.stage)

    @property
    def tables(self) -> tuple[str, ...]:
        """The descriptors that the kernel takes besides pointers."""
        if not self.way.described or self.way.own:
            return ()
        stored = self.body.stores if self.way.stored else ()
        rights = [self.found.tiles_of(value, right=True) for value in self.operands.rights]
        return (self.found.tiles_of(self.found.left), *rights, *map(self.found.tiles_of, stored))

    def after(self, nodes: Sequence[Node], groups: tuple[Group, ...], variables: Variables, writer: Writer) -> None:
        """Write elementwise work on what is made: where results lie in another order than it says, as their elements need
        it."""
        turned = [node.name for node in nodes if node.name in self.body.stores and node.kind == "index"]
        turned = [back[-1].name for back in self.back.values()] or turned
        write_maps(writer, turned or [node.name for node in nodes], groups, variables)

    def offset(self) -> str:
        """Where the program's elements lie in a contiguous result."""
        offset = f"rows * {self.n_n} + cols"
        return f"(batch * {self.n_m} + rows) * {self.n_n} + cols" if self.found.batch else offset

    def store_wide(self, writer: Writer, variables: Variables) -> None:
        """Store the results that have the product's shape."""
        for value in self.body.stores:
            back, made, offset = self.back.get(value), value, self.offset()
            if back is not None:
                made, shape = back[-1].name, self.graph.values[value].shape
                offset = offset_of(writer, back, shape, self.groups(), variables)
            writer.store_at(value, variables[made], self.groups(), "row_mask & col_mask", offset)

    def total(self) -> str:
        """Number of elements of the product."""
        return f"{self.n_batch} * {self.n_m} * {self.n_n}" if self.found.batch else f"{self.n_m} * {self.n_n}"

    def _store_share(self) -> None:
        self.writer.comment("this program's share of the sum over k; the second kernel adds the shares up")
        self.writer.line("own = tl.program_id(2)")
        self.writer.line("if WIDE:")
        self.writer.line("    own = own.to(tl.int64)")
        offset = f"own * {self.total()} + {self.offset()}"
        self.writer.line(f"tl.store(shares + {offset}, {self.found.dot.name}, mask=row_mask & col_mask)")


def preset_sizes(writer: Writer, found: Product) -> tuple[str, str, str]:
    """Names of the kernel's arguments for the batch, rows and columns of the product."""
    batch = writer.preset(product(found.batch), "n_batch") if found.batch else "1"
    return batch, writer.preset(found.m, "n_m"), writer.preset(found.n, "n_n")
