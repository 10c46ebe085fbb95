"""Which inputs reach a result other than by being looked up in."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from mtmc.evaluate.reference.reaching import Reaching
from mtmc.task.tensors import flat_tensors


@pytest.mark.parametrize(
    ("forward", "found"),
    [
        (lambda x, i: x[i], {1}),
        (lambda x, i: F.normalize(x, dim=-1)[i], {1}),
        (lambda x, i: x[i] + x.sum(), {0, 1}),
        (lambda x, i: x * 2, {0}),
        (lambda x, i: F.embedding(i, x).relu_(), {1}),
    ],
)
def test_rows_that_are_asked_for(forward, found) -> None:
    x, i = torch.randn(9, 4), torch.tensor([3, 0])
    with Reaching([x, i]) as ways:
        made = flat_tensors(forward(x, i))
    assert set().union(*(ways.of(tensor) for tensor in made)) == found
