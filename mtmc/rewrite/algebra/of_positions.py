"""of_positions: what integers and truths are that depend on sizes alone: ramps over their indices, and comparisons of such.

Masks of decoders are made of positions: arange, moved, shifted, compared, looked up in one another. A *ramp* is start + the
sum of step * index over its dimensions; a *region* is where some ramps are at most 0. Each op here takes such values to such
a value for every index, by the definition of the op, so what is found holds at any sizes. Whatever else an op does, nothing
is known of its result. Numbers that differ between the exported sizes are known at none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mtmc.rewrite.algebra.ramps import Known, Ramp, Region
from mtmc.rewrite.graph import Graph, Op, Ref, Shape, is_one
from mtmc.rewrite.operators.steps import argument


def known_of(graph: Graph, item: Any) -> Known:
    """What is known of a value, None where that is nothing."""
    return _Finder(graph).of(item)


class _Finder:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._found: dict[str, Known] = {}

    def of(self, item: Any) -> Known:
        """Of a value, or a number among an op's arguments."""
        if isinstance(item, bool):
            return Region.of(0) if item else Region.of(0, Ramp((), 1))
        if isinstance(item, int):
            return Ramp((), item)
        if isinstance(item, float) and item.is_integer():
            return Ramp((), int(item))
        if not isinstance(item, Ref) or item.name not in self._graph.producer:
            return None
        if item.name not in self._found:
            op = self._graph.by_name[self._graph.producer[item.name]]
            rule = _RULES.get(op.target.split(".")[1]) if op.target.startswith("aten.") else None
            known = None
            if rule is not None and op.outputs == (item.name,) and self._graph.values[item.name].dtype in _KINDS:
                known = rule(self, op)
            self._found[item.name] = None if known is None else _settled(known, self._graph.values[item.name].shape)
        return self._found[item.name]

    def shape(self, item: Any) -> Shape:
        """Of a value."""
        return self._graph.values[item.name].shape

    def rank(self, op: Op) -> int:
        """Of what an op makes."""
        return len(self._graph.values[op.outputs[0]].shape)

    def is_truth(self, op: Op) -> bool:
        """Whether an op makes truths."""
        return self._graph.values[op.outputs[0]].dtype == "bool"


_KINDS = ("bool", "int64", "int32")
"""Types of which each number here is exact. Integers are taken to be small enough, as sizes are."""


def _settled(known: Ramp | Region, shape: Shape) -> Ramp | Region:
    """Without steps along dimensions of one element, whose index is 0."""
    drop = lambda ramp: Ramp(  # noqa: E731
        tuple(0 if is_one(size) else step for step, size in zip(ramp.aligned(len(shape)).steps, shape, strict=True)),
        ramp.start,
    )
    return drop(known) if isinstance(known, Ramp) else known.mapped(len(shape), drop)


def _arange(finder: _Finder, op: Op) -> Known:
    if op.target == "aten.arange.default":
        return Ramp((1,), 0)
    start, step = op.args[0], argument(op, 2, "step", 1) if op.target == "aten.arange.start_step" else 1
    return Ramp((step,), start) if _are_integers(start, step) else None


def _full(number: int) -> Callable[[_Finder, Op], Known]:
    """Of an op that makes one number everywhere. number: that, or the place of the argument that has it."""

    def rule(finder: _Finder, op: Op) -> Known:
        value = number if isinstance(number, bool) else argument(op, number, "fill_value")
        if not isinstance(value, int):
            return None
        rank = finder.rank(op)
        if finder.is_truth(op):
            return Region.of(rank) if value else Region.of(rank, Ramp((), 1))
        return Ramp((0,) * rank, int(value))

    return rule


def _moved(places: Callable[[_Finder, Op], Sequence[int | None] | None]) -> Callable[[_Finder, Op], Known]:
    """Of an op whose dimensions are some of its operand's. places: for each of its dimensions that of the operand, None
    where it is a new one of one element, or repeats one."""

    def rule(finder: _Finder, op: Op) -> Known:
        known, order = finder.of(op.args[0]), places(finder, op)
        if known is None or order is None:
            return None
        change = lambda ramp: Ramp(tuple(0 if d is None else ramp.steps[d] for d in order), ramp.start)  # noqa: E731
        return change(known) if isinstance(known, Ramp) else known.mapped(len(order), change)

    return rule


def _unsqueezed(finder: _Finder, op: Op) -> list[int | None]:
    rank = finder.rank(op)
    order: list[int | None] = list(range(rank - 1))
    order.insert(op.args[1] % rank, None)
    return order


def _transposed(finder: _Finder, op: Op) -> list[int | None]:
    order: list[int | None] = list(range(finder.rank(op)))
    a, b = (op.args[1], op.args[2]) if len(op.args) > 2 else (-2, -1)
    order[a], order[b] = order[b], order[a]
    return order


def _permuted(finder: _Finder, op: Op) -> list[int | None]:
    return [dim % finder.rank(op) for dim in op.args[1]]


def _expanded(finder: _Finder, op: Op) -> list[int | None]:
    added = finder.rank(op) - len(finder.shape(op.args[0]))
    return [None] * added + list(range(finder.rank(op) - added))


def _reshaped(finder: _Finder, op: Op) -> list[int | None] | None:
    """Where dimensions of one element come or go, and nothing else."""
    before, after = finder.shape(op.args[0]), finder.shape(Ref(op.outputs[0]))
    left = [dim for dim, size in enumerate(before) if not is_one(size)]
    if [before[dim] for dim in left] != [size for size in after if not is_one(size)]:
        return None
    places = iter(left)
    return [None if is_one(size) else next(places) for size in after]


def _sliced(finder: _Finder, op: Op) -> Known:
    known, rank = finder.of(op.args[0]), finder.rank(op)
    dim, start = argument(op, 1, "dim", 0), argument(op, 2, "start")
    step, start = argument(op, 4, "step", 1), 0 if start is None else start
    if known is None or not _are_integers(dim, start, step) or start < 0:
        return None
    dim %= rank

    def change(ramp: Ramp) -> Ramp:
        steps = tuple(each * step if d == dim else each for d, each in enumerate(ramp.steps))
        return Ramp(steps, ramp.start + ramp.steps[dim] * start)

    return change(known) if isinstance(known, Ramp) else known.mapped(rank, change)


def _same(finder: _Finder, op: Op) -> Known:
    """A copy, or other integers of the same numbers. Truths as integers are known where they are the same everywhere."""
    known = finder.of(op.args[0])
    if isinstance(known, Region) and not finder.is_truth(op):
        held = known.holds()
        return None if held is None else Ramp((0,) * known.rank, int(held))
    return known if isinstance(known, Region) == finder.is_truth(op) else None


def _sum(sign: int) -> Callable[[_Finder, Op], Known]:
    def rule(finder: _Finder, op: Op) -> Known:
        a, b = finder.of(op.args[0]), finder.of(op.args[1])
        if not isinstance(a, Ramp) or not isinstance(b, Ramp) or argument(op, 2, "alpha", 1) != 1:
            return None
        return a.plus(b.times(sign)).aligned(finder.rank(op))

    return rule


def _product(finder: _Finder, op: Op) -> Known:
    a, b = finder.of(op.args[0]), finder.of(op.args[1])
    if isinstance(a, Region) and isinstance(b, Region):
        return _both(finder, op)
    if not isinstance(a, Ramp) or not isinstance(b, Ramp):
        return None
    if b.is_flat:
        return a.aligned(finder.rank(op)).times(b.start)
    return b.aligned(finder.rank(op)).times(a.start) if a.is_flat else None


def _negated(finder: _Finder, op: Op) -> Known:
    known = finder.of(op.args[0])
    return known.times(-1) if isinstance(known, Ramp) else None


def _compared(change: Callable[[Ramp], tuple[Ramp, ...]]) -> Callable[[_Finder, Op], Known]:
    """change: of the difference of both sides, the ramps that are at most 0 where the comparison holds."""

    def rule(finder: _Finder, op: Op) -> Known:
        a, b = finder.of(op.args[0]), finder.of(op.args[1])
        if not isinstance(a, Ramp) or not isinstance(b, Ramp):
            return None
        return Region.of(finder.rank(op), *change(a.plus(b.times(-1))))

    return rule


def _equal(truth: bool) -> Callable[[_Finder, Op], Known]:
    """Of an op that says whether both sides are the same, or not: known where the answer is the same everywhere."""

    def rule(finder: _Finder, op: Op) -> Known:
        a, b, rank = finder.of(op.args[0]), finder.of(op.args[1]), finder.rank(op)
        if isinstance(a, Ramp) and isinstance(b, Ramp):
            apart = a.plus(b.times(-1))
            if not apart.is_flat:
                return None
            return Region.of(rank) if (apart.start == 0) is truth else Region.of(rank, Ramp((), 1))
        if isinstance(a, Region) and isinstance(b, Region):
            one, other = a.holds(), b.holds()
            if one is None or other is None:
                return None
            return Region.of(rank) if (one is other) is truth else Region.of(rank, Ramp((), 1))
        return None

    return rule


def _both(finder: _Finder, op: Op) -> Known:
    a, b = finder.of(op.args[0]), finder.of(op.args[1])
    if not isinstance(a, Region) or not isinstance(b, Region):
        return None
    return Region.of(finder.rank(op), *a.bounds, *b.bounds)


def _either(finder: _Finder, op: Op) -> Known:
    a, b = finder.of(op.args[0]), finder.of(op.args[1])
    for one, other in ((a, b), (b, a)):
        if isinstance(one, Region) and one.holds() is True:
            return Region.of(finder.rank(op))
        if isinstance(one, Region) and one.holds() is False and isinstance(other, Region):
            return Region.of(finder.rank(op), *other.bounds)
    return None


def _not(finder: _Finder, op: Op) -> Known:
    known = finder.of(op.args[0])
    if not isinstance(known, Region) or len(known.bounds) > 1:
        return None
    if not known.bounds:
        return Region.of(known.rank, Ramp((), 1))
    (bound,) = known.bounds
    return Region.of(known.rank, bound.times(-1).plus_number(1))


def _difference(finder: _Finder, op: Op) -> Known:
    """Of neighbours along a dimension, the first one's with what is put in front of them."""
    known, dim = finder.of(op.args[0]), argument(op, 2, "dim", -1)
    before, behind = argument(op, 3, "prepend"), argument(op, 4, "append")
    if not isinstance(known, Ramp) or argument(op, 1, "n", 1) != 1 or behind is not None:
        return None
    dim %= len(known.steps)
    step = known.steps[dim]
    if before is not None:
        first = finder.of(before)
        length = finder.shape(before)[dim] if isinstance(before, Ref) else ()
        if not isinstance(first, Ramp) or not length or not is_one(length):
            return None
        gap = Ramp(tuple(0 if d == dim else each for d, each in enumerate(known.steps)), known.start)
        apart = gap.plus(first.times(-1))
        step = step if not is_one(finder.shape(op.args[0])[dim]) else apart.start
        if not apart.is_flat or apart.start != step:
            return None
    return Ramp((0,) * len(known.steps), step)


def _running_sum(finder: _Finder, op: Op) -> Known:
    known, dim = finder.of(op.args[0]), op.args[1]
    if isinstance(known, Region):
        held = known.holds()
        known = None if held is None else Ramp((0,) * known.rank, int(held))
    if not isinstance(known, Ramp) or not known.is_flat:
        return None
    dim %= len(known.steps)
    return Ramp(tuple(known.start if d == dim else 0 for d in range(len(known.steps))), known.start)


def _looked_up(finder: _Finder, op: Op) -> Known:
    """One ramp at places that others give, none of which is counted from the end."""
    known, given = finder.of(op.args[0]), op.args[1]
    places = [finder.of(item) for item in given] if isinstance(given, tuple | list) else []
    ramps = [each for each in places if isinstance(each, Ramp) and each.start >= 0 and min(each.steps, default=0) >= 0]
    if known is None or not places or len(ramps) != len(places) or len(places) != len(finder.shape(op.args[0])):
        return None

    def change(ramp: Ramp) -> Ramp:
        found = Ramp((), ramp.start)
        for step, place in zip(ramp.steps, ramps, strict=True):
            found = found.plus(place.times(step))
        return found.aligned(finder.rank(op))

    return change(known) if isinstance(known, Ramp) else known.mapped(finder.rank(op), change)


def _are_integers(*items: Any) -> bool:
    return all(isinstance(item, int) and not isinstance(item, bool) for item in items)


_RULES: Mapping[str, Callable[[_Finder, Op], Known]] = {
    "arange": _arange,
    **dict.fromkeys(("ones", "ones_like", "new_ones"), _full(True)),
    **dict.fromkeys(("zeros", "zeros_like", "new_zeros"), _full(False)),
    **dict.fromkeys(("full", "full_like"), _full(1)),
    "new_full": _full(2),
    "unsqueeze": _moved(_unsqueezed),
    **dict.fromkeys(("transpose", "t"), _moved(_transposed)),
    "permute": _moved(_permuted),
    "expand": _moved(_expanded),
    **dict.fromkeys(("view", "reshape", "_unsafe_view", "squeeze"), _moved(_reshaped)),
    "slice": _sliced,
    **dict.fromkeys(("to", "_to_copy", "clone", "contiguous", "alias", "detach"), _same),
    "add": _sum(1),
    "sub": _sum(-1),
    "mul": _product,
    "neg": _negated,
    "le": _compared(lambda apart: (apart,)),
    "lt": _compared(lambda apart: (apart.plus_number(1),)),
    "ge": _compared(lambda apart: (apart.times(-1),)),
    "gt": _compared(lambda apart: (apart.times(-1).plus_number(1),)),
    "eq": _equal(True),
    "ne": _equal(False),
    **dict.fromkeys(("logical_and", "bitwise_and", "__and__"), _both),
    **dict.fromkeys(("logical_or", "bitwise_or", "__or__"), _either),
    **dict.fromkeys(("logical_not", "bitwise_not"), _not),
    "diff": _difference,
    "cumsum": _running_sum,
    "index": _looked_up,
}
"""What is known of the result of an op, by its name."""
