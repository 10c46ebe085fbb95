"""The corrected interpreter computes what a GPU computes. Run in check workers, by the functions of `evaluate_kernels`."""

from __future__ import annotations

import types
from typing import Any

import evaluate_kernels
import numpy as np
import pytest
from triton.language import core

from mtmc.evaluate.interpreter.interpreter import bf16_to_f32, cut_to_tf32, f32_to_bf16, straight
from mtmc.evaluate.interpreter.libdevice import compute, function_of
from mtmc.evaluate.pool.worker import Pool


def run(pool: Pool, name: str) -> Any:
    result = pool.run(getattr(evaluate_kernels, name), {})
    assert result.status == "ok", result
    return result.value


def test_tf32_keeps_ten_mantissa_bits_and_the_others_are_cut_off() -> None:
    ulp = 2.0**-10
    values = np.array([1.0, 1 + ulp, 1 + ulp / 2, 1 + 1.9 * ulp, -1 - 0.99 * ulp, -3.0, 0.0, np.inf], dtype=np.float32)
    want = np.array([1.0, 1 + ulp, 1.0, 1 + ulp, -1.0, -3.0, 0.0, np.inf], dtype=np.float32)
    np.testing.assert_array_equal(cut_to_tf32(values), want)
    odd_nan = np.array([0x7F800001], dtype=np.uint32).view(np.float32)
    assert np.isnan(cut_to_tf32(odd_nan))[0]


def test_bf16_rounds_to_nearest_even_and_back() -> None:
    ulp = 2.0**-7
    values = np.array([1 + ulp / 2, 1 + 1.5 * ulp, -1 - 0.51 * ulp, 3.0], dtype=np.float32)
    want = np.array([1.0, 1 + 2 * ulp, -1 - ulp, 3.0], dtype=np.float32)
    np.testing.assert_array_equal(bf16_to_f32(f32_to_bf16(values)), want)
    odd_nan = np.array([0x7F800001], dtype=np.uint32).view(np.float32)
    assert np.isnan(bf16_to_f32(f32_to_bf16(odd_nan)))[0]


@pytest.mark.parametrize(
    ("symbol", "argument", "want"),
    [
        ("__nv_tanhf", 0.5, np.tanh(0.5)),
        ("__nv_erf", 0.5, 0.5204998778),
        ("__nv_fast_expf", 1.0, np.e),
        ("__nv_rsqrtf", 4.0, 0.5),
        ("__nv_fsqrt_rn", 9.0, 3.0),
        ("__ocml_exp_f32", 1.0, np.e),
        ("__nv_log1pf", 1.0, np.log(2.0)),
        ("__nv_tgammaf", 5.0, 24.0),
        ("__nv_roundf", -2.5, -3.0),
    ],
)
def test_device_functions(symbol: str, argument: float, want: float) -> None:
    got = compute(symbol, [np.array([argument], dtype=np.float32)], np.dtype(np.float32))
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, [want], rtol=1e-6)


def test_unknown_device_function_is_named() -> None:
    assert function_of("__nv_nothing") is None
    with pytest.raises(NotImplementedError, match="__nv_nothing"):
        compute("__nv_nothing", [np.ones(1)], np.dtype(np.float64))


def test_dot_precisions(check_pool: Pool) -> None:
    errors = run(check_pool, "dot_errors")
    assert 1e-4 < errors["default"] == errors["tf32"] < 1e-3
    assert errors["ieee"] < 3e-7 and errors["tf32x3"] < 3e-7
    assert 1e-6 < errors["bf16x3"] < 2e-5 and errors["bf16x6"] < 1e-6
    assert errors["float16"] < 3e-7 and errors["bfloat16"] < 3e-7


def test_bfloat16_arithmetic(check_pool: Pool) -> None:
    # The arithmetic of torch on bfloat16 rounds each operation once, to nearest: to the bit.
    assert run(check_pool, "bf16_errors") == {"multiply_add": 0.0, "where": 0.0, "maximum": 0.0, "exp": 0.0, "sum": 0.0}


def test_libdevice_in_kernels(check_pool: Pool) -> None:
    errors = run(check_pool, "libdevice_errors")
    assert max(errors.values()) < 3e-7, errors


def test_scalars_have_a_part_in_masks(check_pool: Pool) -> None:
    ones, others = run(check_pool, "masked")
    assert ones[:5] == ["12340000", "00005678", "12345678", "00000000", "12345600"]
    assert ones[5:] == ["00000000", "00005678", "12345678", "12345600", "00000078"]
    assert others[:5] == ["12340000", "00000000", "12000000", "00000000", "12345600"]
    assert others[5:] == ["00000000", "00000000", "12000000", "00000000", "00000078"]


def test_integers_wrap_around_as_on_a_gpu(check_pool: Pool) -> None:
    want = [(i * 1000003 + 2**31 - 1 + 2**31) % 2**32 - 2**31 for i in range(4096)]
    assert run(check_pool, "wrapped_integers") == want and min(want) < 0


def test_variables_of_loops_can_be_cast(check_pool: Pool) -> None:
    assert run(check_pool, "cast_loop_variables") == [0, 4, 8, 12, 0, 1, 2 << 40, (2 << 40) + 1, 7, 8]


def test_comparisons_are_truths_that_can_be_cast(check_pool: Pool) -> None:
    over = [float(i > 3) for i in range(8)]
    both = [(i > 3) + (i < 5) + 1.0 for i in range(8)]
    found = run(check_pool, "truths")
    assert found == {dtype: [over, both] for dtype in found} and len(found) == 7


def test_floats_are_numbers_of_fp32_in_kernels(check_pool: Pool) -> None:
    tenth, third = np.float32(0.1), np.float32(1 / 3)
    want = [float(np.float64(np.float32(i) * tenth) + np.float64(third)) for i in range(4)]
    assert run(check_pool, "floats_as_numbers") == want


def test_bounds(check_pool: Pool) -> None:
    messages = run(check_pool, "bounds")
    assert messages["inside"] == "" and messages["masked"] == "" and messages["addresses"] == ""
    assert "1 elements past the end" in str(messages["past"]) and "load of 64 elements has 1 outside" in str(
        messages["past"]
    )
    assert "store" in str(messages["store"]) and "before the start" in str(messages["store"])
    assert "atomic" in str(messages["atomic"])


def test_rules_of_a_kernels_own_are_combined_as_trees(check_pool: Pool) -> None:
    found = run(check_pool, "combined")
    assert found == {"top": True, "place": True, "branching": True, "scan": True, "from the left": False}


def test_a_builtin_is_called_at_once_and_what_is_none_stays() -> None:
    """With the interpreter's own semantic, whether or not it was handed on."""
    patch, told = straight("of the interpreter", core.builtin), []

    @core.builtin
    def double(x: int, _semantic: Any = None) -> int:
        told.append(_semantic)
        return 2 * x

    place = types.SimpleNamespace()
    patch(place, "double", double, "builder", "scope")
    patch(place, "again", place.double)
    patch(place, "other", len, "builder")
    assert [place.double(3), place.double(x=4, _semantic="of another"), place.again(5)] == [6, 8, 10]
    assert told == ["of the interpreter"] * 3 and double.__wrapped__ not in vars(place).values()
    with pytest.raises(TypeError):
        place.other([1, 2])  # takes no semantic, and was no builtin
