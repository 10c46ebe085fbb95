"""Library calls are counted alike however their arguments were given: by position or by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

from mtmc.evaluate.counting.storages import Storages
from mtmc.evaluate.counting.torch_ops import torch_modes

Q, K, V = torch.ones(2, 4, 16, 8), torch.ones(2, 4, 24, 8), torch.ones(2, 4, 24, 6)
X, STATES = torch.ones(3, 5, 8), [torch.zeros(1, 3, 4), torch.zeros(1, 3, 4)]
WEIGHTS = [torch.ones(16, 8), torch.ones(16, 4)]
attend = functional.scaled_dot_product_attention


@pytest.mark.parametrize(
    ("by_position", "by_name"),
    [
        (lambda: attend(Q, K, V), lambda: attend(query=Q, key=K, value=V, attn_mask=None)),
        (lambda: attend(Q, K, V), lambda: attend(Q, value=V, key=K)),
        (lambda: attend(Q, K, V, None, 0.0, True), lambda: attend(is_causal=True, query=Q, key=K, value=V)),
        (lambda: functional.rms_norm(X, (8,)), lambda: functional.rms_norm(input=X, normalized_shape=(8,))),
        (
            lambda: torch.lstm(X, STATES, WEIGHTS, False, 1, 0.0, False, False, True),
            lambda: torch.lstm(
                input=X, hx=STATES, params=WEIGHTS, has_biases=False, num_layers=1, dropout=0.0, train=False,
                bidirectional=False, batch_first=True,
            ),
        ),
    ],
    ids=["attention", "in part", "causal", "norm", "lstm"],
)  # fmt: skip
def test_a_call_by_name_is_counted_as_one_by_position(
    by_position: Callable[[], Any], by_name: Callable[[], Any]
) -> None:
    one, other = _counted(by_position), _counted(by_name)
    assert len(one) == 1 and one[0]["flops"] > 0
    names = ("op", "bytes_read", "bytes_written", "flops", "dot_flops", "kernels", "dims")
    assert [other[0][name] for name in names] == [one[0][name] for name in names]


def _counted(call: Callable[[], Any]) -> list[Any]:
    log: list[Any] = []
    ops, calls = torch_modes(Storages(fake=False, held=False), log, [])
    with torch.no_grad(), ops, calls:
        call()
    return log
