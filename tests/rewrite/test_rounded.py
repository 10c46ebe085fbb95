"""Numbers that are rounded to multiples: what kernels work out at shapes at which nothing was exported."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mtmc.rewrite.graph import Size
from mtmc.rewrite.index_maps import Asked, Joined, Reshaped, Sliced
from mtmc.rewrite.places import Digit, Place, one
from mtmc.rewrite.rounded import Rounded
from tests.interpreter import interpreted

ONES = (1, 1)
TL = SimpleNamespace(cdiv=lambda size, by: -(-size // by))
FIRST, OTHER = (16, 7), (4, 3)
"""Sizes that leave the same over by 2 wherever "the reference was exported"."""
AT = {FIRST: 9, OTHER: 6, (2, 2): 2, (8, 8): 8, (24, 15): 17, (12, 11): 14}
"""What they are elsewhere."""


class _Elsewhere:
    """Writes numbers as they are at a shape at which nothing was exported."""

    def number(self, number: Size) -> str:
        return str(AT[number] if len(set(number)) > 1 else number[0])

    def digit(self, text: str) -> str:
        return f"({text})"


def _value(place: Place, i: int) -> int:
    return int(eval(place.text(_Elsewhere()), {"tl": TL, "i": i}))


@pytest.mark.parametrize("before", [FIRST, OTHER])
def test_pairs_behind_a_part_of_any_size(before: Size) -> None:
    """A part of 9, or of 6, and 8 elements in pairs behind it: those of another size tell nothing of it."""
    whole = tuple(a + 8 for a in before)
    column = one(Digit("i", ONES, whole, True))
    parts = Joined(0).pieces(Asked((column,), ((before,), ((8, 8),)), 2, lambda *_: ""))
    (piece,) = Reshaped(((8, 8),)).pieces(Asked(parts[1].at, (((4, 4), (2, 2)),), 2, lambda *_: ""))
    found = [tuple(_value(place, i) for place in piece.at) for i in range(AT[before], AT[whole])]
    assert found == [divmod(i, 2) for i in range(8)]


@pytest.mark.parametrize("start", [FIRST, OTHER])
def test_pairs_from_any_place_on(start: Size) -> None:
    column = one(Digit("i", ONES, (8, 8), True))
    (piece,) = Sliced(0, start, ONES).pieces(Asked((column,), (((40, 40),),), 2, lambda *_: ""))
    pairs = piece.at[0].quotient((2, 2)), piece.at[0].rest((2, 2))
    assert [tuple(_value(each, i) for each in pairs) for i in range(8)] == [divmod(AT[start] + i, 2) for i in range(8)]


def test_numbers_of_other_sizes_are_not_the_same() -> None:
    one, other = Rounded("%", FIRST, (2, 2)), Rounded("%", OTHER, (2, 2))
    assert one.values == other.values == (0, 1)
    assert one != other


_PAIRS = """
import torch
from torch import nn

n, plain, heads, rotated = 12, 16, 4, 8
VARIANTS = {{
    "small": {{"n": 6, "plain": 4, "heads": 2, "rotated": 4}},
    "odd1": {{"n": 7, "plain": 9, "heads": 3, "rotated": 6}},
    "odd2": {{"n": 5, "plain": 7, "heads": 5, "rotated": 2}},
}}


class Model(nn.Module):
    def __init__(self, plain):
        super().__init__()
        self.plain = plain

    def forward(self, x, y):
        even, odd = y.unflatten(-1, (-1, 2)).unbind(-1)
        pairs = torch.stack((even - odd.cos(), even + odd.sin()), -1).flatten(-2)[:, None]
        return {result}


def get_inputs():
    return [torch.randn(n, heads, plain), torch.randn(n, rotated)]


def get_init_inputs():
    return [plain]
"""
REFERENCES = {
    "behind": "torch.cat((x * 2.0, pairs.expand(-1, x.shape[1], -1)), -1)",
    "reversed": "torch.cat((x * 2.0, pairs.expand(-1, x.shape[1], -1)), -1).flip(-1)",
    "between": "torch.cat((x, pairs.expand(-1, x.shape[1], -1), -x), -1)",
    "padded": "torch.nn.functional.pad(pairs, (self.plain, 0)) + x[:, :, :1]",
    "reduced": "torch.cat((x * 2.0, pairs.expand(-1, x.shape[1], -1)), -1).exp().sum(-1)",
}
SIZES = [
    {"n": 3, "plain": plain, "heads": heads, "rotated": rotated}
    for plain, heads, rotated in ((5, 2, 6), (6, 3, 4), (1, 4, 2), (11, 1, 10))
]
"""At none of these was anything exported, and what is odd at those is even here."""


@cache
def found() -> Mapping[str, Any]:
    cases = [
        {"name": name, "source": _PAIRS.format(result=text), "way": ["lower", "fuse"], "constants": SIZES}
        for name, text in REFERENCES.items()
    ]
    answer: Mapping[str, Any] = json.loads(
        interpreted(Path(__file__).with_name("specializing.py"), given=json.dumps(cases))
    )
    return answer


@pytest.mark.parametrize("name", REFERENCES)
def test_kernels_at_other_shapes(name: str) -> None:
    """One kernel where no number is a sum of three: those cannot be written for other shapes."""
    assert found()[name]["wrong"] is None
    assert len(found()[name]["kernels"]) == (2 if name in ("reversed", "between") else 1)
