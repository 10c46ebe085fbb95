"""masks: attention under a mask that positions make, as attention that knows where it looks.

Proofs. What `of_positions` finds of a mask holds for every index. One that is true everywhere leaves the scores as they
are. One that is true where column - row <= 0 is by definition what `is_causal` has torch do. Another region of rows and
columns is the same mask, written with nothing but its positions. Heads of keys and values that come r times in a row are
what `enable_gqa` does: query head h looks at head h // r.

What it is for: models find out which positions look at which for each call anew (documents in one row, windows, what is
padded), hand the library a mask that it reads for each score, and write each head of keys and values several times. Without
these, the library takes its fastest way, and a kernel of attention leaves out what no row sees.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

from mtmc.rewrite.algebra.edit import Editor, Finding, Rule, number_of, sizes
from mtmc.rewrite.algebra.of_positions import known_of
from mtmc.rewrite.algebra.ramps import Known, Ramp, Region
from mtmc.rewrite.graph import Graph, Op, Ref, Shape
from mtmc.rewrite.operators.steps import argument

_ATTENTION = "aten.scaled_dot_product_attention.default"
_PAST = Region.of(2, Ramp((-1, 1), 0))
"""Where column - row is at most 0."""
_HALVES = ("float16", "bfloat16")
"""Types for which the library has attention with fewer heads of keys than of queries."""
_RESHAPES = tuple(f"aten.{name}.default" for name in ("reshape", "view", "_unsafe_view"))
_NOT_TAKEN_IN = ("diff", "cumsum", "index")
"""Names of ops on positions that end what a kernel of attention makes of its mask itself."""
_PASSED = ("aten.clone.default", "aten.contiguous.default")


def _seen(graph: Graph, op: Op) -> Finding | None:
    """Attention whose mask is true everywhere, or up to the diagonal."""
    region = _region(graph, op)
    if region is None or (region.bounds and region != _PAST):
        return None
    causal = bool(region.bounds)
    mask = argument(op, 3, "attn_mask").name
    what = "the positions up to the row's own: is_causal says so" if causal else "all positions"
    return _attending(graph, op, op.args[:3], causal, {}, f"the mask {mask} of {op.name} leaves {what}")


def _written_plainly(graph: Graph, op: Op) -> Finding | None:
    """Truths about rows and columns, made of these alone, where what is no truth about positions reads them."""
    name, start = op.outputs[0], next((each for each in graph.ops if each.target == "aten.arange.default"), None)
    if start is None or len(op.outputs) > 1 or name not in graph.values or graph.values[name].dtype != "bool":
        return None
    region = _plane(known_of(graph, Ref(name)))
    if region is None or not region.bounds or not _is_looked_up(graph, name) or not _is_read(graph, name, region):
        return None
    if any(bound.steps not in ((-1, 1), (1, -1)) for bound in region.bounds):
        return None
    shape = graph.values[name].shape
    edit, plane, one = Editor(graph, op), shape[-2:], tuple(1 for _ in graph.variants)
    rows, cols = (
        edit.add("aten.arange.default", (number_of(size),), (size,), hint, start.kwargs, dtype="int64")
        for size, hint in zip(plane, ("rows", "cols"), strict=True)
    )
    column = edit.add("aten.unsqueeze.default", (rows, 1), (plane[0], one), "each_row", dtype="int64")
    apart = edit.add("aten.sub.Tensor", (cols, column), plane, "apart", dtype="int64")
    bounds = [_bound(edit, bound, apart, plane) for bound in sorted(region.bounds, key=lambda each: each.steps)]
    both = reduce(lambda a, b: edit.add("aten.logical_and.default", (a, b), plane, "both"), bounds)
    by = both if len(shape) == 2 else edit.called("aten.expand.default", (both, sizes(shape)), "expanded")
    return None if by is None else edit.relaid(f"the mask {name} is made of rows and columns alone", (op.name,), by)


def _is_read(graph: Graph, name: str, region: Region) -> bool:
    """Whether something reads truths that makes no other ones of them, and is no attention that `is_causal` says all to."""
    readers = [graph.by_name[each] for each in graph.readers(name)]
    others = [each for each in readers if known_of(graph, Ref(each.outputs[0])) is None]
    return any(each.target != _ATTENTION or region != _PAST for each in others) or name in graph.results()


def _bound(edit: Editor, bound: Ramp, apart: Ref, shape: Shape) -> Ref:
    """Where column - row is on one side of a number."""
    if bound.steps == (-1, 1):
        return edit.add("aten.le.Scalar", (apart, -bound.start), shape, "upper")
    return edit.add("aten.ge.Scalar", (apart, bound.start), shape, "lower")


def _is_looked_up(graph: Graph, name: str) -> bool:
    """Whether ops made a mask that no kernel of attention takes in."""
    waiting, seen = [name], set[str]()
    while waiting:
        op = graph.by_name.get(graph.producer.get(waiting.pop(), ""))
        if op is None or op.name in seen:
            continue
        if op.target.split(".")[1] in _NOT_TAKEN_IN:
            return True
        seen.add(op.name)
        waiting += op.refs()
    return False


def _fewer_heads(graph: Graph, op: Op) -> Finding | None:
    """Attention whose keys and values are written several times each."""
    if op.target != _ATTENTION or argument(op, 3, "attn_mask") is not None:
        return None
    if graph.values[op.outputs[0]].dtype not in _HALVES or argument(op, 7, "enable_gqa", False):
        return None
    query, key, value = op.args[:3]
    keys, values = _repeated(graph, key), _repeated(graph, value)
    if keys is None or values is None or len(graph.values[query.name].shape) != 4:
        return None
    if graph.values[keys.name].shape[:-1] != graph.values[values.name].shape[:-1]:
        return None
    causal = bool(argument(op, 5, "is_causal", False))
    sentence = f"{op.name} reads each head of {keys.name} and {values.name} for several heads of queries"
    return _attending(graph, op, (query, keys, values), causal, {"enable_gqa": True}, sentence)


def _attending(
    graph: Graph, op: Op, operands: tuple[Any, ...], causal: bool, more: dict[str, Any], sentence: str
) -> Finding | None:
    """The same attention without a mask. more: keyword arguments besides its scale."""
    edit, made = Editor(graph, op), graph.values[op.outputs[0]]
    asked = {"scale": argument(op, 6, "scale"), "enable_gqa": argument(op, 7, "enable_gqa", False)} | more
    named = {name: value for name, value in asked.items() if value}
    arguments = (*operands, None, argument(op, 4, "dropout_p", 0.0), causal)
    by = edit.add(
        _ATTENTION,
        arguments,
        made.shape,
        "grouped" if more else "past" if causal else "all",
        named,
        strides=made.strides,
    )
    return edit.finish(sentence, (op.name,), by)


def _region(graph: Graph, op: Op) -> Region | None:
    """Which columns each row of an attention sees, where its mask depends on nothing else; in two dimensions."""
    mask = argument(op, 3, "attn_mask") if op.target == _ATTENTION else None
    if not isinstance(mask, Ref) or argument(op, 5, "is_causal", False):
        return None
    return _plane(known_of(graph, mask))


def _plane(known: Known) -> Region | None:
    """A region of the last two dimensions, None where others count too."""
    if not isinstance(known, Region) or known.rank < 2 or any(any(each.steps[:-2]) for each in known.bounds):
        return None
    return known.mapped(2, lambda bound: Ramp(bound.steps[-2:], bound.start))


def _repeated(graph: Graph, item: Any) -> Ref | None:
    """What a value has each head of several times in a row; None where it is nothing like that."""
    made = _back(graph, item, _PASSED)
    if not isinstance(made, Ref) or made.name not in graph.producer:
        return None
    op = graph.by_name[graph.producer[made.name]]
    shape = graph.values[made.name].shape
    if op.target == "aten.repeat_interleave.self_int" and argument(op, 2, "dim") in (1, 1 - len(shape)):
        return op.args[0] if len(shape) == 4 else None
    if op.target not in _RESHAPES:
        return None
    spread = graph.by_name.get(graph.producer.get(op.args[0].name, ""))
    if spread is None or spread.target != "aten.expand.default":
        return None
    apart = _unsliced(graph, spread.args[0])
    source = graph.by_name.get(graph.producer.get(apart.name, ""))
    if source is None or source.target != "aten.unsqueeze.default" or source.args[1] not in (2, -3):
        return None
    return (
        source.args[0]
        if _is_repeated(shape, *(graph.values[x.name].shape for x in (op.args[0], source.args[0])))
        else None
    )


def _is_repeated(shape: Shape, spread: Shape, source: Shape) -> bool:
    """Whether (batch, heads, length, width) was spread to (batch, heads, times, length, width) and merged again."""
    if len(shape) != 4 or len(spread) != 5 or len(source) != 4:
        return False
    merged = tuple(a * b for a, b in zip(spread[1], spread[2], strict=True))
    return (*spread[:2], *spread[3:]) == source and shape == (source[0], merged, *source[2:])


def _back(graph: Graph, item: Any, targets: tuple[str, ...]) -> Any:
    """A value before some ops that change nothing of it."""
    while isinstance(item, Ref) and item.name in graph.producer:
        op = graph.by_name[graph.producer[item.name]]
        if op.target not in targets:
            break
        item = op.args[0]
    return item


def _unsliced(graph: Graph, item: Ref) -> Ref:
    """A value before slices that leave all of it."""
    while (op := graph.by_name.get(graph.producer.get(item.name, ""))) is not None:
        whole = (
            op.target == "aten.slice.Tensor" and graph.values[op.args[0].name].shape == graph.values[item.name].shape
        )
        if not whole:
            break
        item = op.args[0]
    return item


MASKS: tuple[Rule, ...] = (_seen, _written_plainly, _fewer_heads)
