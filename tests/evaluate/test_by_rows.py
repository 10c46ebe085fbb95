"""Rows of what a torch op makes, computed from rows of what it is given: the same as the op makes of all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from mtmc.evaluate.counting.by_rows import rows_of

LIMIT = 1 << 20
X, Y = torch.randn(12, 6, 5), torch.randn(12, 6, 5)
SQUARE = torch.randn(12, 12)

BY_ROWS: dict[str, Callable[[], Any]] = {
    "relu": lambda: torch.relu(X),
    "turned": lambda: X.transpose(0, 1).relu().transpose(0, 1).contiguous(),
    "a row for all": lambda: X + Y[3],
    "a column for all": lambda: X * Y[:, :1],
    "one number": lambda: torch.where(X > 0, X, 2.0),
    "largest": lambda: X.amax(-1),
    "largest with places": lambda: X.max(2)[0],
    "places of the largest": lambda: X.max(1)[1],
    "mean of two": lambda: X.mean((1, 2)),
    "sums that go on": lambda: X.cumsum(1),
    "softmax": lambda: torch.softmax(X, 1),
    "norm": lambda: torch.nn.functional.layer_norm(X, (6, 5)),
    "product": lambda: X[:, 0] @ Y[0, :5],
    "product with itself": lambda: SQUARE @ SQUARE,
    "product and bias": lambda: torch.nn.functional.linear(X[:, 0], Y[0], Y[1, :, 0]),
    "products": lambda: torch.bmm(X, Y.transpose(1, 2)),
    "convolution": lambda: torch.nn.functional.conv1d(X, Y[:4, :, :2], padding=1),
    "sorted": lambda: X.sort(-1)[1],
    "another type": lambda: X.to(torch.bfloat16).float(),
}
MIXED: dict[str, Callable[[], Any]] = {
    "over rows": lambda: X.amax(0),
    "over all": lambda: X.sum(),
    "over rows from the end": lambda: X.sum(-3),
    "running over rows": lambda: X.cumsum(0),
    "turned round": lambda: X.flip(0),
    "norm of all": lambda: torch.nn.functional.layer_norm(X, (12, 6, 5)),
    "drawn": lambda: torch.bernoulli(X.sigmoid()),
    "a part copied": lambda: X.clone()[:, 1:].copy_(Y[:, 1:]),
    "rows named by others": lambda: X[torch.tensor([1, 0, 3])],
}


class Known:
    """Real tensors as what is known of storages. The number of one is its place among those asked for."""

    def __init__(self) -> None:
        self.held: list[torch.Tensor] = []
        self.read = 0

    def number(self, tensor: torch.Tensor) -> int:
        key = tensor.untyped_storage()._cdata
        found = [at for at, each in enumerate(self.held) if each.untyped_storage()._cdata == key]
        self.held += [] if found else [tensor]
        return found[0] if found else len(self.held) - 1

    def element(self, number: int, elements: Any) -> Any:
        self.read += elements.size
        held = self.held[number]
        raw = np.frombuffer(bytes(held.untyped_storage().tolist()), np.uint8)
        return raw.view(f"u{held.element_size()}")[elements]


class Last(TorchDispatchMode):
    """The last op that made something."""

    call: Any = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view:
            self.call = func, args, kwargs or {}, result
        return result


def call_of(make: Callable[[], Any]) -> Any:
    with Last() as last, torch.no_grad():
        make()
    return last.call


def made_of(call: Any) -> list[torch.Tensor]:
    return [call[3]] if isinstance(call[3], torch.Tensor) else list(call[3])


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(BY_ROWS)), st.lists(st.integers(0, 11), min_size=1, max_size=6), st.randoms())
def test_rows_are_those_of_the_whole(name: str, rows: list[int], random: Any) -> None:
    call = call_of(BY_ROWS[name])
    for made in made_of(call):
        known: Any = Known()
        found = rows_of(call, known.number(made), known, known, LIMIT)
        if name in ("another type", "turned") and found is None:
            continue  # of a type that numpy lacks, or laid otherwise
        assert found is not None
        width = made[0].numel()
        elements = np.array([row * width + random.randrange(width) for row in rows])
        values = found.read(elements)
        assert values is not None
        want = made.reshape(-1)[torch.from_numpy(elements)]
        torch.testing.assert_close(torch.from_numpy(values.copy()), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MIXED)
def test_what_mixes_rows_is_not_computed_by_rows(name: str) -> None:
    call, known = call_of(MIXED[name]), Known()
    made = made_of(call)[0]
    assert rows_of(call, known.number(made), known, known, LIMIT) is None  # type: ignore[arg-type]


def test_what_is_changed_in_place_is_computed_from_what_was_there() -> None:
    before = torch.randn(12, 30)
    kept = before.clone()
    call, known = call_of(lambda: before.mul_(3.0)), Known()
    found = rows_of(call, known.number(before), known, known, LIMIT)  # type: ignore[arg-type]
    known.held, known.number = [kept], lambda tensor: 0  # type: ignore[method-assign]
    assert found is not None
    values = found.read(np.arange(45, 75))
    assert values is not None and np.allclose(values, kept.reshape(-1)[45:75] * 3)


def test_no_more_is_read_than_may_be() -> None:
    call = call_of(BY_ROWS["relu"])
    known: Any = Known()
    number = known.number(call[3])
    assert rows_of(call, number, known, known, 2 * 30 * 4).read(np.arange(90)) is None and known.read == 0  # type: ignore[union-attr]
    small = rows_of(call, number, known, known, 2 * 30 * 4)
    assert small is not None and small.read(np.arange(35, 50)) is not None and known.read == 30
    assert small.read(np.arange(40, 45)) is not None and known.read == 30
    assert small.read(np.array([12 * 30])) is None
