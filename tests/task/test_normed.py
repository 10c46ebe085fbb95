"""Batch norms of fake tensors give what torch's decomposition of them gives, as far as shapes go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._decomp.decompositions as torchs
from torch._subclasses.fake_tensor import FakeTensorMode

from mtmc.task.normed import normed_quickly, results

HELPER = torchs.native_batch_norm_helper
Forms = list[tuple[Any, ...]]


def _forms(found: tuple[Any, ...]) -> Forms:
    return [(tuple(each.shape), each.stride(), each.dtype, each.device) for each in found]


def _given(
    shape: tuple[int, ...], dtype: torch.dtype = torch.float32, affine: bool = True
) -> tuple[torch.Tensor, tuple[torch.Tensor | None, ...]]:
    channels = shape[1]
    some = [torch.ones(channels, dtype=dtype) for _ in range(4)]
    return torch.ones(shape, dtype=dtype), (*(some[:2] if affine else (None, None)), *some[2:])


@pytest.mark.parametrize(("training", "functional"), [(True, False), (True, True), (False, True)])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 5), (2, 8, 7, 7), (3, 2, 4, 5, 6)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_results_are_torchs(
    shape: tuple[int, ...], dtype: torch.dtype, affine: bool, training: bool, functional: bool
) -> None:
    with FakeTensorMode():
        given, others = _given(shape, dtype, affine)
        found = results(given, others, training, functional)
        assert found is not None
        assert _forms(found) == _forms(HELPER(given, *others, training, 0.1, 1e-5, functional))


@pytest.mark.parametrize(
    "change",
    [
        lambda given, others: (given.to(memory_format=torch.channels_last), others),
        lambda given, others: (given.transpose(2, 3)[:, :, :, ::2], others),
        lambda given, others: (given[:1], others),  # a batch of one: its stride may be any
        lambda given, others: (given[:, :, :1], others),
        lambda given, others: (given.half(), others),
        lambda given, others: (given, (others[0].double(), *others[1:])),
        lambda given, others: (given, (others[0][:2], *others[1:])),  # torch says what is wrong with it
        lambda given, others: (given, (*others[:3], None)),
    ],
)
def test_what_is_not_plain_is_left_to_torch(change: Callable[..., Any]) -> None:
    with FakeTensorMode():
        assert results(*change(*_given((4, 6, 5, 7))), True, True) is None


def test_data_and_open_dimensions_are_left_to_torch() -> None:
    assert results(*_given((4, 6, 5, 7)), True, True) is None
    seen = []

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            statistics = torch.zeros(6), torch.ones(6)
            seen.append(results(x, (None, None, *statistics), True, True))
            return torch.nn.functional.batch_norm(x, *statistics, training=True)

    torch.export.export(Model(), (torch.ones(4, 6, 5),), dynamic_shapes=({0: torch.export.Dim.AUTO},), strict=False)
    assert seen and all(each is None for each in seen)


def test_torch_is_left_as_it_was() -> None:
    with pytest.raises(KeyError), normed_quickly():
        assert torchs.native_batch_norm_helper is not HELPER
        raise KeyError
    assert torchs.native_batch_norm_helper is HELPER


def test_a_norm_in_evaluation_is_torchs() -> None:
    with FakeTensorMode(), normed_quickly():
        given, others = _given((4, 3, 5))
        before = _forms(HELPER(given, *others, False, 0.1, 1e-5, True))
        assert _forms(torchs.native_batch_norm_helper(given, *others, False, 0.1, 1e-5, True)) == before


def test_wrong_sizes_still_raise() -> None:
    with FakeTensorMode(), normed_quickly():
        given, others = _given((4, 3, 5))
        with pytest.raises((RuntimeError, ValueError)):
            torchs.native_batch_norm_helper(given[:, :2], *others, True, 0.1, 1e-5, True)
