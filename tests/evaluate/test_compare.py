"""The tolerance rule on numbers that can be checked by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from mtmc.evaluate.reference import blocks as blocks_module
from mtmc.evaluate.reference import compare
from mtmc.evaluate.reference import distance as distance_module
from mtmc.evaluate.reference.blocks import blocks, different, fingerprint, origin, same_bits
from mtmc.evaluate.reference.bounds import calibrated, error_bound
from mtmc.evaluate.reference.calibrating import Calibration
from mtmc.evaluate.reference.compare import Calibrated, Expected, Precision, check_output
from mtmc.evaluate.reference.distance import apart, distance, norm_error, within_tolerance
from mtmc.evaluate.reference.expected_value import FEW_TERMS
from mtmc.evaluate.reference.hard import loosened

EPS = 2.0**-23


def expected(value: torch.Tensor, oracle: torch.Tensor | None = None, rounded: torch.Tensor | None = None) -> Expected:
    exact = value.double() if oracle is None else oracle
    return Expected(value, exact, exact if rounded is None else rounded)


def kind_of(got: torch.Tensor, want: Expected | Calibrated) -> str | None:
    mismatch = check_output("the output", got, want)[1]
    return None if mismatch is None else mismatch.kind


def test_norm_error_by_hand() -> None:
    got, oracle = torch.tensor([3.0, 4.5]).double(), torch.tensor([3.0, 4.0]).double()
    everywhere = torch.tensor([True, True])
    assert norm_error(got, oracle, everywhere) == pytest.approx(0.5 / 5.0)
    assert norm_error(got, oracle, torch.tensor([True, False])) == 0.0
    assert norm_error(got, torch.zeros(2).double(), everywhere) == pytest.approx(math.hypot(3.0, 4.5))


def test_bound_is_four_times_the_larger_error_or_the_dtypes_floor() -> None:
    assert error_bound(torch.float32, 1e-5, 3e-6) == pytest.approx(4e-5)
    assert error_bound(torch.float32, 1e-6, 3e-6) == pytest.approx(1.2e-5)
    assert error_bound(torch.float32, 0.0, 0.0) == pytest.approx(4 * EPS)
    assert error_bound(torch.float16, 1e-5, 0.0) == pytest.approx(2.0**-10)
    assert error_bound(torch.bfloat16, 1e-5, 0.0) == pytest.approx(2.0**-7)


def test_equal_output_passes_with_its_error() -> None:
    value = torch.tensor([1.0, 2.0])
    error, mismatch = check_output(
        "the output", value, expected(value, oracle=torch.tensor([1.0, 2.0 + 2e-7], dtype=torch.float64))
    )
    assert mismatch is None and error == pytest.approx(2e-7 / math.sqrt(5.0), rel=1e-3)


def test_shape_and_dtype() -> None:
    value = torch.ones(2, 3)
    assert kind_of(torch.ones(3, 2), expected(value)) == "Shape"
    assert kind_of(torch.ones(2, 3).double(), expected(value)) == "DType"


def test_wrong_value_is_located() -> None:
    value = torch.arange(12.0).reshape(3, 4)
    got = value.clone()
    got[2, 1] = 7.0
    _, mismatch = check_output("output 1", got, expected(value))
    assert mismatch is not None and mismatch.kind == "WrongValues"
    assert "output 1: 1 of 12 elements" in mismatch.message
    assert "within [2:3, 1:2]" in mismatch.message and "at [2, 1]: 7 instead of 9" in mismatch.message


def test_integers_must_be_equal() -> None:
    value = torch.tensor([5, 6, 7])
    assert kind_of(value.clone(), expected(value, oracle=value)) is None
    assert kind_of(torch.tensor([5, 6, 8]), expected(value, oracle=value)) == "WrongValues"
    assert kind_of(torch.tensor([True]), expected(torch.tensor([False]), oracle=torch.tensor([False]))) == "WrongValues"


def test_zeros_under_the_absolute_tolerance_are_too_imprecise() -> None:
    # The outputs of a softmax over many columns are smaller than KernelBench's absolute tolerance.
    value = torch.softmax(0.3 * torch.randn(4, 50_000), -1)
    assert kind_of(torch.zeros_like(value), expected(value, oracle=value.double())) == "LowPrecision"


def test_rounding_to_tf32_is_too_imprecise() -> None:
    value = torch.randn(1000)
    tf32 = (value.view(torch.int32) & ~0x1FFF).view(torch.float32)
    assert float((tf32 - value).abs().max() / value.abs().max()) < 1e-3
    assert kind_of(value + 1e-5 * (tf32 - value).sign(), expected(value)) == "LowPrecision"
    assert kind_of(value * (1 + 2 * EPS), expected(value)) is None


def test_noise_of_a_cancelled_result_is_measured_by_the_rounding_of_its_inputs() -> None:
    oracle, noise = torch.tensor([1e-9]).double(), torch.tensor([3e-8]).double()
    got, reference = torch.tensor([5e-8]), torch.tensor([1.0001e-9])
    assert kind_of(got, expected(reference, oracle)) == "LowPrecision"
    assert kind_of(got, expected(reference, oracle, rounded=noise)) is None


def test_special_values() -> None:
    nan, inf = float("nan"), float("inf")
    value = torch.tensor([1.0, inf, -inf, nan])
    want = expected(value)
    assert kind_of(value.clone(), want) is None
    assert kind_of(torch.tensor([nan, inf, -inf, nan]), want) == "NaN"
    assert kind_of(torch.tensor([inf, inf, -inf, nan]), want) == "Infinity"
    assert kind_of(torch.tensor([1.0, inf, inf, nan]), want) == "Infinity"
    assert kind_of(torch.tensor([1.0, inf, -inf, 0.0]), want) == "Infinity"


def test_where_the_reference_overflows_and_the_oracle_does_not_anything_goes() -> None:
    want = expected(torch.tensor([1.0, float("inf")]), oracle=torch.tensor([1.0, 1e39], dtype=torch.float64))
    assert kind_of(torch.tensor([1.0, 3.0]), want) is None
    assert kind_of(torch.tensor([1.0, float("inf")]), want) is None
    assert kind_of(torch.tensor([2.0, float("inf")]), want) == "WrongValues"


def test_empty_and_scalar_outputs() -> None:
    assert kind_of(torch.empty(0, 3), expected(torch.empty(0, 3))) is None
    assert kind_of(torch.tensor(2.0), expected(torch.tensor(2.0))) is None
    assert kind_of(torch.tensor(3.0), expected(torch.tensor(2.0))) == "WrongValues"


@pytest.mark.parametrize("sums", [torch.float32, torch.float64])
def test_bound_at_full_shapes_by_hand(sums: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    # |r| = 5, e(r) = 1e-6, e(p) = 2e-6: |c - r| may be 5 (4 * 2e-6 + 1e-6) = 4.5e-5. A GPU sums in float32.
    monkeypatch.setattr(compare, "sum_dtype", lambda tensor: sums)
    want = Calibrated(torch.tensor([3.0, 4.0]), Precision(1e-6, 2e-6))
    error, mismatch = check_output("the output", torch.tensor([3.0, 4.0 + 4.4e-5]), want)
    assert mismatch is None and error == pytest.approx(8.8e-6, rel=1e-2)
    assert kind_of(torch.tensor([3.0, 4.0 + 4.6e-5]), want) == "LowPrecision"
    assert kind_of(torch.tensor([3.0, 4.0 + 4.6e-5]), Calibrated(want.value, None)) is None
    assert kind_of(torch.tensor([3.0, 4.0 + 5.1e-4]), Calibrated(want.value, None)) == "WrongValues"


def test_where_few_terms_count_by_hand() -> None:
    # |o| = 5, e(c) = 4e-6 / 5 = 8e-7; the floor is 4.8e-7, and 4 * 2^-22 = 9.5e-7.
    value, off = torch.tensor([3.0, 4.0]), torch.tensor([3.0, 4.0 + 4e-6])
    assert kind_of(off, expected(value)) == "LowPrecision"
    assert kind_of(off, replace(expected(value), least=FEW_TERMS)) is None
    assert kind_of(torch.tensor([3.0, 4.0 + 6e-6]), replace(expected(value), least=FEW_TERMS)) == "LowPrecision"
    # r is off by 1e-3 where 1e4 counts: e(r) = 1e-7. As of one of 2^-22, c may be off by 4 * 2.4e-3 more anywhere.
    oracle = torch.tensor([1e4, 0.5]).double()
    want = Expected((oracle + torch.tensor([1e-3, 0.0])).float(), oracle, oracle)
    off = (oracle + torch.tensor([0.0, 6e-3])).float()
    assert kind_of(off, want) == "WrongValues"
    assert kind_of(off, replace(want, least=FEW_TERMS)) is None
    assert kind_of((oracle + torch.tensor([0.0, 2e-2])).float(), replace(want, least=FEW_TERMS)) == "WrongValues"


def test_what_passes_beside_the_oracle_passes_at_full_shapes() -> None:
    generator = torch.Generator().manual_seed(3)
    oracle = torch.randn(1000, generator=generator).double()
    reference = (oracle * (1 + 3e-6)).float()
    candidate = (oracle * (1 - 1.1e-5)).float()
    precision = calibrated(reference, oracle, oracle)
    assert precision.own == pytest.approx(3e-6, rel=1e-2) and precision.slack == 0.0
    assert kind_of(candidate, expected(reference, oracle)) is None
    assert distance(candidate, reference, 0.0).error > error_bound(torch.float32, precision.own, 0.0)
    assert kind_of(candidate, Calibrated(reference, precision)) is None


def test_a_reference_that_breaks_the_tolerance_itself_widens_it_by_four_times_its_own_error() -> None:
    oracle = torch.tensor([10.0, 0.5]).double()
    reference = torch.tensor([10.0, 0.501])  # as a convolution in TF32: off by 1e-3, tolerance 1.5e-4
    precision = calibrated(reference, oracle, oracle)
    assert precision.slack == pytest.approx(4e-3, rel=1e-3)
    for want in (expected(reference, oracle), Calibrated(reference, precision)):
        assert kind_of(oracle.float(), want) is None
        assert kind_of(torch.tensor([10.0, 0.506]), want) == "WrongValues"


def test_what_is_larger_than_what_was_measured_may_be_off_by_as_much_more() -> None:
    # e^38 or so where e^34 was measured, as other weights make it: 100 times as large, so 100 times 4e-3 of slack
    oracle = torch.tensor([10.0, 0.5]).double()
    precision = calibrated(torch.tensor([10.0, 0.501]), oracle, oracle)
    assert precision.peak == 10.0 and {precision.slack_at(peak) for peak in (1.0, 10.0, 39.0)} == {precision.slack}
    value = torch.tensor([1000.0, 0.5])
    assert kind_of(torch.tensor([1000.0, 0.85]), Calibrated(value, precision)) is None
    assert kind_of(torch.tensor([1000.0, 0.95]), Calibrated(value, precision)) == "WrongValues"
    assert kind_of(torch.tensor([1000.0, 0.85]), Calibrated(value, replace(precision, peak=1000.0))) == "WrongValues"
    loose = loosened(Calibration((precision,))).precisions[0]
    assert loose is not None and loose.peak == precision.peak


def test_a_reference_that_comes_near_the_tolerance_leaves_room_for_its_equals() -> None:
    # 4 * 6e-5 breaks the tolerance of 1.5e-4 at 0.5, 4 * 3e-5 does not
    oracle = torch.tensor([1e3, 0.5]).double()
    assert calibrated(torch.tensor([1e3, 0.50006]), oracle, oracle).slack == pytest.approx(2.4e-4, rel=1e-2)
    assert calibrated(torch.tensor([1e3, 0.50003]), oracle, oracle).slack == 0.0


def test_special_and_tiny_values_at_full_shapes() -> None:
    nan, inf = float("nan"), float("inf")
    want = Calibrated(torch.tensor([1.0, inf, nan]), Precision(1e-7, 1e-7))
    assert kind_of(torch.tensor([1.0, inf, nan]), want) is None
    assert kind_of(torch.tensor([nan, inf, nan]), want) == "NaN"
    assert kind_of(torch.tensor([1.0, -inf, nan]), want) == "Infinity"
    tiny = Calibrated(torch.full((8,), 1e-30), Precision(1e-7, 1e-7))
    assert kind_of(torch.full((8,), 1e-30), tiny) is None
    assert kind_of(torch.full((8,), 2e-30), tiny) == "LowPrecision"
    assert kind_of(torch.zeros(8), Calibrated(torch.zeros(8), Precision(0.0, 0.0))) is None


def test_blocks_cover_every_element_once_whatever_the_shape() -> None:
    for shape in ((), (0, 3), (7,), (2, 3, 5), (1, 1, 9), (4, 1, 6)):
        for limit in (1, 2, 4, 100):
            seen = torch.zeros(shape)
            for index in blocks(shape, limit):
                assert seen[index].numel() <= limit and origin(index, len(shape)) == [part.start for part in index] + [
                    0
                ] * (len(shape) - len(index))
                seen[index] += 1
            assert bool((seen == 1).all())


def test_block_by_block_gives_the_same_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    value = torch.arange(60.0).reshape(3, 4, 5)
    wrong, special = value.clone(), value.clone()
    wrong[1, 1:3, 2] += torch.tensor([0.5, 3.0])
    special[2, 3, 4] = float("nan")
    cases = [
        (got, want)
        for got in (value, value.transpose(0, 2).contiguous().transpose(0, 2), wrong, special, value * (1 + 1e-5))
        for want in (expected(value), Calibrated(value, Precision(1e-7, 1e-7)))
    ]
    integers = (wrong.long(), expected(value.long(), oracle=value.long()))
    whole = [check_output("the output", *case) for case in (*cases, integers)]
    assert "2 of 60 elements" in str(whole[4][1]) and "within [1:2, 1:3, 2:3]" in str(whole[4][1])
    assert "worst is at [1, 2, 2]: 35 instead of 32" in str(whole[4][1])
    monkeypatch.setattr(blocks_module, "CPU_BLOCK", 4)
    parts = [check_output("the output", *case) for case in (*cases, integers)]
    assert [mismatch for _, mismatch in parts] == [mismatch for _, mismatch in whole]
    assert [error for error, _ in parts] == pytest.approx([error for error, _ in whole])


def test_within_tolerance_is_kernelbenchs() -> None:
    nan = float("nan")
    assert within_tolerance(torch.tensor([10.0009, nan]), torch.tensor([10.0, nan]))
    assert not within_tolerance(torch.tensor([10.002]), torch.tensor([10.0]))
    assert not within_tolerance(torch.tensor([nan]), torch.tensor([10.0]))
    assert not within_tolerance(torch.tensor([1]), torch.tensor([2]))
    assert not within_tolerance(torch.ones(2), torch.ones(3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.uint8, torch.float64, torch.bool])
def test_fingerprint_sees_every_change(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks_module, "HASH_BLOCK", 4)
    value = (torch.randn(7, 3, generator=torch.Generator().manual_seed(0)) * 100).to(dtype)
    before = fingerprint(value, 12345)
    assert before.dtype == torch.int64 and before.dim() == 0
    assert bool(before == fingerprint(value.clone(), 12345)) and bool(before != fingerprint(value, 12346))
    for at in range(value.numel()):
        other = value.clone()
        octets = other.view(-1).view(torch.uint8)
        octets[at * value.element_size()] ^= 1
        assert bool(fingerprint(other, 12345) != before) and not bool(same_bits(other, value))


def test_fingerprint_sees_changes_that_cancel_in_a_plain_sum() -> None:
    value = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    before = fingerprint(value, 7)
    swapped, flipped = value.clone(), value.clone()
    swapped[[1, 998]] = swapped[[998, 1]]
    flipped[[5, 6]] *= -1  # two sign bits
    linear = value.clone()
    linear.view(torch.int32)[10:13] += torch.tensor([1, -2, 1], dtype=torch.int32)
    for other in (swapped, flipped, linear):
        assert bool(fingerprint(other, 7) != before)


def test_bits_are_more_than_values() -> None:
    nan = torch.tensor([float("nan"), 0.0])
    assert bool(same_bits(nan, nan.clone())) and not bool(same_bits(nan, torch.tensor([float("nan"), -0.0])))
    assert bool(same_bits(torch.empty(0), torch.empty(0)))
    assert bool(same_bits(torch.ones(3, 2).t(), torch.ones(2, 3)))
    offset = torch.arange(5, dtype=torch.int16)[1:]
    assert bool(fingerprint(offset, 1) == fingerprint(offset.clone(), 1))
    with pytest.raises(ValueError, match="cannot hold the same bits"):
        same_bits(torch.ones(2), torch.ones(3))


@pytest.mark.parametrize("size", [distance_module.ROW, 5 * distance_module.ROW + 7])
def test_reading_once_tells_what_differences_in_memory_do(size: int) -> None:
    a = torch.randn(size)
    b = a + 1e-3 * torch.randn(size)
    off, scale, most = distance_module._read_once(a, b)
    usual = apart(a, b, torch.float32)
    assert (off, scale) == pytest.approx(usual[:2], rel=1e-5)
    assert float((a - b).abs().max()) <= most * (1 + 1e-6) and most <= off * (1 + 1e-6)
    for place in (0, size - 1):
        for wrong in (math.nan, math.inf):
            spoilt = a.clone()
            spoilt[place] = wrong
            assert not math.isfinite(distance_module._read_once(spoilt, b)[0])
            assert not math.isfinite(distance_module._read_once(spoilt, spoilt)[0])


def test_outputs_that_are_read_once_are_judged_as_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distance_module, "_rows_can_be_read", lambda a, b, wide: True)
    value = 1.0 + torch.rand(3 * distance_module.ROW + 5)
    want = Calibrated(value, Precision(1e-7, 1e-7))
    assert kind_of(value * (1 + EPS), want) is None
    assert kind_of(value * (1 + 3e-5), want) == "LowPrecision"
    for place in (0, 2 * distance_module.ROW, len(value) - 1):
        one_off = value.clone()
        one_off[place] += 5e-4
        assert kind_of(one_off, want) == "WrongValues"
        one_off[place] = math.nan
        assert kind_of(one_off, want) == "NaN"


def test_tensors_that_changed_are_found_at_once() -> None:
    before = [torch.zeros(3), torch.ones(2, dtype=torch.float16), torch.zeros(4), torch.zeros(0), torch.zeros(2, 2)]
    now = [each.clone() for each in before]
    assert different(now, before) == [] == different([], [])
    now[0][1] = -0.0  # another bit
    now[1] = torch.ones(2)
    now[4] = torch.zeros(4)
    assert different(now, before) == [0, 1, 4]
