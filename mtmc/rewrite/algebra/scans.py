"""scans: a running sum or product of what came before each element, by way of a scan of the operand moved by one.

Proof. With s_i = x_0 o ... o x_i, o the sum or the product and e its neutral number, the elements (e, s_0, ..., s_(n-2)) are
those before each place. They are the scan of (e, x_0, ..., x_(n-2)), since e o x = x. In floating point, too: adding 0 or
multiplying by 1 rounds nothing.

What it is for: what is moved after the scan has to be written and read again, since elements of it stand with other threads.
What is moved before it is read at another place.
"""

from __future__ import annotations

from dataclasses import dataclass

from mtmc.rewrite.algebra.edit import Editor, Finding, Rule, producer
from mtmc.rewrite.graph import Graph, Op, Ref, is_dense

_NEUTRAL = {"aten.cumsum.default": 0.0, "aten.cumprod.default": 1.0}
_LIKE = {"aten.zeros_like.default": 0.0, "aten.ones_like.default": 1.0}
_MADE = {
    f"aten.{new}{made}.default": number for new in ("", "new_") for made, number in (("zeros", 0.0), ("ones", 1.0))
}
_FILLED = {"aten.full.default": 1, "aten.full_like.default": 1, "aten.new_full.default": 2}
"""Which argument is the number."""
_SLICE = "aten.slice.Tensor"


@dataclass(frozen=True)
class _Before:
    """What stands before each place. ops: that say so, but for the scan. first: the op that makes the first number, None
    where padding does; of: what it takes its shape from."""

    scan: Op
    dim: int
    ops: tuple[str, ...]
    first: Op | None = None
    of: Op | None = None


def _exclusive(graph: Graph, op: Op) -> Finding | None:
    found = _of_cat(graph, op) if op.target == "aten.cat.default" else _of_pad(graph, op)
    if found is None or not isinstance(found.scan.args[0], Ref):
        return None
    x, made = found.scan.args[0], graph.values[op.outputs[0]]
    tensor = graph.values[x.name]
    if tensor.dtype != made.dtype or graph.values[found.scan.outputs[0]].dtype != made.dtype or not tensor.is_float:
        return None
    edit = Editor(graph, op)
    if found.first is None:
        moved = edit.add(op.target, _padded(edit, found, x, op), made.shape, "moved", op.kwargs)
    else:
        parts = [_first(edit, found, x), _cut(edit, x, found.dim, -1)]
        moved = edit.add(op.target, (tuple(parts), found.dim), made.shape, "moved")
    scan = edit.add(found.scan.target, (moved, *found.scan.args[1:]), made.shape, "scan", found.scan.kwargs)
    what = "sum" if found.scan.target == "aten.cumsum.default" else "product"
    sentence = f"{op.name} is the running {what} of the operand of {found.scan.name}, moved by one"
    return edit.finish(sentence, (found.scan.name, *found.ops, op.name), scan)


def _of_cat(graph: Graph, op: Op) -> _Before | None:
    """(e, s[:-1]), one behind the other."""
    parts, dim = op.args[0], op.args[1] if len(op.args) > 1 else 0
    if not isinstance(parts, tuple | list) or len(parts) != 2 or not isinstance(dim, int):
        return None
    shape = graph.values[op.outputs[0]].shape
    first, cut = producer(graph, parts[0], *_LIKE, *_MADE, *_FILLED), producer(graph, parts[1], _SLICE)
    dim = dim % len(shape)
    scan = None if cut is None else _scan_before_its_end(graph, cut, dim)
    if first is None or cut is None or scan is None:
        return None
    if _number_of(first) != _NEUTRAL[scan.target] or not _is_one_thick(graph, parts[0], dim):
        return None
    of = producer(graph, first.args[0], _SLICE) if first.target.endswith("_like.default") else None
    others = set(graph.readers(scan.outputs[0])) - {cut.name} - ({of.name} if of else set())
    if others or scan.outputs[0] in graph.results():
        return None
    return _Before(scan, dim, (first.name, cut.name), first, of)


def _of_pad(graph: Graph, op: Op) -> _Before | None:
    """s[:-1] behind e, by padding."""
    if op.target != "aten.pad.default" or (len(op.args) > 2 and op.args[2] != "constant"):
        return None
    fill = op.args[3] if len(op.args) > 3 and op.args[3] is not None else 0.0
    dim = len(graph.values[op.outputs[0]].shape) - 1
    cut: Op | None = None
    if op.args[1] in ((1, -1), [1, -1]):
        scan = producer(graph, op.args[0], *_NEUTRAL)
        scan = scan if scan is not None and _along(graph, scan) == dim else None
    else:
        cut = producer(graph, op.args[0], _SLICE) if op.args[1] in ((1, 0), [1, 0]) else None
        scan = None if cut is None else _scan_before_its_end(graph, cut, dim)
        scan = scan if scan is not None and len(graph.readers(scan.outputs[0])) == 1 else None
    if scan is None or scan.outputs[0] in graph.results() or fill != _NEUTRAL[scan.target]:
        return None
    return _Before(scan, dim, () if cut is None else (cut.name,))


def _scan_before_its_end(graph: Graph, cut: Op, dim: int) -> Op | None:
    """The scan of which a slice is all but the last element."""
    if cut.args[1:4] not in ((dim, 0, -1), (dim, None, -1)) or len(cut.args) > 4 or not isinstance(cut.args[0], Ref):
        return None
    scan = graph.by_name.get(graph.producer.get(cut.args[0].name, ""))
    return scan if scan is not None and scan.target in _NEUTRAL and _along(graph, scan) == dim else None


def _along(graph: Graph, scan: Op) -> int | None:
    """The dimension of a scan that gives what it is given a type of."""
    rank, dim = len(graph.values[scan.outputs[0]].shape), scan.args[1] if len(scan.args) > 1 else None
    return dim % rank if isinstance(dim, int) and rank and not scan.kwargs and len(scan.args) == 2 else None


def _number_of(first: Op) -> object:
    """What a tensor of one number is made of."""
    if first.target in _FILLED:
        return first.args[_FILLED[first.target]] if len(first.args) > _FILLED[first.target] else None
    return {**_LIKE, **_MADE}[first.target]


def _is_one_thick(graph: Graph, item: Ref, dim: int) -> bool:
    return set(graph.values[item.name].shape[dim]) <= {1}


def _first(edit: Editor, found: _Before, x: Ref) -> Ref:
    """The neutral number before each row: where it had the shape of a part of the scan, it has that of the operand's."""
    assert found.first is not None
    if found.of is None:
        return Ref(found.first.outputs[0])
    shape = edit.graph.values[found.first.outputs[0]].shape
    part = _cut(edit, x, found.dim, 1)
    return edit.add(found.first.target, (part, *found.first.args[1:]), shape, "first", found.first.kwargs)


def _padded(edit: Editor, found: _Before, x: Ref, op: Op) -> tuple[object, ...]:
    """The arguments of the padding, of the operand instead of its scan."""
    part = _cut(edit, x, found.dim, -1) if found.ops else x
    return (part, *op.args[1:])


def _cut(edit: Editor, x: Ref, dim: int, end: int) -> Ref:
    """The operand's first elements along a dimension: one (1), or all but the last (-1)."""
    tensor = edit.tensor(x)
    thick = tuple(1 for _ in edit.graph.variants) if end == 1 else tuple(each + end for each in tensor.shape[dim])
    shape = (*tensor.shape[:dim], thick, *tensor.shape[dim + 1 :])
    strides = () if is_dense(shape, tensor.lying) else tensor.lying
    return edit.add(_SLICE, (x, dim, 0, end), shape, "part", strides=strides)


SCANS: tuple[Rule, ...] = (_exclusive,)
