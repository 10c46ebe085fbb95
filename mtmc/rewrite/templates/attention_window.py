"""attention_window: which columns a row of attention can see, where masks of places say so: a program looks at no others.

    mask(row, col) => low <= row - col <= high

Masks are comparisons of sums of the row's and the column's number, and what is and-ed of them. What a mask leaves out must
be -inf, so that its weight is 0 whatever the other scores are.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from mtmc.rewrite.body import Body, Index, Node, Number, Operand, Varying
from mtmc.rewrite.graph import Size
from mtmc.rewrite.operators.attention import CAUSAL, MASKED
from mtmc.rewrite.templates.softmax_product import SoftmaxProduct
from mtmc.rewrite.templates.writer import Writer


@dataclass(frozen=True)
class Window:
    """What row - column is at least and at most where a score is not masked, at each variant; None for no bound."""

    low: Size | None = None
    high: Size | None = None

    def __and__(self, other: Window) -> Window:
        return Window(_tighter(self.low, other.low, max), _tighter(self.high, other.high, min))

    def __bool__(self) -> bool:
        return self.low is not None or self.high is not None


@dataclass(frozen=True)
class _Sum:
    """rows * row + cols * column + number."""

    rows: int
    cols: int
    number: Size


def window_of(body: Body, found: SoftmaxProduct, variants: int) -> Window:
    """The columns that a row can see; an empty window where masks do not tell."""
    window = Window()
    for node in found.between:
        window &= _left(body, node, variants)
    return window


def is_all(body: Body, found: SoftmaxProduct, variants: int) -> bool:
    """Whether masks say nothing else than the window: inside of it no score is changed but by what `factor` folds."""
    _, scaling = found.factor()
    made = {found.scores.name}
    for node in found.between:
        if not made & set(node.reads()):
            continue  # makes a mask
        made.add(node.name)
        masks = node.operation == MASKED and _says_all(body, node.operands[1], variants)
        if not masks and node.operation != CAUSAL and node.name not in scaling:
            return False
    return True


def _says_all(body: Body, item: Operand, variants: int) -> bool:
    """Whether a mask is made of comparisons that `_where` understands, and of nothing else."""
    node = body.node(item) if isinstance(item, str) else None
    if node is not None and node.operation in ("{0}", "{0} & {1}", "{0} != 0"):
        return all(_says_all(body, each, variants) for each in node.operands)
    return bool(_where(body, item, True, variants))


def write_bounds(writer: Writer, found: SoftmaxProduct, window: Window, block: str) -> None:
    """Lines that say from which column to which a block's rows can see any, `first` and `last`, at ends of blocks.

    block: the name of the block's number.
    """
    columns, first, last = writer.size(found.columns), "0", writer.size(found.columns)
    writer.comment("columns that no row of the block can see are left out")
    if window.high is not None:
        before = f"{block} * BLOCK_M - {number_text(writer, window.high)}"
        first = f"tl.minimum(tl.maximum({before}, 0), {columns}) // BLOCK_N * BLOCK_N"
    if window.low is not None:
        behind = f"({block} + 1) * BLOCK_M - {number_text(writer, window.low)}"
        last = f"tl.minimum({columns}, tl.cdiv(tl.maximum({behind}, 0), BLOCK_N) * BLOCK_N)"
    writer.line(f"first = {first}")
    writer.line(f"last = tl.maximum({last}, first)")


def number_text(writer: Writer, number: Size) -> str:
    """A bound of a window in the kernel."""
    if len(set(number)) == 1:
        return f"({number[0]})" if number[0] < 0 else str(number[0])
    for less in (0, 1, -1):  # the width of a window, say, that the mask has as it is
        known = Varying(tuple(each + less for each in number))
        if any(known in node.operands for node in writer.body.nodes):
            name = writer.number(known)
            return f"({name} - {less})" if less else name
    return writer.number(Varying(number))


def _tighter(one: Size | None, other: Size | None, choose: Callable[[int, int], int]) -> Size | None:
    if one is None or other is None:
        return other if one is None else one
    return tuple(choose(a, b) for a, b in zip(one, other, strict=True))


def _left(body: Body, node: Node, variants: int) -> Window:
    """What a step before the softmax leaves of the scores."""
    if node.operation == CAUSAL:
        return Window((0,) * variants)
    if node.operation == MASKED:
        return _where(body, node.operands[1], True, variants)
    if node.operation == "tl.where({0}, {1}, {2})":
        return _choice(body, node, variants)
    if node.operation == "{0} + {1}":  # a bias that is -inf where the mask is not
        window = Window()
        for item in node.operands:
            bias = body.node(item) if isinstance(item, str) else None
            while bias is not None and bias.kind == "view":  # more dimensions, of one element
                bias = body.node(bias.reads()[0]) if bias.shape[-2:] == node.shape[-2:] else None
            if bias is not None and bias.operation == "tl.where({0}, {1}, {2})":
                window &= _choice(body, bias, variants)
        return window
    return Window()


def _choice(body: Body, node: Node, variants: int) -> Window:
    condition, one, other = node.operands
    window = Window()
    if _is_infinite(body, one):
        window &= _where(body, condition, False, variants)
    if _is_infinite(body, other):
        window &= _where(body, condition, True, variants)
    return window


def _is_infinite(body: Body, item: Operand) -> bool:
    node = body.node(item) if isinstance(item, str) else None
    if node is not None and node.operation in ("{0}", "tl.cast({0}, tl.float32)"):
        return _is_infinite(body, node.operands[0])
    return isinstance(item, Number) and item.value == float("-inf")


_COMPARED = re.compile(r"\{0\} (>=|<=|>|<) \{1\}")
_OPPOSITE = {">=": "<", "<": ">=", ">": "<=", "<=": ">"}


def _where(body: Body, item: Operand, true: bool, variants: int) -> Window:
    """What holds where a mask is true, or where it is false."""
    node = body.node(item) if isinstance(item, str) else None
    if node is None:
        return Window()
    if node.operation in ("{0}", "{0} == 0", "{0} != 0") and len(node.operands) == 1:
        return _where(body, node.operands[0], true != (node.operation == "{0} == 0"), variants)
    if node.operation == ("{0} & {1}" if true else "{0} | {1}"):
        return _where(body, node.operands[0], true, variants) & _where(body, node.operands[1], true, variants)
    compared = _COMPARED.fullmatch(node.operation)
    if compared is None:
        return Window()
    sides = [_sum(body, each, variants) for each in node.operands]
    if sides[0] is None or sides[1] is None:
        return Window()
    sign = compared[1] if true else _OPPOSITE[compared[1]]
    rows, cols = sides[0].rows - sides[1].rows, sides[0].cols - sides[1].cols
    number = tuple(b - a for a, b in zip(sides[0].number, sides[1].number, strict=True))  # rows - cols against it
    if (rows, cols) == (-1, 1):
        rows, cols, sign = 1, -1, {">=": "<=", "<=": ">=", ">": "<", "<": ">"}[sign]
        number = tuple(-each for each in number)
    if (rows, cols) != (1, -1):
        return Window()
    if sign in (">=", ">"):
        return Window(low=tuple(each + (sign == ">") for each in number))
    return Window(high=tuple(each - (sign == "<") for each in number))


def _sum(body: Body, item: Operand, variants: int) -> _Sum | None:
    """A whole number as a sum of places; None where it is another one."""
    if isinstance(item, Index):
        return _Sum(int(item.axis == 2), int(item.axis == 1), (0,) * variants) if item.axis in (1, 2) else None
    if isinstance(item, (Number, Varying)):
        values = (item.value,) * variants if isinstance(item, Number) else item.values
        return _Sum(0, 0, tuple(int(each) for each in values)) if all(each == int(each) for each in values) else None
    node = body.node(item) if isinstance(item, str) else None
    if node is None or node.kind != "map" or node.compute != "int":
        return None
    if _CAST.fullmatch(node.operation):
        return _sum(body, node.operands[0], variants)
    parts = [_sum(body, each, variants) for each in node.operands]
    if node.operation not in ("{0} - {1}", "{0} + {1}") and not _COUNTED.fullmatch(node.operation):
        return None
    if any(part is None for part in parts):
        return None
    if _COUNTED.fullmatch(node.operation):
        unit = parts[2] == _Sum(0, 0, (1,) * variants)
        parts = parts[:2]
        if not unit:
            return None
    sign = -1 if node.operation == "{0} - {1}" else 1
    left, right = parts
    assert left is not None and right is not None
    number = tuple(a + sign * b for a, b in zip(left.number, right.number, strict=True))
    return _Sum(left.rows + sign * right.rows, left.cols + sign * right.cols, number)


_CAST = re.compile(r"\{0\}|\{0\}\.to\(tl\.int\d+\)|tl\.cast\(\{0\}, tl\.int\d+\)")
_COUNTED = re.compile(r"\(tl\.cast\(\{0\}, tl\.int\d+\) \* \{2\} \+ \{1\}\)\.to\(tl\.int\d+\)")
