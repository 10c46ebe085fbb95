from __future__ import annotations

from mtmc.rewrite.graph import Shape, Size, Tensor
from mtmc.rewrite.space import Group, access, bare, split

N, M, C = (4, 3), (6, 5), (8, 7)
ONE = (1, 1)
NAMES = {N: "n", M: "m", C: "c", (24, 15): "nm", (48, 35): "mc"}
ROWS, COLS = Group("rows", N, "row_mask"), Group("cols", M, "col_mask")


def name(size: Size) -> str:
    return NAMES.get(size, "1" if not size else str(size))


def reach(tensor_shape: Shape, shape: Shape, *groups: Group, contiguous: bool = True, ones: int = 0) -> tuple[str, str]:
    tensor = Tensor(tensor_shape, "float32", contiguous)
    found = access(tensor, ones, shape, groups, name, lambda axis: f"stride_{axis}")
    return found.offset, found.mask


def test_a_whole_contiguous_operand() -> None:
    assert reach((N, M), (N, M), ROWS, COLS) == ("rows * m + cols", "row_mask & col_mask")


def test_operands_that_broadcast() -> None:
    assert reach((M,), (N, M), ROWS, COLS) == ("cols", "col_mask")
    assert reach((N, ONE), (N, M), ROWS, COLS) == ("rows", "row_mask")
    assert reach((N,), (N, M), ROWS, COLS, ones=1) == ("rows", "row_mask")
    assert reach((), (N, M), ROWS, COLS) == ("", "")


def test_strides_are_asked_for_where_memory_has_gaps() -> None:
    assert reach((N, M), (N, M), ROWS, COLS, contiguous=False)[0] == "rows * stride_0 + cols * stride_1"


def test_a_channel_in_the_middle_of_a_flat_index() -> None:
    whole = Group("offs", (4 * 8 * 6, 3 * 7 * 5), "mask")
    offset, mask = reach((C, ONE), (N, C, M), whole)
    assert (offset, mask) == ("((offs // m) % c)", "mask")


def test_a_dimension_that_straddles_groups_goes_by_the_flat_index() -> None:
    groups = (Group("rows", (2, 3), "row_mask"), Group("cols", (2 * 8, 7), "col_mask"))
    assert split(((4, 3), (8, 7)), groups) is None
    offset, mask = reach((C,), ((4, 3), (8, 7)), *groups)
    assert "rows *" in offset and offset.endswith("% c)")
    assert mask == "(row_mask & col_mask)"


def test_bare() -> None:
    assert bare("((a + b))") == "a + b"
    assert bare("(a) + (b)") == "(a) + (b)"
