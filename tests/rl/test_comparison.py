"""Comparisons of searches on the same trees, against figures computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from mtmc.errors import ConfigError
from mtmc.rl.comparison import band, holm, paired, sign_test, standing, values_at, values_within
from mtmc.rl.replays import Curve


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


CURVES = [
    [Curve((0.0, 1.0, 1.0, 3.0), 3.0, (0, 2, 1, 3)), Curve((0.0, 0.0, 2.0), 3.0, (0, 1, 4))],
    [Curve((0.0, 0.5), 0.5, (0, 1)), Curve((0.0,), 0.5, (0,))],
]
"""Two trees, two seeds."""


def test_values_after_evaluations() -> None:
    assert values_at(CURVES, 1).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert values_at(CURVES, 3).tolist() == [[1.0, 2.0], [0.5, 0.0]]
    assert values_at(CURVES, 99).tolist() == [[3.0, 2.0], [0.5, 0.0]]


def test_values_within_what_is_spent() -> None:
    costs = [[1.0, 2.0, 4.0, 8.0, 16.0], [1.0, 1.0]]  # of each version
    assert values_within(CURVES, costs, 0.5).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert values_within(CURVES, costs, 5.0).tolist() == [[1.0, 0.0], [0.5, 0.0]]  # 1 + 4, 1 + 2, 1 + 1, 1
    assert values_within(CURVES, costs, 15.0).tolist() == [[3.0, 0.0], [0.5, 0.0]]
    assert values_within(CURVES, costs, 19.0).tolist() == [[3.0, 2.0], [0.5, 0.0]]


def test_means_and_median() -> None:
    found = standing(np.asarray([[0.0, 2.0], [1.0, 1.0], [4.0, 4.0]]), rng())
    assert found.geometric_mean == pytest.approx(2**2) and found.median == pytest.approx(2**1)
    assert found.mean == pytest.approx((1 + 4 + 2 + 2 + 16 + 16) / 6)
    assert 2**1 <= found.low < found.geometric_mean < found.high <= 2**4


def test_pairs_are_of_the_same_tree() -> None:
    base = np.asarray([[0.0], [5.0], [9.0], [3.0]])
    found = paired(base + np.asarray([[1.0], [1.0], [1.0], [0.0]]), base, rng())
    assert (found.won, found.tied, found.lost) == (3, 1, 0)
    assert found.ratio == pytest.approx(2**0.75) and found.p == pytest.approx(2 / 8)
    assert 1.0 <= found.low < found.ratio < found.high <= 2.0  # trees differ far more than that, and it does not matter
    same = paired(base, base, rng())
    assert (same.ratio, same.low, same.high, same.p) == (1.0, 1.0, 1.0, 1.0)
    with pytest.raises(ConfigError, match="cannot be paired"):
        paired(base, base[:2], rng())


def test_signs() -> None:
    assert sign_test(np.asarray([3.0, 1.0]), rng()) == pytest.approx(2 / 4)
    assert sign_test(np.asarray([3.0, -1.0]), rng()) == pytest.approx(4 / 4)
    assert sign_test(np.asarray([1.0] * 5 + [-1.0]), rng()) == pytest.approx((2 + 2 * 6) / 64)
    assert sign_test(np.zeros(3), rng()) == 1.0
    drawn = sign_test(np.asarray([1.0] * 12 + [-1.0, 2.0]), rng())
    exact = sign_test(np.asarray([1.0] * 9 + [-1.0]), rng())
    assert drawn < 0.01 < exact < 0.05


def test_false_findings_are_as_rare_as_p_says() -> None:
    source = rng()
    ps = [sign_test(source.normal(size=8), source) for _ in range(300)]
    assert 0.02 <= np.mean([p <= 0.05 for p in ps]) <= 0.09


def test_many_tests_are_corrected() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.5]) == [1.0, 1.0] and holm([]) == []


def test_a_band_goes_around_its_line() -> None:
    found = band([values_at(CURVES, at) for at in (1, 4)], rng())
    assert found[0] == (1.0, 1.0, 1.0) and found[1][0] == pytest.approx(2**1.375)
    assert found[1][1] <= found[1][0] <= found[1][2]
    with pytest.raises(ConfigError, match="nothing to compare"):
        standing(np.zeros((0, 2)), rng())
