"""index_places: indices that are sums of places, such as row - column + 511, as the places that they are.

What stands at such an index lies at a known place, and no index is computed for it in 64 bits, compared with the operand's
size, or taken for one that was loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mtmc.rewrite.body import Body, Index, Node, NotCovered, Number, Operand, Varying
from mtmc.rewrite.graph import Shape, Size
from mtmc.rewrite.index_maps import Asked, At, IndexMap, Reshaped, broadcast_at
from mtmc.rewrite.places import Mirrored, Place, number_place, one

ShapeOf = Callable[[Operand], Shape]
CASTS = ("{0}", "{0}.to(tl.int32)", "{0}.to(tl.int64)", "tl.cast({0}, tl.int32)", "tl.cast({0}, tl.int64)")
COUNTED = tuple(f"(tl.cast({{0}}, {kind}) * {{2}} + {{1}}).to({kind})" for kind in ("tl.int32", "tl.int64"))
"""Numbers that go up along a dimension: of a step and a start."""
MAXIMUM, MINIMUM = "tl.maximum({0}, {1})", "tl.minimum({0}, {1})"
MOST_NODES = 64
"""Of an index, gone through for each place that it is asked for at."""


def place_of(body: Body, shape_of: ShapeOf, variants: int, operand: Operand, at: At) -> Place | None:
    """A whole number at a place as a sum of places, also between two numbers that it is held to; None for another one."""
    return _Reader(body, shape_of, variants).read(operand, at)


class _Reader:
    def __init__(self, body: Body, shape_of: ShapeOf, variants: int) -> None:
        self.body, self.shape_of, self.variants, self.left = body, shape_of, variants, MOST_NODES

    def read(self, operand: Operand, at: At) -> Place | None:
        self.left -= 1
        if isinstance(operand, Index):
            return at[len(at) - operand.axis]
        if isinstance(operand, (Number, Varying)):
            values = (operand.value,) * self.variants if isinstance(operand, Number) else operand.values
            whole = all(isinstance(value, (int, float)) and value == int(value) for value in values)
            return number_place(tuple(int(value) for value in values)) if whole else None
        node = self.body.node(operand) if isinstance(operand, str) else None
        if node is None or self.left < 0 or node.compute != "int":
            return None
        if node.kind in ("view", "index"):
            return self._moved(node, at)
        found = self._map(node, at) if node.kind == "map" else None
        return found if found is not None and _is_written(found) else None

    def _moved(self, node: Node, at: At) -> Place | None:
        index: IndexMap | None = Reshaped(node.shape) if node.kind == "view" else node.index
        assert index is not None
        try:
            pieces = index.pieces(Asked(at, tuple(map(self.shape_of, node.operands)), self.variants, _unknown))
        except NotCovered:
            return None
        if len(pieces) != 1 or not all(condition.always for condition in pieces[0].conditions):
            return None
        return self.read(node.operands[pieces[0].operand], pieces[0].at)

    def _map(self, node: Node, at: At) -> Place | None:
        if node.operation in CASTS and len(node.operands) == 1:
            return self._part(node, 0, at)
        if node.operation in (MAXIMUM, MINIMUM):
            return self._held(node, at)
        if node.operation not in ("{0} + {1}", "{0} - {1}", *COUNTED):
            return None
        parts = [self._part(node, number, at) for number in range(len(node.operands))]
        first, second = parts[:2]
        if first is None or second is None:
            return None
        if node.operation in COUNTED:
            step = parts[2]
            return None if step is None or step.terms else first.times(step.more).plus(second)
        return first.plus(second if "+" in node.operation else second.times((-1,) * self.variants))

    def _held(self, node: Node, at: At) -> Place | None:
        """What is held between two numbers: by a maximum of a minimum, or the other way round."""
        inner, outer, ends = self._one_of(node, at)
        below = self.body.node(inner) if isinstance(inner, str) else None
        if below is None or outer is None or below.operation not in {MAXIMUM, MINIMUM} - {node.operation}:
            return None
        held, other, _ = self._one_of(below, broadcast_at(ends, below.shape))
        if held is None or other is None:
            return None
        low, high = (other, outer) if node.operation == MINIMUM else (outer, other)
        count = tuple(b - a + 1 for a, b in zip(low, high, strict=True))
        place = self.read(held, broadcast_at(ends, self.shape_of(held)))
        if place is None or min(count) < 1:
            return None
        moved = place.plus_number(tuple(-each for each in low))
        if not _is_written(moved):
            return None
        return one(Mirrored(moved, "replicate", (0,) * self.variants, count)).plus_number(low)

    def _one_of(self, node: Node, at: At) -> tuple[Operand | None, Size | None, At]:
        """The operand that is no number, and the number that the other one is; (None, None) unless it is so."""
        for number in range(2):
            other = self._part(node, 1 - number, at) if not isinstance(node.operands[1 - number], str) else None
            if other is not None and not other.terms:
                return node.operands[number], other.more, at
        return None, None, at

    def _part(self, node: Node, number: int, at: At) -> Place | None:
        item = node.operands[number]
        return self.read(item, at if isinstance(item, Index) else broadcast_at(at, self.shape_of(item)))


def _unknown(number: int, at: At, wrap: Size | None) -> str:
    raise NotCovered("places that are loaded")


def _is_written(place: Place) -> bool:
    """Whether all numbers in a sum have one sign at all variants: a kernel can write it."""
    return all(map(_has_sign, (place.more, *(factor for _, factor in place.terms))))


def _has_sign(number: Sequence[int]) -> bool:
    return all(each >= 0 for each in number) or all(each < 0 for each in number) or all(each <= 0 for each in number)
