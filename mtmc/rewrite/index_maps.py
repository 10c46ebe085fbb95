"""index maps: which element of its operand an element of a result is, for all that only moves elements.

A map is asked for the element at a place of the result, and says at which places of which operands it lies: one *piece* for
a slice, several under conditions where values are joined. So nothing is moved: whoever needs the element reads it there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from mtmc.rewrite.graph import Shape, Size, is_one, product, same
from mtmc.rewrite.places import Mirrored, Place, Variable, digits, linear, number_place, one

At = tuple[Place, ...]
"""A place in each dimension."""


@dataclass(frozen=True)
class Condition:
    """low <= place < high; None where there is no such bound."""

    place: Place
    low: Size | None
    high: Size | None

    @property
    def always(self) -> bool:
        """Whether the place can be nothing else."""
        low = self.low is None or all(a >= b for a, b in zip(self.place.least, self.low, strict=True))
        return low and (self.high is None or all(a < b for a, b in zip(self.place.most, self.high, strict=True)))

    @property
    def never(self) -> bool:
        """Whether the place is outside at every variant."""
        low = self.low is not None and all(a < b for a, b in zip(self.place.most, self.low, strict=True))
        return low or (self.high is not None and all(a >= b for a, b in zip(self.place.least, self.high, strict=True)))


@dataclass(frozen=True)
class Piece:
    """The element of an operand (by its number) at some places, where the conditions hold."""

    operand: int
    at: At
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True)
class Asked:
    """What is asked of a map.

    at: the place in the result. shapes: of the operands. variants: how many there are. load: gives the variable that holds
    an index: the value of an operand at a place, counted from the end of so many elements where it is below 0. known: the
    place that such an index is, where it is a sum of places; None elsewhere.
    """

    at: At
    shapes: tuple[Shape, ...]
    variants: int
    load: Callable[[int, At, Size | None], str]
    known: Callable[[int, At], Place | None] = lambda number, at: None


class IndexMap(Protocol):
    """One way to move elements. `fill` of a node is what stands where no piece applies."""

    def pieces(self, asked: Asked) -> tuple[Piece, ...]:
        """Where the element lies: the first piece whose conditions hold."""
        ...


@dataclass(frozen=True)
class Permuted:
    """Dimensions in another order: dimension k of the result is dims[k] of the operand."""

    dims: tuple[int, ...]

    def pieces(self, asked: Asked) -> tuple[Piece, ...]:
        at = dict(zip(self.dims, asked.at, strict=True))
        return (Piece(0, tuple(at[dim] for dim in range(len(self.dims)))),)


@dataclass(frozen=True)
class Reshaped:
    """The same elements in the same order under another shape. shape: of the result."""

    shape: Shape

    def pieces(self, asked: Asked) -> tuple[Piece, ...]:
        return (Piece(0, _reshaped(asked.at, self.shape, asked.shapes[0], asked.variants)),)


@dataclass(frozen=True)
class Expanded:
    """Dimensions of size 1 repeated, and new ones in front."""

    def pieces(self, asked: Asked) -> tuple[Piece, ...]:
        return (Piece(0, broadcast_at(asked.at, asked.shapes[0])),)


@dataclass(frozen=True)
class Sliced:
    """Every step-th element of a dimension from `start` on."""

    dim: int
    start: Size
    step: Size

    def pieces(self, asked: Asked) -> tuple[Piece, ...]:
        place = asked.at[self.dim].times(self.step).plus_number(self.start)
        return (Piece(0, _with(asked.at, self.dim, place.below(asked.shapes[0][self.dim]))),)


@dataclass(frozen=True)
class Selected:
    """One element of a dimension, which is gone in the result."""

    dim: int
    position: Size

    def pieces(self, asked: Asked) -> tuple[Piece, ...]:
        return (Piece(0, (*asked.at[: self.dim], number_place(self.position), *asked.at[self.dim :])),)


@dataclass(frozen=True)
class Flipped:
    """Some dimensions from the last element to the first."""

    dims: tuple[int, ...]

    def pieces(self, asked: Asked) -> tuple[Piece, ...]:
        at, shape = asked.at, asked.shapes[0]
        for dim in self.dims:
            last = tuple(size - 1 for size in shape[dim])
            at = _with(at, dim, at[dim].times((-1,) * len(last)).plus_number(last).below(shape[dim]))
        return (Piece(0, at),)


@dataclass(frozen=True)
class Rolled:
    """Elements moved on along dimensions; what leaves at the end comes in at the front."""

    dims: tuple[int, ...]
    shifts: tuple[Size, ...]

    def pieces(self, asked: Asked) -> tuple[Piece, ...]:
        at, shape = asked.at, asked.shapes[0]
        for dim, shift in zip(self.dims, self.shifts, strict=True):
            back = tuple(-by % size for by, size in zip(shift, shape[dim], strict=True))
            at = _with(at, dim, at[dim].plus_number(back).rest(shape[dim]))
        return (Piece(0, at),)


@dataclass(frozen=True)
class Repeated:
    """A dimension several times over, or (`each`) each of its elements several times."""

    dim: int
    times: Size
    each: bool = False

    def pieces(self, asked: Asked) -> tuple[Piece, ...]:
        place = asked.at[self.dim]
        place = place.quotient(self.times) if self.each else place.rest(asked.shapes[0][self.dim])
        return (Piece(0, _with(asked.at, self.dim, place)),)


@dataclass(frozen=True)
class Unfolded:
    """Windows of a dimension, one every `step` elements; what stands in each is the result's last dimension."""

    dim: int
    step: Size

    def pieces(self, asked: Asked) -> tuple[Piece, ...]:
        place = asked.at[self.dim].times(self.step).plus(asked.at[-1])
        return (Piece(0, _with(asked.at[:-1], self.dim, place.below(asked.shapes[0][self.dim]))),)


@dataclass(frozen=True)
class Padded:
    """More elements around those of the operand. before: how many in front, for each dimension.

    how: "constant" (the node's fill), "reflect", "replicate" or "circular".
    """

    before: tuple[Size, ...]
    how: str = "constant"

    def pieces(self, asked: Asked) -> tuple[Piece, ...]:
        found, conditions = [], []
        for place, before, size in zip(asked.at, self.before, asked.shapes[0], strict=True):
            moved = place.plus_number(tuple(-each for each in before))
            if all(low >= 0 and high < limit for low, high, limit in zip(moved.least, moved.most, size, strict=True)):
                found.append(moved)
            elif self.how == "constant":
                found.append(moved.below(size))
                conditions.append(Condition(moved, (0,) * len(size), size))
            elif self.how == "circular":
                found.append(moved.plus_number(size).rest(size))
            else:
                found.append(one(Mirrored(place, self.how, before, size)))
        return (Piece(0, tuple(found), tuple(conditions)),)


@dataclass(frozen=True)
class Joined:
    """Operands one behind the other along a dimension."""

    dim: int

    def pieces(self, asked: Asked) -> tuple[Piece, ...]:
        place, found = asked.at[self.dim], []
        start = (0,) * len(place.more)
        for number, shape in enumerate(asked.shapes):
            end = tuple(a + b for a, b in zip(start, shape[self.dim], strict=True))
            moved = place.plus_number(tuple(-each for each in start)).below(shape[self.dim])
            found.append(Piece(number, _with(asked.at, self.dim, moved), (Condition(place, start, end),)))
            start = end
        return tuple(found)


@dataclass(frozen=True)
class Replaced:
    """The first operand, with the second one in place of some elements of a dimension, from `start` up to `stop`.

    gone: whether the second has not that dimension (there is one element to replace).
    """

    dim: int
    start: Size
    stop: Size
    gone: bool = False

    def pieces(self, asked: Asked) -> tuple[Piece, ...]:
        place = asked.at[self.dim]
        count = tuple(b - a for a, b in zip(self.start, self.stop, strict=True))
        moved = place.plus_number(tuple(-each for each in self.start)).below(count)
        at = _with(asked.at, self.dim, moved)
        if self.gone:
            at = (*at[: self.dim], *at[self.dim + 1 :])
        inside = Piece(1, broadcast_at(at, asked.shapes[1]), (Condition(place, self.start, self.stop),))
        return (inside, Piece(0, asked.at))


@dataclass(frozen=True)
class Diagonal:
    """The elements of two dimensions that lie on a diagonal, as a last dimension."""

    first: int
    second: int
    start: tuple[Size, Size]

    def pieces(self, asked: Asked) -> tuple[Piece, ...]:
        others = list(asked.at[:-1])
        ends = sorted(((self.first, self.start[0]), (self.second, self.start[1])))
        for dim, start in ends:
            others.insert(dim, asked.at[-1].plus_number(start).below(asked.shapes[0][dim]))
        return (Piece(0, tuple(others)),)


@dataclass(frozen=True)
class Strided:
    """Elements of a dense operand by their distance from its first, as strides say it. offset: of the first of them."""

    strides: tuple[Size, ...]
    offset: Size

    def pieces(self, asked: Asked) -> tuple[Piece, ...]:
        place = number_place(self.offset)
        for at, stride in zip(asked.at, self.strides, strict=True):
            place = place.plus(at.times(stride))
        count = product(asked.shapes[0]) or (1,) * asked.variants
        return (Piece(0, digits(place.below(count), asked.shapes[0])),)


@dataclass(frozen=True)
class Looked:
    """Elements of the first operand at the indices that the others hold, each for one of its dimensions, `dims`.

    The others broadcast to one shape, of `rank` dimensions, which stands in the result from dimension `first` on; what is
    left of the operand's dimensions stands around it. aligned: for "gather", whose index has the operand's dimensions, and
    is itself read at the result's place. negative: whether an index below 0 counts from the end. An index out of range,
    for which torch raises, reads nothing: the result is NaN there (0 of whole numbers).
    """

    dims: tuple[int, ...]
    first: int
    rank: int
    negative: bool = False
    aligned: bool = False

    def pieces(self, asked: Asked) -> tuple[Piece, ...]:
        inside = asked.at if self.aligned else asked.at[self.first : self.first + self.rank]
        conditions, found = [], {}
        for number, dim in enumerate(self.dims, start=1):
            size = asked.shapes[0][dim]
            at = broadcast_at(inside, asked.shapes[number])
            known = asked.known(number, at)
            if known is not None and known.fills(size):
                found[dim] = known
                continue
            name = asked.load(number, at, size if self.negative else None)
            place = one(Variable(name, (2**62,) * len(size)))
            conditions.append(Condition(place, (0,) * len(size), size))
            found[dim] = place.below(size)
        if self.aligned:
            return (Piece(0, tuple(found.get(dim, place) for dim, place in enumerate(asked.at)), tuple(conditions)),)
        left = iter((*asked.at[: self.first], *asked.at[self.first + self.rank :]))
        places = tuple(found[dim] if dim in found else next(left) for dim in range(len(asked.shapes[0])))
        return (Piece(0, places, tuple(conditions)),)


def broadcast_at(at: At, shape: Shape) -> At:
    """The place in an operand that broadcasts to the shape in which the place is."""
    own = at[len(at) - len(shape) :]
    return tuple(
        number_place((0,) * len(size)) if is_one(size) else each for each, size in zip(own, shape, strict=True)
    )


def _with(at: At, dim: int, place: Place) -> At:
    return (*at[:dim], place, *at[dim + 1 :])


def _reshaped(at: At, shape: Shape, inner: Shape, variants: int) -> At:
    """The place in `inner` of an element of `shape`, block by block of dimensions with the same number of elements."""
    found: list[Place] = []
    first, begun = 0, 0
    while begun < len(inner):
        stop, end = first, begun + 1
        ours, theirs = _sizes(shape[first:stop], variants), _sizes(inner[begun:end], variants)
        while not same(ours, theirs):
            if all(a <= b for a, b in zip(ours, theirs, strict=True)) and stop < len(shape):
                stop += 1
            elif end < len(inner):
                end += 1
            elif stop < len(shape):
                stop += 1
            else:
                break
            ours, theirs = _sizes(shape[first:stop], variants), _sizes(inner[begun:end], variants)
        block = linear(at[first:stop], shape[first:stop], variants)
        found += digits(block, inner[begun:end])
        first, begun = stop, end
    return tuple(found)


def _sizes(shape: Shape, variants: int) -> Size:
    return product(shape) or (1,) * variants
