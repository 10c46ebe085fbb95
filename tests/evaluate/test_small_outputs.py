"""What many small tensors are asked together is what each is asked by itself."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mtmc.evaluate.check.candidate import Answer
from mtmc.evaluate.check.judge import judge
from mtmc.evaluate.reference.bounds import all_calibrated, calibrated
from mtmc.evaluate.reference.compare import Calibrated, Expected, Precision, check_output
from mtmc.evaluate.reference.distance import all_finite, distance, distances, peak_of, peaks_of
from mtmc.evaluate.reference.expected_outputs import ExpectedOutputs
from mtmc.evaluate.reference.side_by_side import SMALL, side_by_side
from mtmc.evaluate.reference.small_outputs import right_ones
from mtmc.task.tolerance import Tolerance

SHAPES = ((64,), (3, 8), (64,), (3, 8), (64,), (24,), (), (), (0,), (0,), (2, SMALL), (2, SMALL), (5,))
SPECIAL = (math.nan, math.inf, -math.inf, 0.0, 1e30, -0.0)


def values(seed: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in SHAPES]


def expected(value: torch.Tensor, moved: float | None = None, **named: Any) -> Expected:
    """Of a reference that is off by a few roundings."""
    oracle = value.double() * (1 + 3e-8)
    move = None if moved is None else torch.full_like(oracle, moved)
    return Expected(value, oracle, oracle * (1 + 4e-8), moved=move, **named)


class Launches(TorchDispatchMode):
    """Counts ops that are more than another view."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += not any(each.alias_info and not each.alias_info.is_write for each in func._schema.returns)
        return func(*args, **(kwargs or {}))


def test_rows_are_the_small_ones_that_have_their_like() -> None:
    items = [(each, each + 1) for each in values(1)]
    found = {at: rows for positions, rows in side_by_side(items) for at in positions}
    assert sorted(found) == [0, 1, 2, 3, 4, 5, 6, 7], (
        "two of (2, SMALL) are too large, (0,) has none, (5,) no other one"
    )
    kinds = ["even" if at % 2 == 0 else "odd" for at in range(len(items))]
    assert all(len({kinds[at] for at in positions}) == 1 for positions, _ in side_by_side(items, kinds))
    wide = [(each, each.double() if at == 0 else each) for at, each in enumerate(values(1))]
    assert all(0 not in positions for positions, _ in side_by_side(wide))
    for positions, (a, b) in side_by_side(items):
        for row, at in enumerate(positions):
            assert torch.equal(a[row], items[at][0].reshape(-1)) and torch.equal(b[row], items[at][1].reshape(-1))


@pytest.mark.parametrize("special", SPECIAL)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float8_e4m3fn])
def test_distances_are_each_one_s_own(special: float, dtype: torch.dtype) -> None:
    a, b = values(1, torch.float64), values(2, torch.float64)
    a[0][3] = b[1][1, 1] = a[6][()] = special
    a, b = ([each.to(dtype) for each in many] for many in (a, b))
    for one, other, mine in zip(
        distances(list(zip(a, b, strict=True))[:8], 0.1), zip(a, b, strict=True), a, strict=False
    ):
        alone = distance(*other, 0.1)
        assert (one.error, one.largest, one.excess) == pytest.approx(
            (alone.error, alone.largest, alone.excess), rel=1e-12
        )
        assert mine is other[0]
    if dtype != torch.float8_e4m3fn:
        assert peaks_of(a[:8]) == [peak_of(each) for each in a[:8]]
    finite = [bool(torch.isfinite(each.float()).all()) for each in a]
    assert all_finite(a) == all(finite) and all_finite([each for each, f in zip(a, finite, strict=True) if f])
    assert all(all_finite([each]) == f for each, f in zip(a, finite, strict=True))


@pytest.mark.parametrize("tolerance", [Tolerance(), Tolerance(atol=1e-3, rtol=1e-2), Tolerance(atol=0.0, rtol=0.0)])
def test_precisions_are_each_one_s_own(tolerance: Tolerance) -> None:
    leaves = [(v, o * (1 + 1e-7), o * (1 + 1e-5)) for v in values(3) if v.numel() for o in [v.double()]]
    leaves += [(v.bfloat16(), o, p) for v, o, p in leaves[:5]]
    for found, leaf in zip(all_calibrated(leaves, tolerance), leaves, strict=True):
        alone = calibrated(*leaf, tolerance)
        assert vars(found) == pytest.approx(vars(alone), rel=1e-9)
    assert all_calibrated([]) == []


def wrong_ones(value: torch.Tensor) -> list[torch.Tensor]:
    """A right answer, and others."""
    one = value.clone().reshape(-1)
    one[-1] += 1.0
    return [
        value.clone(),
        value * (1 + 1e-7),
        one.reshape(value.shape),
        value.half().float(),
        torch.where(value == value.amax(), math.nan, value),
        torch.where(value == value.amax(), math.inf, value),
        torch.zeros_like(value),
        value + 5e-5,
        value.double(),
        value.reshape(-1)[:1].clone(),
    ]


@pytest.mark.parametrize("moved", [None, 0.0, 1e-3])
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("kind", ["oracle", "precise", "unknown"])
def test_what_passes_together_is_what_passes_alone(moved: float | None, exact: bool, kind: str) -> None:
    pairs = []
    for value in [each for each in values(4) if each.numel()]:
        want: Expected | Calibrated = expected(value, moved, exact=exact)
        if kind != "oracle":
            want = Calibrated(value, Precision(1e-7, 1e-7) if kind == "precise" else None)
        pairs += [(got, want) for got in wrong_ones(value)]
    right, passed = right_ones(pairs), 0
    for at, (got, want) in enumerate(pairs):
        error, mismatch = check_output("it", got, want)
        small = want.value.numel() <= SMALL
        if at in right:
            assert mismatch is None and right[at] == pytest.approx(error, rel=1e-9, abs=1e-300) and small
            passed += 1
    assert passed >= 18, "or nothing is told together"


def test_what_stands_beside_many_right_ones_is_seen_and_named() -> None:
    """Any of 60 buffers that is wrong, of numbers or of integers."""
    count = 60
    state = {f"norm{at}.kept": expected(torch.randn(16) + 1) for at in range(count)}
    state |= {f"norm{at}.seen": Expected(*[torch.tensor(at)] * 3) for at in range(count)}
    out = expected(torch.randn(4, 8))
    wanted = ExpectedOutputs([], [out], "*", [], left_state=state)
    honest = [each.value.clone() for each in state.values()]
    assert judge(Answer([out.value.clone()], "*", [], [], state=list(honest)), wanted, "here") == (
        pytest.approx(3e-8, rel=0.1),
        None,
    )
    for wrong in (0, 17, count - 1, count, count + 5, 2 * count - 1):
        got: list[Any] = list(honest)
        got[wrong] = got[wrong] + 1
        _, found = judge(Answer([out.value.clone()], "*", [], [], state=got), wanted, "here")
        assert found is not None and repr(list(state)[wrong]) in found.message and found.kind == "WrongValues"
        got[wrong] = "a string"
        _, found = judge(Answer([out.value.clone()], "*", [], [], state=got), wanted, "here")
        assert found is not None and found.kind == "Type"


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.uint8, torch.uint16, torch.complex64])
def test_numbers_that_are_not_floating_are_the_reference_s(dtype: torch.dtype) -> None:
    wants = [Expected(*[torch.tensor([at % 2, 1, 0]).to(dtype)] * 3) for at in range(4)]
    pairs = [(want.value.clone(), want) for want in wants]
    pairs[2] = (torch.tensor([1, 1, 1]).to(dtype), wants[2])
    assert set(right_ones(pairs)) == (set() if dtype.is_complex else {0, 1, 3})
    assert [check_output("it", *pair)[1] is None for pair in pairs] == [True, True, False, True]


def test_strides_of_an_answer_make_no_difference() -> None:
    value = torch.randn(6, 4)
    want = expected(value)
    turned = value.t().contiguous().t()
    assert turned.stride() != value.stride()
    other = replace(want, value=turned)
    assert set(right_ones([(turned, want), (value, want), (value, other), (value.flip(0), want)])) == {0, 1, 2}


def test_hundreds_of_small_tensors_take_no_more_launches_than_two() -> None:
    def launches(count: int) -> int:
        state = {f"{at}": expected(torch.randn(32)) for at in range(count)}
        wanted = ExpectedOutputs([], [], "()", [], left_state=state)
        answer = Answer([], "()", [], [], state=[each.value for each in state.values()])
        with Launches() as seen:
            assert judge(answer, wanted, "here")[1] is None and wanted.tells and wanted.finite
        return seen.count

    assert launches(300) == launches(2) < 120
    state = {f"{at}": Calibrated(torch.randn(32), None) for at in range(300)}
    answer = Answer([], "()", [], [], state=[each.value for each in state.values()])
    with Launches() as seen:
        assert judge(answer, ExpectedOutputs([], [], "()", [], left_state=state), "here")[1] is None
    assert seen.count < 30
