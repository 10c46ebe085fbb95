"""Flops of products in torch's ops, by hand; an op that multiplies in a way that nobody has counted is told apart."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mtmc.evaluate.counting.floor import unpriced
from mtmc.evaluate.counting.prices import product_flops

ATEN = torch.ops.aten
A, B, X = torch.ones(3, 4, 5), torch.ones(3, 5, 6), torch.ones(4, 5)


@pytest.mark.parametrize(
    ("op", "args", "flops"),
    [
        (ATEN.bmm.default, (A, B), 2 * 3 * 4 * 5 * 6),
        (ATEN.addbmm.default, (torch.zeros(4, 6), A, B), 2 * 3 * 4 * 5 * 6),
        (ATEN.mv.default, (X, torch.ones(5)), 2 * 4 * 5),
        (ATEN._cdist_forward.default, (X, torch.ones(7, 5), 2.0, None), 3 * 4 * 7 * 5),
        (
            ATEN._trilinear.default,
            (X, torch.ones(2, 5, 3), torch.ones(4, 3), [1, 3], [0], [1, 2], [2, 3]),
            2 * 4 * 2 * 5 * 3,
        ),
        (ATEN.relu.default, (X,), 0),
        (ATEN.linalg_vector_norm.default, (X,), 0),
        (ATEN.linalg_inv_ex.default, (torch.eye(3),), None),
        (torch.ops.prims.convert_element_type.default, (X, torch.float64), 0),
    ],
)
def test_products(op: Any, args: tuple[Any, ...], flops: int | None) -> None:
    assert product_flops(op, args, {}, op(*args)) == flops


def test_an_op_that_is_not_of_torch_is_unknown() -> None:
    @torch.library.custom_op("mtmc_test_prices::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    assert product_flops(torch.ops.mtmc_test_prices.twice.default, (X,), {}, 2 * X) is None
    assert unpriced([{"op": "own.twice", "priced": False}, {"op": "aten.relu", "priced": True}, {"kernel": "k"}]) == (
        "own.twice",
    )
