"""Types that the interpreter keeps are those that it would have made, whatever was made before them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import triton.language as tl
from triton.language import core
from triton.runtime import interpreter

from mtmc.evaluate.interpreter.kept_types import kept_blocks, kept_dtypes, kept_shapes

ELEMENTS = (tl.float32, tl.bfloat16, tl.int1, tl.int64, tl.uint8, tl.pointer_type(tl.float32), tl.pointer_type(tl.int8))
SHAPES = ([1], [16], [4, 4], [16, 1], [1, 16], [2, 2, 4])


class KeptBlock(core.block_type):
    __init__ = kept_blocks(core.block_type.__init__)  # type: ignore[assignment]


class KeptTensor(core.tensor):
    __init__ = kept_shapes(core.tensor.__init__)  # type: ignore[assignment]


def facts(of: core.tensor) -> tuple[Any, ...]:
    return of.handle, [int(size) for size in of.shape], int(of.numel), of.dtype, str(of)


@pytest.mark.parametrize("turn", [1, -1])
def test_blocks_and_tensors_are_what_they_were(turn: int) -> None:
    pairs = list(itertools.product(ELEMENTS, SHAPES))[::turn]
    for handle, (element, shape) in enumerate([*pairs, *pairs]):
        kept, made = KeptBlock(element, shape), core.block_type(element, shape)
        assert kept == made and kept.element_ty is element and str(kept) == str(made) and kept.numel == made.numel
        assert kept.scalar == made.scalar and list(kept.get_block_shapes()) == list(made.get_block_shapes())
        assert facts(KeptTensor(handle, kept)) == facts(core.tensor(handle, made))
        assert facts(KeptTensor(handle, element)) == facts(core.tensor(handle, element))


def test_pointers_of_one_name_stay_apart() -> None:
    """A kept type has the element that was asked for, and not the first one that is called the same."""
    plain, shared = tl.pointer_type(tl.float32), tl.pointer_type(tl.float32, 3)
    first, second = KeptBlock(plain, [8]), KeptBlock(shared, [8])
    assert first.element_ty is plain and second.element_ty is shared and first != second


@pytest.mark.parametrize("shape", [[], [3], [2**40]])
def test_what_is_no_block_is_refused_each_time(shape: list[int]) -> None:
    for _ in range(2):
        with pytest.raises((TypeError, ValueError)) as kept:
            KeptBlock(tl.float32, shape)
        with pytest.raises(kept.type):
            core.block_type(tl.float32, shape)


def test_sizes_of_the_language_are_sizes() -> None:
    sizes = [tl.constexpr(4), tl.constexpr(8)]
    for _ in range(2):
        assert KeptBlock(tl.float32, sizes) == core.block_type(tl.float32, [4, 8])
        assert [int(size) for size in KeptTensor(None, KeptBlock(tl.float32, sizes)).shape] == [4, 8]


def test_a_truth_value_is_no_size() -> None:
    """It equals one, and would be taken for what was kept of it."""
    KeptBlock(tl.float32, [1])
    assert str(KeptBlock(tl.float32, [True])) == str(core.block_type(tl.float32, [True]))


@pytest.mark.parametrize("turn", [1, -1])
def test_dtypes_of_numpy(turn: int) -> None:
    dtype = kept_dtypes(interpreter._get_np_dtype)
    for element in [*ELEMENTS[::turn], *ELEMENTS]:
        for of in (element, core.block_type(element, [4])):
            assert dtype(of) == interpreter._get_np_dtype(of)
    assert dtype(tl.uint8) == np.uint8 and dtype(tl.pointer_type(tl.uint8)) == np.uint64
    for _ in range(2):
        with pytest.raises(KeyError):
            dtype(tl.void)
