"""What kernels are called by what they do."""

from __future__ import annotations

import pytest

from mtmc.rewrite.plan import Stage
from mtmc.rewrite.titles import title


@pytest.mark.parametrize(
    ("ops", "expected"),
    [
        ("pow_1 mean add rsqrt mul mul_1", "rmsnorm"),
        ("add to mul mean add_1 rsqrt mul_1 to_1 mul_2 to_2", "add_rmsnorm"),
        ("to_3 pow_2 mean_1 add_4 rsqrt_1 mul_5 mul_6", "rmsnorm_1"),
        ("mean sub pow_1 mean_1 add rsqrt mul_1 mul_2 add_1", "layernorm"),
        ("linear silu linear_1 mul", "linear_swiglu"),
        ("silu_2 mul_3", "swiglu_2"),
        ("chunk gelu mul", "geglu"),
        ("mul_1 neg cat mul_2 add", "rope"),
        ("mul_3 neg_1 cat_1 mul_4 add_1", "rope_1"),
        ("to unsqueeze mul cat unsqueeze_1 cos to_1 sin to_2", "rope_angles"),
        ("rms_norm chunk mul mul_1 sub mul_2 mul_3 add cat to", "rms_norm_rope"),
        ("amax sub exp sum_1 div", "row_softmax"),
        ("log_softmax gather squeeze neg mean", "cross_entropy"),
        ("to rms_norm abs_1 amax div div_1 round_1 clamp to_1", "rms_norm_quantize_1"),
        ("silu linear", None),  # not a gate
        ("linear relu pow_1", None),
        ("mul add", None),
        ("exp sum_1", None),
    ],
)
def test_titles(ops: str, expected: str | None) -> None:
    assert title(tuple(ops.split())) == expected


def test_a_kernel_that_is_nothing_known_is_called_by_its_ops() -> None:
    assert Stage(("mul", "add"), "pointwise").title == "mul_add"
    assert Stage(("silu", "mul"), "pointwise").title == "swiglu"
    assert Stage(("silu", "mul"), "pointwise").name == "silu_mul"  # what actions are told apart by


def test_two_kernels_of_a_graph_are_never_called_the_same() -> None:
    """Each is known by an op of its own, whose number it bears."""
    numbers = ["", *(f"_{number}" for number in range(1, 40))]
    stages = [(f"silu{number}", f"mul{number}") for number in numbers]
    stages += [(f"mul{number}", f"neg{number}", f"cat{number}", f"mul{number}_9", f"add{number}") for number in numbers]
    found = [title(ops) for ops in stages]
    assert None not in found and len(set(found)) == len(found)
