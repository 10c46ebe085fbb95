"""places: where an element lies along a dimension, as a sum of parts of the indices that a kernel runs over.

A kernel runs over flat indices: all elements, or rows and columns. A part of such an index is one of its digits in mixed
radix, `index // below % count`. Slices, permutations, reshapes and their like make sums of digits of digits, and most of
them cancel: what is merged and split again is the digit that it was.
Sizes are known at every exported variant (see `graph`), and so is what is said of them here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from mtmc.rewrite.graph import Size, product
from mtmc.rewrite.rounded import Rounded, parted


class Namer(Protocol):
    """How a kernel writes what places are made of."""

    def number(self, number: Size) -> str:
        """The text of a whole number that is at least 0, by its value at every variant. Raises: NotCovered for others."""
        ...

    def digit(self, text: str) -> str:
        """What to write for a digit: the text, or the variable that it has been given."""
        ...


@dataclass(frozen=True)
class Digit:
    """index // below % count. top: whether nothing stands above it, so that nothing has to be cut off."""

    index: str
    below: Size
    count: Size
    top: bool


@dataclass(frozen=True)
class Variable:
    """A whole number that stands in a variable of the kernel: an index that was loaded, of at most `count` either way."""

    name: str
    count: Size


@dataclass(frozen=True)
class Part:
    """A quotient ("//") or a rest ("%") of a place that is no digit of anything."""

    place: Place
    sign: str
    by: Size
    count: Size


@dataclass(frozen=True)
class Mirrored:
    """A place of a padded dimension, `before` elements in: mirrored at the ends ("reflect"), or held there ("replicate")."""

    place: Place
    how: str
    before: Size
    count: Size


Atom = Digit | Variable | Part | Mirrored | Rounded


@dataclass(frozen=True)
class Place:
    """A sum: `more` and each atom times its factor. count: where it is used, it is at least 0 and below that; () if that
    follows from the sum alone."""

    terms: tuple[tuple[Atom, Size], ...]
    more: Size
    count: Size = ()

    @cached_property
    def least(self) -> Size:
        """The smallest value, at every variant."""
        return (0,) * len(self.more) if self.count else self._end(min)

    @cached_property
    def most(self) -> Size:
        """The largest value."""
        return tuple(count - 1 for count in self.count) if self.count else self._end(max)

    def _end(self, of: Callable[[int, int], int]) -> Size:
        ends = self.more
        for atom, factor in self.terms:
            if isinstance(atom, Rounded):
                ends = tuple(end + each for end, each in zip(ends, product((factor, atom.values)), strict=True))
                continue
            low = -1 if isinstance(atom, Variable) else 0
            ends = tuple(
                end + of(low * times * count, times * (count - 1))
                for end, times, count in zip(ends, factor, atom.count, strict=True)
            )
        return ends

    @cached_property
    def indices(self) -> frozenset[str]:
        """The running indices and variables that it hangs on."""
        found = frozenset[str]()
        for atom, _ in self.terms:
            if isinstance(atom, Digit):
                found |= {atom.index}
            elif not isinstance(atom, Rounded):
                found |= {atom.name} if isinstance(atom, Variable) else atom.place.indices
        return found

    def fills(self, count: Size) -> bool:
        """Whether it goes from 0 to a number less 1 at every variant: a dimension of that size has it, and not by chance."""
        return not any(self.least) and self.most == tuple(each - 1 for each in count)

    def below(self, count: Size) -> Place:
        """The same place, where it is known to be at least 0 and below a number."""
        if all(low >= 0 and high < limit for low, high, limit in zip(self.least, self.most, count, strict=True)):
            return self
        return Place(self.terms, self.more, count)

    def plus(self, other: Place) -> Place:
        """The sum of two places; of nothing and a place that place itself, with what is known of it."""
        if not self.terms and not any(self.more):
            return other
        more = tuple(a + b for a, b in zip(self.more, other.more, strict=True))
        return Place(_merged((*self.terms, *other.terms)), more)

    def plus_number(self, number: Size) -> Place:
        """The place so many elements on."""
        return Place(self.terms, tuple(a + b for a, b in zip(self.more, number, strict=True)))

    def times(self, factor: Size) -> Place:
        """The place times a number."""
        terms = tuple((atom, product((own, factor))) for atom, own in self.terms)
        return Place(() if not any(factor) else terms, product((self.more, factor)))

    def quotient(self, by: Size) -> Place:
        """The place // a number above 0."""
        if all(number == 1 for number in by):
            return self
        whole, rest = self._split(by)
        if _fits(rest, by):
            return whole
        digit = _digit_of(rest)
        if digit is not None and all(count % number == 0 for count, number in zip(digit.count, by, strict=True)):
            upper = Digit(digit.index, product((digit.below, by)), _divided(digit.count, by), digit.top)
            return whole.plus(one(upper))
        count = tuple(most // number + 1 for most, number in zip(rest.most, by, strict=True))
        return whole.plus(one(Part(rest, "//", by, count)))

    def rest(self, by: Size) -> Place:
        """The place % a number above 0."""
        if all(number == 1 for number in by):
            return number_place((0,) * len(by))
        _, rest = self._split(by)
        if _fits(rest, by):
            return rest
        digit = _digit_of(rest)
        if digit is not None and all(count % number == 0 for count, number in zip(digit.count, by, strict=True)):
            return one(Digit(digit.index, digit.below, by, digit.top and digit.count == by))
        return one(Part(rest, "%", by, by))

    def _split(self, by: Size) -> tuple[Place, Place]:
        """(a, b) with the place = a * by + b, as much as the factors tell, and b at least 0: Triton's quotients of what is
        below 0 are rounded towards 0."""
        if self.count and all(count <= number for count, number in zip(self.count, by, strict=True)):
            return number_place((0,) * len(by)), self
        whole = [(atom, factor) for atom, factor in self.terms if _divides(by, factor)]
        left = [(atom, factor) for atom, factor in self.terms if not _divides(by, factor)]
        number = parted(self.more, by)
        if number is not None and min(Place(tuple(left), (0,) * len(by)).least) >= 0:
            (over, sign), (under, _) = number
            ones, none = (1,) * len(by), (0,) * len(by)
            upper = ((atom, _divided(factor, by)) for atom, factor in whole)
            return Place((*upper, (over, (sign,) * len(by))), none), Place((*left, (under, ones)), none)
        low = tuple(more % number for more, number in zip(self.more, by, strict=True))
        least = Place(tuple(left), low, self.count if not whole and low == self.more else ()).least
        low = tuple(more - min(end // number, 0) * number for more, end, number in zip(low, least, by, strict=True))
        more = tuple((a - b) // number for a, b, number in zip(self.more, low, by, strict=True))
        high = Place(tuple((atom, _divided(factor, by)) for atom, factor in whole), more)
        return high, Place(tuple(left), low, self.count if not whole and low == self.more else ())

    def text(self, name: Namer) -> str:
        """The place as text; "0" if it is that."""
        text = " + ".join(_times_text(_atom_text(atom, name), factor, name) for atom, factor in self.terms)
        return signed(text, self.more, name) if any(self.more) else text or "0"


def number_place(number: Size) -> Place:
    """The place with a fixed number."""
    return Place((), number)


def one(atom: Atom) -> Place:
    """The place that an atom is."""
    return Place(((atom, (1,) * len(atom.count)),), (0,) * len(atom.count))


def linear(at: Sequence[Place], shape: Sequence[Size], variants: int) -> Place:
    """The place of an element of a shape in row-major order."""
    found = number_place((0,) * variants)
    for place, size in zip(at, shape, strict=True):
        found = found.times(size).plus(place)
    return found


def signed(text: str, number: Size, name: Namer) -> str:
    """text + number, or text - its opposite."""
    if all(each <= 0 for each in number):
        opposite = name.number(tuple(-each for each in number))
        return f"{text} - {opposite}" if text else f"-{opposite}"
    return f"{text} + {name.number(number)}" if text else name.number(number)


def digits(place: Place, shape: Sequence[Size]) -> tuple[Place, ...]:
    """The places in each dimension of the element of a shape that is `place`-th in row-major order."""
    found: list[Place] = []
    for size in reversed(shape[1:]):
        found.insert(0, place.rest(size))
        place = place.quotient(size)
    if shape and all(each == 1 for each in shape[0]):
        place = number_place((0,) * len(shape[0]))
    return (place, *found) if shape else ()


def _merged(terms: tuple[tuple[Atom, Size], ...]) -> tuple[tuple[Atom, Size], ...]:
    """Equal atoms once, and digits one above the other as the one that they are together."""
    found: dict[Atom, Size] = {}
    for atom, factor in terms:
        before = found.get(atom)
        found[atom] = factor if before is None else tuple(a + b for a, b in zip(before, factor, strict=True))
    found = {atom: factor for atom, factor in found.items() if any(factor) and any(count != 1 for count in atom.count)}
    for upper, factor in found.items():
        for lower, other in found.items():
            both = None if upper == lower else _together(upper, factor, lower, other)
            if both is not None:
                kept = [(atom, own) for atom, own in found.items() if atom not in (upper, lower)]
                return _merged((*kept, *both))
    return tuple(found.items())


def _together(upper: Atom, factor: Size, lower: Atom, other: Size) -> tuple[tuple[Atom, Size], ...] | None:
    """Two neighbouring digits as one, a quotient and its rest as what was divided; None for others."""
    if isinstance(upper, Part) and isinstance(lower, Part):
        halves = upper.sign == "//" and lower.sign == "%" and (upper.place, upper.by) == (lower.place, lower.by)
        whole = halves and factor == product((other, upper.by)) and not any(upper.place.more)
        return upper.place.times(other).terms if whole else None
    if not isinstance(upper, Digit) or not isinstance(lower, Digit) or upper.index != lower.index:
        return None
    if upper.below != product((lower.below, lower.count)) or factor != product((other, lower.count)):
        return None
    return ((Digit(upper.index, lower.below, product((upper.count, lower.count)), upper.top), other),)


def _digit_of(place: Place) -> Digit | None:
    """The digit that a place is, without anything else."""
    if len(place.terms) != 1 or any(place.more):
        return None
    atom, factor = place.terms[0]
    return atom if isinstance(atom, Digit) and all(number == 1 for number in factor) else None


def _fits(place: Place, by: Size) -> bool:
    return all(low >= 0 and high < limit for low, high, limit in zip(place.least, place.most, by, strict=True))


def _divides(by: Size, number: Size) -> bool:
    return all(each % divisor == 0 for each, divisor in zip(number, by, strict=True))


def _divided(number: Size, by: Size) -> Size:
    return tuple(each // divisor for each, divisor in zip(number, by, strict=True))


def _times_text(text: str, factor: Size, name: Namer) -> str:
    if all(each == 1 for each in factor):
        return text
    if all(each < 0 for each in factor):
        return f"(-{_times_text(text, tuple(-each for each in factor), name)})"
    return f"{text} * {name.number(factor)}"


def _atom_text(atom: Atom, name: Namer) -> str:
    if isinstance(atom, Variable):
        return atom.name
    if isinstance(atom, Rounded):
        return atom.text(name.number)
    if isinstance(atom, Digit):
        return _digit_text(atom, name)
    if isinstance(atom, Part):
        return f"(({atom.place.text(name)}) {atom.sign} {name.number(atom.by)})"
    last = f"({name.number(atom.count)} - 1)"
    moved = atom.place.plus_number(tuple(-each for each in atom.before)).text(name)
    if atom.how == "reflect":
        return f"({last} - tl.abs({last} - tl.abs({moved})))"
    return f"tl.minimum(tl.maximum({moved}, 0), {last})"


def _digit_text(digit: Digit, name: Namer) -> str:
    whole = all(each == 1 for each in digit.below)
    if whole and digit.top:
        return digit.index
    text = digit.index if digit.index.isidentifier() else f"({digit.index})"
    text = text if whole else f"{text} // {name.number(digit.below)}"
    return name.digit(text if digit.top else f"{text} % {name.number(digit.count)}")
