"""gluon_tiles: what the groups of warps of attention's kernel in Gluon do with a tile: scores, softmax, result.

Each is a function of its own, so that it is said once for all groups. UNPACKED stands where the kernel's other arguments
come out of the one tuple in which they are handed on: which they are is known once all functions are written.
"""

from __future__ import annotations

from collections.abc import Sequence

from mtmc.rewrite.body import Body, Node
from mtmc.rewrite.folding import docstring
from mtmc.rewrite.graph import Graph, Size, product, same
from mtmc.rewrite.operators.attention import CAUSAL
from mtmc.rewrite.space import Group
from mtmc.rewrite.templates import gluon_scaling
from mtmc.rewrite.templates.attention_bounds import number_text
from mtmc.rewrite.templates.attention_window import is_all, window_of
from mtmc.rewrite.templates.gluon_text import in_gluon
from mtmc.rewrite.templates.pointwise import Variables, write_maps
from mtmc.rewrite.templates.softmax_product import SoftmaxProduct
from mtmc.rewrite.templates.writer import Writer

GROUP_ROWS = 64
"""Of a group of four warps: those of one instruction of the tensor cores."""
_NAMES = "scores own start batch rows cols row_mask col_mask outer out_mask layout out given"
_LOCALS: Variables = {("local", name): name for name in _NAMES.split()}
"""Variables of the functions that work on tiles: what is loaded there gets other names."""


class TileFunctions:
    """The functions on tiles of one kernel in the making.

    name: of the kernel. columns: of a block of keys. joined: whether scores are scaled and shifted at once.
    """

    def __init__(
        self, graph: Graph, body: Body, found: SoftmaxProduct, name: str, columns: int, joined: bool = False
    ) -> None:
        self.graph, self.body, self.found, self.name, self.columns = graph, body, found, name, columns
        self.joined = joined
        self.writer = Writer(graph, body, f"{name}_kernel")
        _, self._scaling = found.factor()
        self.window = window_of(graph, body, found) if not found.causal else None
        self.n_rows, self.n_cols = "", ""

    @property
    def kept(self) -> str:
        """What is kept of each row from block to block, besides its weighted sums."""
        return "top, total, left" if self.joined else "top, total"

    def begin(self) -> None:
        """Name the numbers of rows and columns, first of all."""
        self.n_rows = self.writer.preset(self.found.rows, "n_rows")
        self.n_cols = self.writer.preset(self.found.columns, "n_cols")

    def function(self, name: str, arguments: str, doc: str, lines: Sequence[str]) -> str:
        """One function of the kernel. lines: of its body, indented."""
        return function_text(f"{self.name}_{name}", arguments, doc, lines)

    def given(self) -> list[str]:
        """Names of the kernel's arguments besides tiles and compile-time ones; two at least, of rows and of columns."""
        return given_names(self.writer)

    def scores(self) -> str:
        """Scores as the softmax takes them: with scales, masks and biases."""
        writer, found = self.writer, self.found
        others = [node for node in found.between if node.name not in self._scaling and node.operation != CAUSAL]
        name = found.scores.name
        writer.line("UNPACKED")
        writer.line("layout: tl.constexpr = scores.type.layout")
        variables: Variables = {name: "scores", **_LOCALS}
        edges = self._edges() if others else ""
        if edges:
            writer.line(f"if {edges}:  # some columns are outside of a row's window")
            writer.level += 1
        if others:
            self._places("cols", "start + ", str(self.columns))
            writer.line(f"row_mask = rows < {self.n_rows}")
            writer.line(f"col_mask = cols < {self.n_cols}")
        for node in found.between:
            if node.name in self._scaling or node.operation == CAUSAL:
                variables[node.name] = variables[node.reads()[0]]
            else:
                self._map(node, ("cols", found.columns, "col_mask"), variables)
        if variables[found.logits] != "scores":
            writer.line(f"scores = {variables[found.logits]}")
        writer.level -= int(bool(edges))
        if found.causal:
            writer.line(f"if start + {self.columns} > own + 1:  # some columns are behind a row's own")
            writer.level += 1
            self._places("cols", "start + ", str(self.columns))
            writer.line('scores = tl.where(rows >= cols, scores, float("-inf"))')
            writer.level -= 1
        writer.line("if not EVEN:")
        writer.line(f"    if start + {self.columns} > {self.n_cols}:  # there are no more columns")
        writer.level += 2
        self._places("cols", "start + ", str(self.columns))
        writer.line(f'scores = tl.where(cols < {self.n_cols}, scores, float("-inf"))')
        writer.level -= 2
        writer.line("return scores")
        doc = "A block's scores as the softmax takes them, from the product's on."
        return self.function("scores", "scores, EVEN: gl.constexpr, own, start, batch, given", doc, taken(writer))

    def _edges(self) -> str:
        """The condition under which a block needs masks; "" where all do, or where more than a window changes scores."""
        window = self.window
        if window is None or not window.of_places or not is_all(self.graph, self.body, self.found):
            return ""
        edges = []
        if window.low is not None:
            edges.append(f"(start + {self.columns - 1} + {number_text(self.writer, window.low)} > own)")
        if window.high is not None:
            edges.append(f"(own + {GROUP_ROWS - 1} - start > {number_text(self.writer, window.high)})")
        return " | ".join(edges)

    def softmax(self) -> str:
        """A block's part of the softmax."""
        writer = self.writer
        line = writer.line
        line("larger = tl.maximum(top, tl.max(scores, 1))")
        shift = "larger"
        if self.found.masked:
            writer.comment("a row of which all columns are masked so far has no largest score")
            line('shift = tl.where(larger == float("-inf"), 0.0, larger)')
            shift = "shift"
        if self.joined:
            return self._joined(shift)
        line(f"weights = tl.exp2((scores - tl.expand_dims({shift}, 1)) * factor)")
        line(f"scale = tl.exp2((top - {shift}) * factor)")
        line("return weights, scale, larger, total * scale + tl.sum(weights, 1)")
        doc = "A block's weights, what earlier sums are scaled by, and the rows' largest scores and sums so far."
        return self.function("softmax", "scores, factor, top, total", doc, taken(writer))

    def _joined(self, shift: str) -> str:
        """The same with one instruction for the product and the subtraction of each score, see `gluon_scaling`."""
        writer = self.writer
        line = writer.line
        line(f"scaled = {shift} * factor")
        line(f"usual = tl.abs(scaled) < {gluon_scaling.limit(self.found)}")
        line("each = tl.where(usual, factor, 1.0)")
        line(f"base = tl.where(usual, scaled, {shift})")
        writer.comment(
            "the product is not rounded before the subtraction: of the largest score little is left, not nothing"
        )
        line("weights = tl.exp2(tl.fma(scores, tl.expand_dims(each, 1), tl.expand_dims(-base, 1)))")
        line("scale = tl.exp2(tl.fma(top, each, -base) - left)")
        line(f"left = tl.fma({shift}, each, -base)")
        line("return weights, scale, larger, total * scale + tl.sum(weights, 1), left")
        doc = (
            "A block's weights, what earlier sums are scaled by, and of rows: the largest score, the sum, what is left."
        )
        return self.function("softmax", "scores, factor, top, total, left", doc, taken(writer))

    def result(self) -> str:
        """What is done with the rows' weighted sums."""
        writer, found = self.writer, self.found
        name, value = found.result.name, self.body.stores[0]
        if found.after:
            writer.line("UNPACKED")
            writer.line("layout: tl.constexpr = scores.type.layout")
            self._places("outer", "", "scores.shape[1]")
            writer.line(f"row_mask = rows < {self.n_rows}")
            writer.line(f"out_mask = outer < {writer.size(found.out_width)}")
        variables: Variables = {name: "scores", **_LOCALS}
        for node in found.after:
            self._map(node, ("outer", found.out_width, "out_mask"), variables)
        writer.line(f"return {variables[value]}")
        doc = "The result of 64 rows, from their weighted sums of values on."
        return self.function("result", "scores, own, batch, given", doc, taken(writer))

    def _map(self, node: Node, last: tuple[str, Size, str], variables: Variables) -> None:
        """One elementwise step on a tile; what has no batch is the same for all of it."""
        groups: tuple[Group, ...] = (Group("rows", self.found.rows, "row_mask"), Group(*last))
        if len(node.shape) > 2 and not same(product(node.shape[:-2]), ()):
            groups = (Group("batch", product(self.found.batch), ""), *groups)
        write_maps(self.writer, [node.name], groups, variables)

    def _places(self, across: str, first: str, count: str) -> None:
        """Numbers of a tile's rows and columns. across: what the columns' numbers are called."""
        line = self.writer.line
        line(f"rows = tl.expand_dims(own + tl.arange(0, {GROUP_ROWS}, tl.SliceLayout(1, layout)), 1)")
        line(f"{across} = tl.expand_dims({first}tl.arange(0, {count}, tl.SliceLayout(0, layout)), 0)")


def taken(writer: Writer) -> list[str]:
    """The lines written so far, which are taken away."""
    lines, writer.lines, writer.level = writer.lines, [], 1
    return lines


def function_text(name: str, arguments: str, doc: str, lines: Sequence[str]) -> str:
    """A function in Gluon. lines: of its body, in Triton's words, indented. Raises: NotCovered, see `in_gluon`."""
    return "\n".join(["@gluon.jit", f"def {name}({arguments}):", *docstring(doc), *in_gluon(lines)])


def given_names(writer: Writer) -> list[str]:
    """Names of a kernel's arguments besides tiles and compile-time ones, as far as lines were written."""
    used = [f"{value}_ptr" for value in writer.body.loads if value in writer.used]
    return [*used, *writer.sizes.values(), *writer.strides.values(), *writer.numbers.values(), *writer.given]
