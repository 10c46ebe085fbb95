"""Tensors at places of shared memory: any strides, and back."""

import pytest
import torch

from mtmc.evaluate.measure.arena import (
    aligned,
    contiguous_places,
    dense_strides,
    extent,
    memory_of,
    place,
    stretch,
    view,
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


def test_outputs_lie_dense():
    places, size = contiguous_places([torch.randn(4, 6).t(), "text", torch.ones(2)])
    assert places[0] is not None and places[0].strides == dense_strides((6, 4)) == (4, 1)
    assert places[1] is None
    assert places[2] is not None and places[2].offset == 512
    assert size == 1024
