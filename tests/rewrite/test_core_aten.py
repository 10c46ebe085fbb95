"""How many of ATen's core ops have a kernel, and some beside torch. The whole table: `python -m tests.rewrite.core_aten`."""

from __future__ import annotations

import pytest

from mtmc.rewrite.plan import Stage
from tests.rewrite.core_aten import core_overloads, kernels, verified
from tests.rewrite.core_samples import NO_SAMPLE, SAMPLES

AT_LEAST = 182
"""Overloads of which a sample at least is one kernel."""
CHECKED = (
    "add.Tensor",
    "bitwise_and.Scalar",
    "clamp.Tensor",
    "ge.Tensor",
    "maximum.default",
    "sign.default",
    "where.self",
    "_to_copy.default",
    "_embedding_bag.default",
    "masked_scatter.default",
    "_fft_r2c.default",
    "_fft_c2r.default",
)


@pytest.fixture(scope="module")
def found() -> dict[str, str | None]:
    return verified(CHECKED)


def test_so_many_core_ops_have_a_kernel() -> None:
    names = core_overloads()
    have = kernels(names, first=True)
    covered = [name for name, rows in have.items() if any(isinstance(row, Stage) for row in rows)]
    assert len(covered) >= AT_LEAST


def test_every_core_op_has_samples_or_a_reason() -> None:
    assert not [name for name in core_overloads() if name not in SAMPLES and name not in NO_SAMPLE]


@pytest.mark.parametrize("name", CHECKED)
def test_kernels_give_what_torch_gives(found: dict[str, str | None], name: str) -> None:
    assert found[name] is None
