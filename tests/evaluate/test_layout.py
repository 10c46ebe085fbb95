"""Tensors at places of shared memory: any strides, and back."""

import pytest
import torch

from mtmc.evaluate.check import layout
from mtmc.evaluate.check.layout import (
    aligned,
    dense_places,
    dense_strides,
    extent,
    memory_of,
    memory_order,
    place,
    stretch,
    view,
    without_gaps,
)


def test_places_are_aligned_and_do_not_overlap():
    tensors = [torch.ones(3), torch.ones(200, dtype=torch.float64), torch.ones(2, 2)]
    places, size = place(tensors)
    assert [spot.offset for spot in places] == [0, 512, 512 + aligned(1600)]
    assert size == 512 + 2048 + 512


def test_extent_counts_from_the_first_element_to_the_last():
    assert extent((3, 4), (4, 1), 4) == 48
    assert extent((3, 4), (1, 0), 2) == 6  # expanded
    assert extent((3, 4), (10, 2), 1) == 2 * 10 + 3 * 2 + 1
    assert extent((3, 0), (1, 1), 4) == 0


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(5, 7),
        torch.randn(5, 7).t(),
        torch.randn(5, 1).expand(5, 7),
        torch.randn(5, 20)[1:, 3:15:2],
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.randint(0, 9, (6,), dtype=torch.int8),
        torch.randn(3, 3).to(torch.bfloat16),
        torch.rand(4) > 0.5,
        torch.empty(0, 3),
        torch.tensor(2.5),
    ],
)
def test_a_tensor_comes_back_as_it_was(tensor: torch.Tensor):
    [spot], size = place([tensor])
    memory = torch.zeros(max(size, 1), dtype=torch.uint8)
    stretch(memory, spot).copy_(memory_of(tensor))
    back = view(memory, spot)
    assert back.shape == tensor.shape and back.stride() == tensor.stride() and back.dtype == tensor.dtype
    assert torch.equal(back, tensor)


def test_outputs_lie_dense_in_the_order_of_their_own_memory():
    outputs = [torch.randn(4, 6).t(), "text", torch.ones(2), torch.randn(3, 8)[:, 2:4]]
    places, size = dense_places(outputs)
    assert places[0] is not None and places[0].strides == (1, 6)  # the (6, 4) view of a (4, 6) tensor
    assert places[1] is None
    assert places[2] is not None and places[2].offset == 512
    assert places[3] is not None and places[3].strides == (2, 1)  # the gaps of a slice are left out
    assert size == 3 * 512
    channels_last = torch.empty(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert memory_order(channels_last) == (0, 2, 3, 1)
    assert dense_strides((2, 3, 4, 5), (0, 2, 3, 1)) == channels_last.stride()
    assert dense_strides((6, 4)) == (4, 1)


@pytest.mark.parametrize("order", [(0,), (0, 0), (0, 2), (1, 0, 2)])
def test_an_order_names_each_dimension_once(order: tuple[int, ...]):
    with pytest.raises(ValueError, match="no order of 2 dimensions"):
        dense_strides((6, 4), order)


def test_gaps_are_closed_in_the_order_of_the_memory(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(layout, "SMALL", 100)
    padded = torch.randn(8, 16)[:, :13]
    for tensor in (padded, padded.t(), torch.randn(3, 8, 5, 4)[:, ::2]):
        closed = without_gaps(tensor)
        assert torch.equal(closed, tensor) and memory_order(closed) == memory_order(tensor)
        assert extent(closed.shape, closed.stride(), 1) == tensor.numel()
    for tensor in (torch.randn(8, 16).t(), torch.randn(8, 1).expand(8, 16), torch.randn(4, 16)[:, :5]):
        assert without_gaps(tensor) is tensor  # without any, or too small to matter
