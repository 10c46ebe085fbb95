"""space: where in memory an element of a kernel's iteration space lies, for any operand.

A kernel loops over groups of dimensions ("rows" and "cols", say), each with one running index. An operand is read at some
logical shape, to which it may broadcast. Its offset is a sum over the runs of dimensions it really has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mtmc.rewrite.body import NotCovered
from mtmc.rewrite.graph import Shape, Size, Tensor, is_one, product, same


@dataclass(frozen=True)
class Group:
    """Dimensions that one index runs over.

    index: expression of the index inside the kernel, already shaped to broadcast ("rows", "cols").
    size: number of its values. mask: expression that is true inside the bounds.
    """

    index: str
    size: Size
    mask: str


@dataclass(frozen=True)
class Access:
    """How to reach an operand's elements: offset from its pointer and the mask, "" where neither is needed."""

    offset: str
    mask: str


SizeName = Callable[[Size], str]
StrideName = Callable[[int], str]


def split(shape: Shape, groups: tuple[Group, ...]) -> list[tuple[int, int]] | None:
    """Which dimensions of `shape` each group runs over, as [start, stop); None where a dimension straddles groups."""
    ranges, start = [], 0
    for group in groups:
        stop = start
        while not same(product(shape[start:stop]), group.size):
            if stop == len(shape):
                return None
            stop += 1
        ranges.append((start, stop))
        start = stop
    if not all(is_one(size) for size in shape[start:]):
        return None
    return ranges


def access(
    tensor: Tensor, ones: int, shape: Shape, groups: tuple[Group, ...], size_name: SizeName, stride_name: StrideName
) -> Access:
    """Offset and mask of `tensor`, read with `ones` trailing size-1 dimensions at the logical shape `shape`.

    groups: of the iteration space; their sizes' product must be the number of elements of `shape`.
    size_name, stride_name: make (and name) the kernel's arguments for a size, and for a stride of the tensor.
    Raises: NotCovered where they are of another number of elements.
    """
    ranges = split(shape, groups)
    if ranges is None and len(groups) == 1:
        raise NotCovered("a value of another number of elements than the kernel goes over")
    if ranges is None:
        return access(tensor, ones, shape, (flat(groups, size_name),), size_name, stride_name)
    lead = len(shape) - len(tensor.shape) - ones
    active = [lead + axis for axis, size in enumerate(tensor.shape) if not is_one(size)]
    runs, masks = [], []
    for group, (start, stop) in zip(groups, ranges, strict=True):
        mine = [axis for axis in active if start <= axis < stop]
        if mine:
            masks.append(group.mask)
        for first, last in _runs(mine, merge=tensor.contiguous):
            index = _digit(group.index, shape, (start, stop), (first, last), size_name)
            runs.append((index, first, last))
    if tensor.contiguous:
        offset = ""
        for index, first, last in runs:
            offset = f"{term(offset)} * {size_name(product(shape[first : last + 1]))} + {index}" if offset else index
    else:
        offset = " + ".join(f"{index} * {stride_name(first - lead)}" for index, first, _ in runs)
    return Access(offset, " & ".join(_factor(mask) for mask in dict.fromkeys(masks) if mask))


def flat(groups: tuple[Group, ...], size_name: SizeName) -> Group:
    """All groups as one, with one running index in row-major order."""
    index = groups[0].index
    for group in groups[1:]:
        index = f"{term(index)} * {size_name(group.size)} + {group.index}"
    mask = " & ".join(dict.fromkeys(_factor(group.mask) for group in groups if group.mask))
    sizes = tuple(group.size for group in groups if group.size)
    return Group(term(index), product(sizes), mask)


def _runs(axes: list[int], merge: bool) -> list[tuple[int, int]]:
    """Maximal runs of neighbouring axes as (first, last); single axes where strides may not be merged."""
    runs: list[tuple[int, int]] = []
    for axis in axes:
        if merge and runs and runs[-1][1] == axis - 1:
            runs[-1] = (runs[-1][0], axis)
        else:
            runs.append((axis, axis))
    return runs


def _digit(index: str, shape: Shape, span: tuple[int, int], run: tuple[int, int], size_name: SizeName) -> str:
    """The part of a group's running index that belongs to a run of its dimensions."""
    below = product(shape[run[1] + 1 : span[1]])
    if below and not is_one(below):
        index = f"({term(index)} // {size_name(below)})"
    above = product(shape[span[0] : run[0]])
    if above and not is_one(above):
        index = f"({index} % {size_name(product(shape[run[0] : run[1] + 1]))})"
    return index


def bare(expression: str) -> str:
    """Without parentheses around the whole of it."""
    while expression.startswith("(") and _closes_at_end(expression):
        expression = expression[1:-1]
    return expression


def term(expression: str) -> str:
    """In parentheses where it is more than one term or factor."""
    simple = expression.isidentifier() or (expression.startswith("(") and _closes_at_end(expression))
    return expression if simple else f"({expression})"


def _factor(mask: str) -> str:
    return mask if mask.isidentifier() else term(mask)


def _closes_at_end(expression: str) -> bool:
    depth = 0
    for position, character in enumerate(expression):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return position == len(expression) - 1
    return False
