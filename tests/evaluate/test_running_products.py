"""What a product in fp32 may lose: as much as adding its terms one after another, and less than narrower pieces lose."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from mtmc.evaluate.reference.bounds import FACTOR
from mtmc.evaluate.reference.running_sums import RunningSums

ROWS = 24


def one_after_another(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(a.shape[0], b.shape[1])
    for k in range(a.shape[1]):
        total = torch.addcmul(total, a[:, k : k + 1], b[k : k + 1])
    return total


def in_two_pieces(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Of bf16, without the product of the small ones; added up exactly."""
    (a0, a1), (b0, b1) = (_pieces(each) for each in (a, b))
    return (a0 @ b0 + a0 @ b1 + a1 @ b0).float()


def _pieces(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    large = x.bfloat16().float()
    return large.double(), (x - large).bfloat16().double()


def plain(rows: int, columns: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(rows, columns, generator=generator)


def spiky(rows: int, columns: int, generator: torch.Generator) -> torch.Tensor:
    x = torch.randn(rows, columns, generator=generator)
    return torch.where(torch.rand(x.shape, generator=generator) < 0.02, x * 30, x * 0.1)


@pytest.mark.parametrize("terms", [256, 512, 4096, 16384])
@pytest.mark.parametrize("draw", [plain, spiky])
def test_a_sum_of_one_term_after_another_is_precise_enough_and_two_pieces_of_bf16_are_not(
    terms: int, draw: Callable[[int, int, torch.Generator], torch.Tensor]
) -> None:
    generator = torch.Generator().manual_seed(terms)
    a, b = draw(ROWS, terms, generator), draw(terms, ROWS, generator)
    exact = a.double() @ b.double()
    with RunningSums():
        allowed = FACTOR * _error(a.double() @ b.double(), exact)
    assert _error(one_after_another(a, b), exact) < 0.8 * allowed
    assert _error(in_two_pieces(a, b), exact) > 1.1 * allowed


def _error(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found.double() - exact).norm() / exact.norm())


def _grown(multiply: Callable[[], torch.Tensor]) -> float:
    exact = multiply()
    with RunningSums():
        return _error(multiply(), exact)


def test_every_form_of_a_product_loses_by_its_terms() -> None:
    x, w = torch.randn(2, 4, 300).double(), torch.randn(5, 300).double()
    long = _grown(lambda: x[0] @ w.t())
    forms: list[Callable[[], torch.Tensor]] = [
        lambda: torch.nn.functional.linear(x, w),
        lambda: torch.nn.functional.linear(x, w, torch.zeros(5).double()),
        lambda: torch.bmm(x, w.t().expand(2, 300, 5)),
        lambda: torch.baddbmm(torch.zeros(2, 4, 5).double(), x, w.t().expand(2, 300, 5)),
        lambda: w @ x[0, 0],
        lambda: x[0, 0] @ w[0],
        lambda: torch.einsum("bik,jk->bij", x, w),
        lambda: torch.nn.functional.conv1d(x[:, 0].reshape(2, 100, 3), w.reshape(5, 100, 3)),
        lambda: torch.nn.functional.conv1d(x[:, 0].reshape(1, 200, 3), torch.randn(4, 100, 3).double(), groups=2),
    ]
    assert [_grown(each) for each in forms[:8]] == pytest.approx([long] * 8, rel=1e-6)
    short = torch.randn(5, 3).double()
    assert _grown(lambda: x[..., :3] @ short.t()) == pytest.approx(long / 10, rel=1e-6)
    assert _grown(lambda: (x * 2).exp() + x) == 0.0
    mask = torch.ones(3, 3, dtype=torch.int64)
    assert _grown(lambda: (mask @ mask).double()) == 0.0


def test_the_terms_of_a_transposed_convolution_are_those_of_its_inputs() -> None:
    x = torch.randn(1, 8, 6).double()
    for groups in (1, 2):
        weight = torch.randn(8, 4 // groups, 3).double()
        found = _grown(lambda: torch.nn.functional.conv_transpose1d(x, weight, groups=groups))  # noqa: B023
        terms = 8 * 3 // groups
        assert found == pytest.approx(torch.finfo(torch.float32).eps / 4 * (terms / 12) ** 0.5, rel=1e-6)
