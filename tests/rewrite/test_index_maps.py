"""Places and index maps: chains of them against numpy, element by element, and texts that are worked out by hand."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtmc.rewrite.graph import Shape, Size
from mtmc.rewrite.index_maps import (
    Asked,
    At,
    Condition,
    Flipped,
    IndexMap,
    Padded,
    Permuted,
    Repeated,
    Reshaped,
    Rolled,
    Selected,
    Sliced,
)
from mtmc.rewrite.places import Digit, Place, digits, linear, one

VARIANTS = 2
TL = SimpleNamespace(abs=abs, minimum=min, maximum=max)
"""What texts call of Triton's language."""


@dataclass
class Plain:
    """Writes numbers as they are at one variant."""

    variant: int

    def number(self, number: Size) -> str:
        assert min(number) >= 0
        return str(number[self.variant])

    def digit(self, text: str) -> str:
        return f"({text})"


def sizes(*numbers: int) -> Shape:
    """The same sizes at both variants, but for the first dimension, which is one larger at the second."""
    return ((numbers[0], numbers[0] + 1), *((number, number) for number in numbers[1:]))


def home(shape: Shape) -> At:
    """The place in a shape of the element with the flat index `i`."""
    count = tuple(int(np.prod([size[variant] for size in shape])) for variant in range(VARIANTS))
    return digits(one(Digit("i", (1,) * VARIANTS, count, True)), shape)


def pulled(index: IndexMap, at: At, shape: Shape) -> At:
    (piece,) = index.pieces(Asked(at, (shape,), VARIANTS, lambda *_: pytest.fail("nothing is loaded")))
    assert all(condition.always for condition in piece.conditions)
    return piece.at


def flat(at: At, shape: Shape, variant: int, count: int) -> list[int]:
    """The flat index in `shape` of each element of the result."""
    text = linear(at, shape, VARIANTS).text(Plain(variant))
    return [eval(text, {"i": i, "tl": TL}) for i in range(count)]  # texts are Python as well as Triton


def at_variant(shape: Shape, variant: int) -> tuple[int, ...]:
    return tuple(size[variant] for size in shape)


@dataclass(frozen=True)
class Step:
    """A map, the shape that it gives, and the same in numpy at one variant."""

    index: IndexMap
    shape: Shape

    def of(self, array: np.ndarray, variant: int) -> np.ndarray:
        """What numpy makes of an array."""
        index = self.index
        if isinstance(index, Permuted):
            return array.transpose(index.dims)
        if isinstance(index, Reshaped):
            return array.reshape(at_variant(index.shape, variant))
        if isinstance(index, Flipped):
            return np.flip(array, index.dims)
        if isinstance(index, Rolled):
            return np.roll(array, [shift[variant] for shift in index.shifts], index.dims)
        if isinstance(index, Sliced):
            stop = index.start[variant] + self.shape[index.dim][variant] * index.step[variant]
            return array.take(range(index.start[variant], stop, index.step[variant]), index.dim)
        if isinstance(index, Selected):
            return array.take(index.position[variant], index.dim)
        if isinstance(index, Repeated):
            if index.each:
                return array.repeat(index.times[variant], index.dim)
            return np.concatenate([array] * index.times[variant], index.dim)
        assert isinstance(index, Padded)
        return np.pad(array, [(each[variant], 1) for each in index.before], {"circular": "wrap"}.get(index.how, "edge"))


@st.composite
def steps(draw: st.DrawFn, shape: Shape) -> Step:
    """A map of a shape."""
    rank = len(shape)
    dim = draw(st.integers(0, rank - 1))
    which = draw(st.sampled_from(["permute", "reshape", "flip", "roll", "slice", "select", "repeat", "pad", "split"]))
    if which == "permute":
        dims = tuple(draw(st.permutations(range(rank))))
        return Step(Permuted(dims), tuple(shape[each] for each in dims))
    if which == "reshape" and rank > 1:
        at = draw(st.integers(0, rank - 2))
        both = tuple(a * b for a, b in zip(shape[at], shape[at + 1], strict=True))
        whole = (*shape[:at], both, *shape[at + 2 :])
        return Step(Reshaped(whole), whole)
    if which == "split" and rank < 5 and all(size % 2 == 0 for size in shape[dim]):
        parts = (*shape[:dim], tuple(size // 2 for size in shape[dim]), (2, 2), *shape[dim + 1 :])
        return Step(Reshaped(parts), parts)
    if which == "roll":
        return Step(Rolled((dim,), ((draw(st.integers(-3, 3)),) * VARIANTS,)), shape)
    if which == "slice" and min(shape[dim]) > 2:
        step = draw(st.integers(1, 2))
        left = tuple((size - 1 + step - 1) // step for size in shape[dim])
        return Step(Sliced(dim, (1, 1), (step, step)), (*shape[:dim], left, *shape[dim + 1 :]))
    if which == "select" and rank > 1:
        position = tuple(size - 1 for size in shape[dim])
        return Step(Selected(dim, position), (*shape[:dim], *shape[dim + 1 :]))
    if which == "repeat":
        wide = tuple(2 * size for size in shape[dim])
        index = Repeated(dim, (2, 2), each=draw(st.booleans()))
        return Step(index, (*shape[:dim], wide, *shape[dim + 1 :]))
    if which == "pad" and min(min(size) for size in shape) > 1:
        wide = tuple(tuple(each + 2 for each in size) for size in shape)
        index = Padded(tuple((1,) * VARIANTS for _ in shape), draw(st.sampled_from(["circular", "replicate"])))
        return Step(index, wide)
    return Step(Flipped((dim,)), shape)


@st.composite
def chains(draw: st.DrawFn) -> tuple[Shape, list[Step]]:
    """A shape and maps one after the other."""
    shape = sizes(*draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    found, last = [], shape
    for _ in range(draw(st.integers(1, 5))):
        if np.prod(at_variant(last, 1)) > 400:
            break
        found.append(draw(steps(last)))
        last = found[-1].shape
    return shape, found


@settings(max_examples=300, deadline=None, derandomize=True)
@given(chains())
def test_chains_of_maps_are_those_of_numpy(chain: tuple[Shape, list[Step]]) -> None:
    shape, found = chain
    shapes = [shape, *(step.shape for step in found)]
    at = home(shapes[-1])
    for step, inner in reversed(list(zip(found, shapes[:-1], strict=True))):
        at = pulled(step.index, at, inner)
    for variant in range(VARIANTS):
        array = np.arange(int(np.prod(at_variant(shape, variant)))).reshape(at_variant(shape, variant))
        for step in found:
            array = step.of(array, variant)
        assert flat(at, shape, variant, array.size) == array.flatten().tolist()


def text(place: Place) -> str:
    return place.text(Plain(0))


def test_what_is_merged_and_split_again_is_the_index_itself() -> None:
    shape = sizes(3, 4, 6)
    assert text(linear(home(shape), shape, VARIANTS)) == "i"
    whole = sizes(3, 24)
    at = pulled(Reshaped(whole), home(whole), shape)
    assert [text(place) for place in at] == ["(i // 24)", "(i // 6 % 4)", "(i % 6)"]
    assert text(linear(at, shape, VARIANTS)) == "i"


def test_a_slice_adds_its_start() -> None:
    shape = sizes(3, 8)
    at = pulled(Sliced(1, (4, 4), (1, 1)), home(sizes(3, 4)), shape)
    assert text(linear(at, shape, VARIANTS)) == "(i // 4) * 8 + (i % 4) + 4"


def test_a_pad_that_only_takes_away_has_no_condition() -> None:
    (piece,) = Padded(((-1, -1),)).pieces(Asked(home(sizes(3)), (sizes(5),), VARIANTS, lambda *_: ""))
    assert piece.conditions == () and text(piece.at[0]) == "i + 1"


def test_a_pad_says_where_its_operand_is() -> None:
    (piece,) = Padded(((2, 2),)).pieces(Asked(home(sizes(8)), (sizes(5),), VARIANTS, lambda *_: ""))
    assert piece.conditions == (Condition(home(sizes(8))[0].plus_number((-2, -2)), (0, 0), (5, 6)),)
