"""The tolerance rule on numbers that can be checked by hand."""

from __future__ import annotations

import math

import pytest
import torch

from mtmc.evaluate.gates.compare import Expected, check_output, error_bound, flatten, norm_error

EPS = 2.0**-23


def expected(value: torch.Tensor, oracle: torch.Tensor | None = None, rounded: torch.Tensor | None = None) -> Expected:
    exact = value.double() if oracle is None else oracle
    return Expected(value, exact, exact if rounded is None else rounded)


def kind_of(got: torch.Tensor, want: Expected) -> str | None:
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


def test_flatten_keeps_order_and_structure() -> None:
    leaves, structure = flatten((1, [2, {"b": 4, "a": 3}]))
    assert leaves == [1, 2, 3, 4] and structure == "(*, [*, {a: *, b: *}])"
    assert flatten((1,))[1] != flatten([1])[1]
