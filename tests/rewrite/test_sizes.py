from __future__ import annotations

from types import SimpleNamespace

import pytest

from mtmc.rewrite.graph import Tensor, Varying
from mtmc.rewrite.sizes import NoExpression, Scope
from tests.rewrite.interpreting import interpret_ways

X = Tensor(((64, 8, 5), (32, 12, 7), (6, 6, 6)), "float32", True)  # x is [64, 32, 6] at the first variant
SCOPE = Scope((("x", X),), {"self.heads": (4, 2, 3), "self.scale": (0.25, 0.5, 0.125)})


def test_a_dimension_is_preferred_to_a_constant() -> None:
    assert SCOPE.size((32, 12, 7)) == "x.shape[1]"
    assert SCOPE.size((6, 6, 6)) == "x.shape[2]"
    assert SCOPE.size((7, 7, 7)) == "7"


def test_products_quotients_and_numbers_of_the_module() -> None:
    assert SCOPE.size((4, 2, 3)) == "self.heads"
    assert SCOPE.size((64 * 32, 96, 35)) == "x.shape[0] * x.shape[1]"
    assert SCOPE.size((64 * 6, 48, 30)) == "x.shape[0] * x.shape[2]"
    assert SCOPE.size((64 * 32 * 6, 8 * 12 * 6, 5 * 7 * 6)) == "x.numel()"
    even = Scope((("x", Tensor(((64, 8), (32, 12)), "float32", True)),), {"self.heads": (4, 2)})
    assert even.size((16, 4)) == "x.shape[0] // self.heads"
    assert even.size((64 * 4, 16)) == "x.shape[0] * self.heads"


def test_what_is_put_together_of_two_expressions() -> None:
    """Groups repeated, a concatenation along a dimension, five tensors stacked; two variants prove nothing."""
    assert SCOPE.size((64 * 32 * 4, 96 * 2, 35 * 3)) == "x.shape[0] * (x.shape[1] * self.heads)"
    assert SCOPE.size((64 + 32, 20, 12)) == "x.shape[0] + x.shape[1]"
    assert SCOPE.size((5 * 64, 40, 25)) == "5 * x.shape[0]"
    volumes = Scope((("x", Tensor(((8, 2, 1), (32, 32, 32), (32, 9, 7), (32, 9, 7), (32, 9, 7)), "float32", True)),))
    assert volumes.size((8 * 32**3, 8 * 9**3, 8 * 7**3)) == "8 * x.shape[2] * x.shape[3] * x.shape[4]"
    few = Scope((("x", Tensor(((64, 8), (32, 12)), "float32", True)),))
    for size in ((64 + 32, 20), (5 * 64, 40), (5 * 64 * 32, 5 * 96)):
        with pytest.raises(NoExpression):
            few.size(size)


def test_two_values_prove_a_multiple_of_a_dimension_where_other_sizes_change() -> None:
    """A batch of two or three, as live modules have it: rows of 32 groups, of 10 heads; not what grows otherwise."""
    images = Tensor(((2, 2, 2, 3), (640,) * 4, (32, 4, 5, 7), (32, 4, 5, 3)), "bfloat16", True)
    scope = Scope((("x", images),))
    assert scope.size((64, 64, 64, 96)) == "32 * x.shape[0]"
    assert scope.size((20, 20, 20, 30)) == "10 * x.shape[0]"
    for size in ((64, 64, 64, 128), (40, 40, 40, 82), (64, 64, 80, 96)):
        with pytest.raises(NoExpression):
            Scope((("x", Tensor((images.shape[0], images.shape[2]), "bfloat16", True)),)).size(size)
    alone = Scope((("x", Tensor(((2, 2, 2, 3), (640,) * 4), "bfloat16", True)),))  # nothing else varies: no proof
    with pytest.raises(NoExpression):
        alone.size((64, 64, 64, 96))


def test_pairs_of_a_dimension() -> None:
    assert SCOPE.size((64 * 63 // 2, 28, 10)) == "x.shape[0] * (x.shape[0] - 1) // 2"


def test_what_no_simple_expression_gives_is_asked_last() -> None:
    asked = []

    def exact(values: tuple[float, ...]) -> str | None:
        asked.append(values)
        return "-x.shape[0] % 16" if values == (0, 8, 11) else None

    scope = Scope((("x", X),), {}, exact)
    assert scope.size((0, 8, 11)) == "-x.shape[0] % 16"
    assert scope.size((64, 8, 5)) == "x.shape[0]"
    with pytest.raises(NoExpression):
        scope.number(Varying((0.1, 0.7, 0.31)))
    assert asked == [(0, 8, 11), (0.1, 0.7, 0.31)]


def test_the_opposite_of_what_can_be_expressed() -> None:
    assert SCOPE.size((-4, -2, -3)) == "-self.heads"
    assert SCOPE.size((-65, -9, -6)) == "-(x.shape[0] + 1)"


def test_a_dimension_and_so_much_more_comes_last_of_all() -> None:
    assert SCOPE.size((81, 25, 22)) == "x.shape[0] + 17"
    assert SCOPE.size((28, 8, 3)) == "x.shape[1] - 4"
    asked = Scope((("x", X),), exact=lambda values: "asked")
    assert asked.size((81, 25, 22)) == "asked"


def test_the_larger_and_the_smaller_one_of_two_dimensions() -> None:
    assert SCOPE.size((64, 12, 7)) == "max(x.shape[0], x.shape[1])"
    assert SCOPE.size((32, 8, 5)) == "min(x.shape[0], x.shape[1])"
    scaled = Varying(tuple(0.2 * value**0.5 for value in (64, 12, 7)))
    assert SCOPE.number(scaled) == "0.2 * (max(x.shape[0], x.shape[1])) ** 0.5"
    one_larger = Scope((("x", Tensor(((64, 18, 15), (32, 12, 7)), "float32", True)),))
    two = Scope((("x", Tensor(((64, 8), (32, 12)), "float32", True)),))
    for scope, size in ((one_larger, (64, 12, 15)), (two, (64, 13))):
        with pytest.raises(NoExpression):
            scope.size(size)


BOTH_SIDES = """
import torch
from torch import nn

rows, columns = 64, 128
VARIANTS = {{
    "small": {{"rows": 24, "columns": 12}},
    "odd1": {{"rows": 5, "columns": 9}},
    "odd2": {{"rows": 19, "columns": 7}},
}}


class Model(nn.Module):
    def forward(self, x):
        return {result}


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
"""
RESULTS = {
    "scaled": "torch.tanh(x) * (0.2 * max(x.shape) ** 0.5)",
    "divided": "(x + 1) / min(x.shape)",
    "cut_off": "torch.cat((x.sum(1), x.sum(0)))[: max(x.shape)] * 2",
    "of_a_product": "(x @ x.T) * min(x.shape) ** -0.5 + 1",
}


def test_versions_are_right_whichever_dimension_is_larger() -> None:
    sources = {name: BOTH_SIDES.format(result=result) for name, result in RESULTS.items()}
    assert interpret_ways(sources, [["lower"], ["fuse", "lower"]]) == dict.fromkeys(sources)


def test_one_and_the_empty_product() -> None:
    assert SCOPE.size(()) == "1"
    assert SCOPE.size((1, 1, 1)) == "1"


def test_scalars_that_follow_from_sizes() -> None:
    assert SCOPE.number(Varying((0.25, 0.5, 0.125))) == "self.scale"
    assert SCOPE.number(Varying((64**-0.5, 8**-0.5, 5**-0.5))) == "(x.shape[0]) ** -0.5"
    assert SCOPE.number(Varying((32**0.5, 12**0.5, 7**0.5))) == "(x.shape[1]) ** 0.5"


def test_a_constant_times_a_function_of_a_size_comes_last() -> None:
    rate = -9.210340371976184
    halves = Scope((("x", Tensor(((64, 8, 10), (32, 12, 7)), "float32", True)),), {"self.width": (64, 8, 10)})
    for values, text in {
        tuple(rate / size for size in (64, 8, 10)): f"{rate} / (x.shape[0])",
        tuple(rate / (size // 2 - 1) for size in (64, 8, 10)): f"{rate} / (x.shape[0] // 2 - 1)",
        tuple(0.3 * size**0.5 for size in (32, 12, 7)): "0.3 * (x.shape[1]) ** 0.5",
    }.items():
        found = halves.number(Varying(values))
        assert found == text
        for at, value in enumerate(values):
            x = SimpleNamespace(shape=[(64, 8, 10)[at], (32, 12, 7)[at]])
            assert eval(found, {"x": x}) == pytest.approx(value, rel=1e-15)


def test_two_values_are_no_evidence_of_a_constant() -> None:
    two = Scope((("x", Tensor(((64, 8), (32, 12)), "float32", True)),))
    with pytest.raises(NoExpression):
        two.number(Varying((0.7 / 64, 0.7 / 8)))


def test_what_cannot_be_expressed_is_said() -> None:
    with pytest.raises(NoExpression, match="101"):
        SCOPE.size((101, 3, 77))
    with pytest.raises(NoExpression):
        SCOPE.number(Varying((0.1, 0.7, 0.31)))
