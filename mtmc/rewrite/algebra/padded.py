"""padded: products of matrices whose rows end within a line of the cache, of matrices whose rows end with one.

Proof. Zeros that are added behind the summed dimension of both operands add nothing to a sum. Columns of zeros behind those
of the right operand make columns of zeros behind those of the result, and the others stay what they are.

What it is for: a row of 2949 numbers ends within a line, so the next one begins there, and nothing of it can be read 16
bytes at a time, nor by a descriptor. A library's fast kernels are not to be had either. Copies with whole lines take two
passes over the operands, and one over the result, where the product reads each of them many times.
"""

from __future__ import annotations

from mtmc.rewrite.algebra.edit import Editor, Finding, Rule, number_of
from mtmc.rewrite.graph import IN_ORDER, Graph, Op, Ref, Shape, Size, product

_LINEAR = "aten.linear.default"
_PRODUCTS = (_LINEAR, "aten.matmul.default", "aten.mm.default", "aten.bmm.default")
BYTES = 16
"""What is read at once at most."""
MULTIPLE = 16
"""Elements that rows are padded to a multiple of: by numbers that are, Triton knows that lines are whole."""
LEAST = 512
"""Of the summed dimension, and of rows and columns, at the full shapes: the copies are nothing beside the product."""


def _padded(graph: Graph, op: Op) -> Finding | None:
    if op.target not in _PRODUCTS or not all(isinstance(each, Ref) for each in op.args[:2]):
        return None
    left, right = op.args[:2]
    shapes = [graph.values[each.name].shape for each in (left, right)]
    made, known = graph.values[op.outputs[0]], [graph.values[each.name] for each in (left, right)]
    plain = made.is_float and made.contiguous and all(each.contiguous and each.dtype == made.dtype for each in known)
    if not plain or min(map(len, shapes)) < 2 or not _is_large(made.shape, shapes[0][-1]):
        return None
    across = op.target != _LINEAR
    inner = _margin(shapes[0][-1], made.float_bytes)
    outer = _margin(shapes[1][-1], made.float_bytes) if across else 0
    if not inner and not outer:
        return None
    edit = Editor(graph, op)
    operands = (
        _behind(edit, left, (inner,), "left"),
        _behind(edit, right, (outer, inner) if across else (inner,), "right"),
    )
    columns = made.shape[-1]
    wide = (*made.shape[:-1], _more(columns, outer))
    by = edit.add(op.target, (*operands, *op.args[2:]), wide, "padded", op.kwargs)
    if outer:
        cut = (by, len(wide) - 1, 0, number_of(columns))
        by = edit.add("aten.slice.Tensor", cut, made.shape, "columns", strides=edit.tensor(by).lying)
        by = edit.add(IN_ORDER, (by,), made.shape, "in_order")
    return edit.finish(f"the rows that {op.name} multiplies are padded to whole lines", (op.name,), by)


def _is_large(made: Shape, inner: Size) -> bool:
    rows, columns = product(made[:-1])[0], made[-1][0]
    return min(rows, columns, inner[0]) >= LEAST


def _margin(size: Size, bytes_each: int) -> int:
    """Zeros behind a row of this size at the full shapes; none where it ends with a line."""
    return 0 if size[0] * bytes_each % BYTES == 0 else -size[0] % MULTIPLE


def _behind(edit: Editor, operand: Ref, margins: tuple[int, ...], hint: str) -> Ref:
    """An operand with zeros behind its last dimensions. margins: of the last one first."""
    if not any(margins):
        return operand
    tensor, shape = edit.tensor(operand), list(edit.tensor(operand).shape)
    for at, margin in enumerate(margins, 1):
        shape[-at] = _more(shape[-at], margin)
    pairs = tuple(number for margin in margins for number in (0, margin))
    return edit.add("aten.pad.default", (operand, pairs), tuple(shape), hint, dtype=tensor.dtype)


def _more(size: Size, by: int) -> Size:
    return tuple(each + by for each in size)


PADDED: tuple[Rule, ...] = (_padded,)
