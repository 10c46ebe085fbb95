"""The formulas of elementwise ops beside float64: near zero, at subnormals, at large values, relative to what they give."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from mtmc.rewrite.operators.elementwise import POINTWISE

TL = SimpleNamespace(
    **{name: getattr(torch, name) for name in ("abs", "exp", "log", "sqrt", "sin", "cos", "erf", "sigmoid", "where")},
    minimum=lambda x, y: torch.clamp(x, max=y),
    maximum=lambda x, y: torch.clamp(x, min=y),
)
"""What the formulas use of Triton's language, in torch's fp32."""
SMALL = torch.tensor([10.0**power for power in range(-45, 0)])
SIZES = torch.cat([SMALL, torch.linspace(0.02, 3, 500), torch.linspace(3, 60, 300), torch.tensor([80.0, 87.0])])
BOTH = torch.cat([SIZES, -SIZES])
EXACT: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor]] = {
    "tanh": (torch.tanh, torch.cat([BOTH, torch.tensor([1e4, -1e4, 3e38])])),
    "log1p": (torch.log1p, torch.cat([SIZES, -SMALL, torch.tensor([1e30])])),
    "expm1": (torch.expm1, BOTH),
    "sinh": (torch.sinh, torch.cat([BOTH, torch.tensor([89.0, -89.0])])),
    "cosh": (torch.cosh, torch.cat([BOTH, torch.tensor([89.0, -89.0])])),
    "sigmoid": (torch.sigmoid, BOTH),
    "silu": (F.silu, BOTH),
    "elu": (F.elu, BOTH),
    "selu": (F.selu, BOTH),
    "celu": (F.celu, BOTH),
    "mish": (lambda x: x * torch.tanh(torch.log1p(torch.exp(x))), BOTH),
    "softplus": (lambda x: torch.logaddexp(x, torch.zeros_like(x)), BOTH),
    "log_sigmoid": (lambda x: -torch.logaddexp(-x, torch.zeros_like(x)), BOTH),
}


@pytest.mark.parametrize("name", list(EXACT))
def test_formulas_are_exact_relative_to_what_they_give(name: str) -> None:
    row = POINTWISE[f"aten.{name}.default"]
    exact, x = EXACT[name]
    found = eval(row.expression.format("x", *row.defaults), {"tl": TL, "x": x})
    wanted = exact(x.double())
    smallest = torch.finfo(torch.float32).tiny  # below it fp32 has fewer digits
    error = (found.double() - wanted).abs() / wanted.abs().clamp(min=smallest)
    assert found.isfinite().all()
    assert float(error.max()) < 1e-6, f"{name}({float(x[error.argmax()])}) is off by {float(error.max()):.1e}"
