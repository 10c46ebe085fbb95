"""attention_masks: what a mask says of row and column, read from how it is computed.

    mask(row, col) => low <= row - col <= high
    mask(row, col) => col < length of the row's sequence, or from the first of its document on
    mask(row, col) => document of row == document of col

Masks are comparisons of sums of the row's and the column's number, of those with numbers that are loaded, triangles of what
is true or -inf throughout, and what is and-ed of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from mtmc.rewrite.body import Body, Index, Node, NotCovered, Number, Operand, Trailing, Varying
from mtmc.rewrite.graph import Graph, Shape, Size, is_one, product
from mtmc.rewrite.index_maps import Asked, At, IndexMap, Reshaped, broadcast_at
from mtmc.rewrite.operators.attention import CAUSAL, MASKED
from mtmc.rewrite.places import Digit, Place, digits, one
from mtmc.rewrite.templates.softmax_product import SoftmaxProduct

Element = tuple[Operand, At]
"""A value at a place of its own shape."""


@dataclass(frozen=True)
class Bound:
    """Columns are seen below (`end`) a whole number that no column changes, plus `more`, or from there on."""

    element: Element
    more: int
    end: bool

    def hangs(self, name: str) -> bool:
        """Whether the number's place hangs on a variable of the kernel."""
        return _hangs(self.element[1], name)


@dataclass(frozen=True)
class Window:
    """What row - column is at least and at most where a score is not masked, at each variant; None for no bound.

    bounds: of the columns themselves. pairs: what a row and a column must have in common, each as (of the row, of the
    column).
    """

    low: Size | None = None
    high: Size | None = None
    bounds: tuple[Bound, ...] = ()
    pairs: tuple[tuple[Element, Element], ...] = ()

    def __and__(self, other: Window) -> Window:
        low, high = _tighter(self.low, other.low, max), _tighter(self.high, other.high, min)
        bounds = dict.fromkeys((*self.bounds, *other.bounds))
        return Window(low, high, tuple(bounds), tuple(dict.fromkeys((*self.pairs, *other.pairs))))

    @property
    def of_places(self) -> bool:
        """Whether numbers of rows and columns alone bound each other."""
        return self.low is not None or self.high is not None

    def __bool__(self) -> bool:
        return self != Window()


@dataclass(frozen=True)
class _Sum:
    """rows * row + cols * column + number."""

    rows: int
    cols: int
    number: Size

    def less(self, other: _Sum) -> Size:
        """Its number less that of another sum."""
        return tuple(a - b for a, b in zip(self.number, other.number, strict=True))


def _tighter(one: Size | None, other: Size | None, choose: Callable[[int, int], int]) -> Size | None:
    if one is None or other is None:
        return other if one is None else one
    return tuple(choose(a, b) for a, b in zip(one, other, strict=True))


def _hangs(at: At, name: str) -> bool:
    return any(name in place.indices for place in at)


class MaskReader:
    """Reads masks element by element: an operand is asked for at a place, which is a sum of the numbers of row and column
    where it is one of theirs. home: the place of a score."""

    def __init__(self, graph: Graph, body: Body, found: SoftmaxProduct, batch: str, rows: str) -> None:
        self.graph, self.body, self.rows, self.variants = graph, body, rows, len(graph.variants)
        ones = (1,) * self.variants
        shape = found.scores.shape
        matrix = digits(one(Digit(batch, ones, product(shape[:-2]), True)), shape[:-2])
        self.home: At = (
            *matrix,
            *(one(Digit(index, ones, size, True)) for index, size in ((rows, shape[-2]), ("cols", shape[-1]))),
        )
        self.sizes = shape

    def left(self, node: Node) -> Window:
        """What a step before the softmax leaves of the scores."""
        if node.operation == CAUSAL:
            return Window((0,) * self.variants)
        if not self._broadcasts(node.shape):
            return Window()
        at = broadcast_at(self.home, node.shape)
        if node.operation == MASKED:
            return self._where(*self._operand(node, 1, at), True)
        return self._added(node, at)

    def _added(self, node: Node | Operand, at: At) -> Window:
        """What a choice of -inf leaves, or a sum of which a part is one: a bias that is -inf where the mask is not."""
        window = Window()
        if isinstance(node, Node) and node.operation == "tl.where({0}, {1}, {2})":
            return self._choice(node, at)
        if isinstance(node, Node) and _TRIANGLE.fullmatch(node.operation) and is_infinite(self.body, node.operands[0]):
            return self._triangle(node, at, False)
        if isinstance(node, Node) and node.operation == "{0} + {1}":
            for number in range(2):
                window &= self._added(*self._origin(*self._operand(node, number, at)))
        return window

    def says_all(self, item: Operand, at: At) -> bool:
        """Whether a mask is made of comparisons of places, and of nothing else."""
        item, at = self._at(item, at)
        node = self.body.node(item) if isinstance(item, str) else None
        if node is not None and node.operation in ("{0}", "{0} & {1}", "{0} != 0"):
            return all(self.says_all(each, at) for each in node.operands)
        window = self._where(item, at, True)
        return window.of_places and not window.bounds and not window.pairs

    def _broadcasts(self, shape: Shape) -> bool:
        ours = self.sizes[len(self.sizes) - len(shape) :]
        return len(shape) <= len(self.sizes) and all(
            is_one(size) or size == own for size, own in zip(shape, ours, strict=True)
        )

    def _shape(self, item: Operand) -> Shape:
        if isinstance(item, Trailing):
            return (*self.graph.values[item.value].shape, *((1,) * self.variants for _ in range(item.ones)))
        if not isinstance(item, str):
            return ()
        node = self.body.node(item)
        return self.graph.values[item].shape if node is None else node.shape

    def _operand(self, node: Node, number: int, at: At) -> Element:
        item = node.operands[number]
        return item, at if isinstance(item, Index) else broadcast_at(at, self._shape(item))

    def _at(self, item: Operand, at: At) -> Element:
        """What an element is an element of, before anything moved it."""
        node = self.body.node(item) if isinstance(item, str) else None
        while node is not None and node.kind in ("view", "index"):
            index: IndexMap | None = Reshaped(node.shape) if node.kind == "view" else node.index
            assert index is not None
            shapes = tuple(self._shape(each) for each in node.operands)
            try:
                pieces = index.pieces(Asked(at, shapes, self.variants, _unknown))
            except NotCovered:
                break
            if len(pieces) != 1 or pieces[0].conditions:
                break
            item, at = node.operands[pieces[0].operand], pieces[0].at
            node = self.body.node(item) if isinstance(item, str) else None
        return item, at

    def _origin(self, item: Operand, at: At) -> tuple[Node | Operand, At]:
        item, at = self._at(item, at)
        node = self.body.node(item) if isinstance(item, str) else None
        return (item if node is None else node), at

    def _choice(self, node: Node, at: At) -> Window:
        window = Window()
        for number, true in ((1, False), (2, True)):
            if is_infinite(self.body, node.operands[number]):
                window &= self._where(*self._operand(node, 0, at), true)
        return window

    def _where(self, item: Operand, at: At, true: bool) -> Window:
        """What holds where a mask is true, or where it is false."""
        node, at = self._origin(item, at)
        if not isinstance(node, Node):
            return Window()
        if _TRIANGLE.fullmatch(node.operation):
            if true:
                return self._triangle(node, at, True) & self._where(*self._operand(node, 0, at), True)
            return self._triangle(node, at, False) if self._is_true(*self._operand(node, 0, at)) else Window()
        if node.operation in ("{0}", "{0} == 0", "{0} != 0") and len(node.operands) == 1:
            return self._where(*self._operand(node, 0, at), true != (node.operation == "{0} == 0"))
        if node.operation == ("{0} & {1}" if true else "{0} | {1}"):
            return self._where(*self._operand(node, 0, at), true) & self._where(*self._operand(node, 1, at), true)
        compared = _COMPARED.fullmatch(node.operation)
        if compared is None:
            return Window()
        sign = compared[1] if true else _OPPOSITE[compared[1]]
        return self._compared(self._operand(node, 0, at), sign, self._operand(node, 1, at))

    def _triangle(self, node: Node, at: At, true: bool) -> Window:
        """What holds inside of a triangle of a matrix, or outside: of column - row against a diagonal."""
        match = _TRIANGLE.fullmatch(node.operation)
        assert match is not None
        column, row, diagonal = (self._sum(*self._operand(node, number, at)) for number in (1, 2, 3))
        if column is None or row is None or diagonal is None:
            return Window()
        apart = _Sum(column.rows - row.rows, column.cols - row.cols, column.less(row))
        return self._ordered(apart, match[1] if true else _OPPOSITE[match[1]], diagonal)

    def _is_true(self, item: Operand, at: At) -> bool:
        """Whether a mask is true everywhere."""
        node, at = self._origin(item, at)
        if isinstance(node, Node):
            plain = node.operation in ("{0}", "tl.cast({0}, tl.int1)")
            return plain and self._is_true(*self._operand(node, 0, at))
        return isinstance(node, Number) and bool(node.value)

    def _compared(self, first: Element, sign: str, second: Element) -> Window:
        left, right = self._sum(*first), self._sum(*second)
        if sign in ("==", "!="):
            return self._equal(first, second) if sign == "==" else Window()
        if left is None or right is None:
            if left is None and right is not None:
                first, second, left, sign = second, first, right, _TURNED[sign]
            return Window() if left is None else self._bounded(left, sign, second)
        return self._ordered(left, sign, right)

    def _ordered(self, left: _Sum, sign: str, right: _Sum) -> Window:
        """What a comparison of two sums of places says of row - column."""
        rows, cols = left.rows - right.rows, left.cols - right.cols
        number = right.less(left)  # rows - cols against it
        if (rows, cols) == (-1, 1):
            rows, cols, sign = 1, -1, _TURNED[sign]
            number = tuple(-each for each in number)
        if (rows, cols) != (1, -1):
            return Window()
        if sign in (">=", ">"):
            return Window(low=tuple(each + (sign == ">") for each in number))
        return Window(high=tuple(each - (sign == "<") for each in number))

    def _bounded(self, left: _Sum, sign: str, other: Element) -> Window:
        """What a column plus a number, against a value that no column changes, says of the columns."""
        if (left.rows, left.cols) != (0, 1) or len(set(left.number)) > 1 or not self._is_whole(other[0]):
            return Window()
        if _hangs(other[1], "cols"):
            return Window()
        more = int(sign in ("<=", ">")) - left.number[0]
        return Window(bounds=(Bound(other, more, sign in ("<", "<=")),))

    def _equal(self, first: Element, second: Element) -> Window:
        for row, col in ((first, second), (second, first)):
            apart = not _hangs(row[1], "cols") and not _hangs(col[1], self.rows) and _hangs(col[1], "cols")
            if apart and _hangs(row[1], self.rows) and self._is_whole(row[0]) and self._is_whole(col[0]):
                return Window(pairs=((row, col),))
        return Window()

    def _is_whole(self, item: Operand) -> bool:
        if not isinstance(item, str):
            return False
        node = self.body.node(item)
        return "int" in self.graph.values[item].dtype if node is None else node.compute == "int"

    def _sum(self, item: Operand, at: At) -> _Sum | None:
        """A whole number as a sum of places; None where it is another one."""
        if isinstance(item, Index):
            return self._of_place(at[len(at) - item.axis])
        if isinstance(item, (Number, Varying)):
            values = (item.value,) * self.variants if isinstance(item, Number) else item.values
            return (
                _Sum(0, 0, tuple(int(each) for each in values)) if all(each == int(each) for each in values) else None
            )
        node, at = self._origin(item, at)
        if not isinstance(node, Node) or node.kind != "map" or node.compute != "int":
            return None
        if _CAST.fullmatch(node.operation):
            return self._sum(*self._operand(node, 0, at))
        parts = [self._sum(*self._operand(node, number, at)) for number in range(len(node.operands))]
        counted = _COUNTED.fullmatch(node.operation)
        if node.operation not in ("{0} - {1}", "{0} + {1}") and not counted:
            return None
        if counted and parts[2] != _Sum(0, 0, (1,) * self.variants):
            return None
        left, right = parts[:2]
        if left is None or right is None:
            return None
        sign = -1 if node.operation == "{0} - {1}" else 1
        number = tuple(a + sign * b for a, b in zip(left.number, right.number, strict=True))
        return _Sum(left.rows + sign * right.rows, left.cols + sign * right.cols, number)

    def _of_place(self, place: Place) -> _Sum | None:
        counts = {self.rows: 0, "cols": 0}
        for atom, factor in place.terms:
            plain = isinstance(atom, Digit) and atom.top and is_one(atom.below) and is_one(factor)
            if not plain or not isinstance(atom, Digit) or atom.index not in counts:
                return None
            counts[atom.index] += 1
        return _Sum(counts[self.rows], counts["cols"], place.more)


def _unknown(number: int, at: At, wrap: Size | None) -> str:
    raise NotCovered("places that are loaded")


def is_infinite(body: Body, item: Operand) -> bool:
    """Whether an operand is -inf everywhere."""
    node = body.node(item) if isinstance(item, str) else None
    if node is not None and node.operation in ("{0}", "tl.cast({0}, tl.float32)"):
        return is_infinite(body, node.operands[0])
    return isinstance(item, Number) and item.value == float("-inf")


_COMPARED = re.compile(r"\{0\} (>=|<=|>|<|==|!=) \{1\}")
_TRIANGLE = re.compile(r"tl\.where\(\{1\} - \{2\} (>=|<=) \{3\}, \{0\}, (?:False|0|0\.0)\)")
_OPPOSITE = {">=": "<", "<": ">=", ">": "<=", "<=": ">", "==": "!=", "!=": "=="}
_TURNED = {">=": "<=", "<=": ">=", ">": "<", "<": ">"}
_CAST = re.compile(r"\{0\}|\{0\}\.to\(tl\.int\d+\)|tl\.cast\(\{0\}, tl\.int\d+\)")
_COUNTED = re.compile(r"\(tl\.cast\(\{0\}, tl\.int\d+\) \* \{2\} \+ \{1\}\)\.to\(tl\.int\d+\)")
