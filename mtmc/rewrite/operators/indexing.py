"""indexing: ops that only move elements, as nodes that say which element of their operand each element of the result is.

Slices, permutations, joins, pads, rolls, lookups by index: inside a kernel none of them costs a pass over memory, and none
ends a fusion, since whoever needs an element reads it where it lies (`index_maps`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mtmc.rewrite.body import NotCovered
from mtmc.rewrite.builder import Builder, Expand
from mtmc.rewrite.graph import Op, Ref, Shape, Size, Varying, is_one
from mtmc.rewrite.index_maps import (
    Diagonal,
    Expanded,
    Flipped,
    IndexMap,
    Joined,
    Padded,
    Permuted,
    Repeated,
    Replaced,
    Rolled,
    Selected,
    Sliced,
    Unfolded,
)
from mtmc.rewrite.operators.steps import argument, dim_of, dims_of, floats, result_of, tensor


def sizes_of(builder: Builder, number: Any) -> Size:
    """A whole number among an op's arguments, at every variant. Raises: NotCovered for anything else."""
    if isinstance(number, Varying) and all(isinstance(value, int) for value in number.values):
        return tuple(int(value) for value in number.values)
    if isinstance(number, int) and not isinstance(number, bool):
        return (number,) * len(builder.graph.variants)
    raise NotCovered(f"{number!r} where a whole number is expected")


def _from_start(number: Size, shape: Size) -> Size:
    """A position that may be counted from the end, kept inside the dimension."""
    counted = (at + size if at < 0 else at for at, size in zip(number, shape, strict=True))
    return tuple(min(max(at, 0), size) for at, size in zip(counted, shape, strict=True))


def _one(operation: str, make: Callable[[Builder, Op, Shape], IndexMap]) -> Expand:
    """An op of one operand. make: its map, by the builder, the op and the operand's shape."""

    def expand(builder: Builder, op: Op) -> None:
        x = tensor(op)
        index = make(builder, op, builder.shape(x))
        dims = index.dims if isinstance(index, Flipped) else ()
        builder.index(operation, index, (x,), result_of(builder, op), name=op.outputs[0], dims=dims)

    return expand


def _permuted(builder: Builder, op: Op, shape: Shape) -> IndexMap:
    return Permuted(dims_of(shape, op.args[1]))


def _transposed(builder: Builder, op: Op, shape: Shape) -> IndexMap:
    dims = list(range(len(shape)))
    if not shape:
        return Permuted(())
    first, second = (each % len(shape) for each in (op.args[1:3] if len(op.args) > 2 else (0, len(shape) - 1)))
    dims[first], dims[second] = dims[second], dims[first]
    return Permuted(tuple(dims))


def _moved(builder: Builder, op: Op, shape: Shape) -> IndexMap:
    source, target = dims_of(shape, op.args[1]), dims_of(shape, op.args[2])
    placed = dict(zip(target, source, strict=True))
    left = iter(dim for dim in range(len(shape)) if dim not in source)
    return Permuted(tuple(placed[dim] if dim in placed else next(left) for dim in range(len(shape))))


def _sliced(builder: Builder, op: Op, shape: Shape) -> IndexMap:
    dim = dim_of(op, 1, len(shape))
    start, step = argument(op, 2, "start"), argument(op, 4, "step", 1)
    first = sizes_of(builder, 0 if start is None else start)
    return Sliced(dim, _from_start(first, shape[dim]), sizes_of(builder, step))


def _narrowed(builder: Builder, op: Op, shape: Shape) -> IndexMap:
    dim = dim_of(op, 1, len(shape))
    return Sliced(dim, _from_start(sizes_of(builder, op.args[2]), shape[dim]), sizes_of(builder, 1))


def _selected(builder: Builder, op: Op, shape: Shape) -> IndexMap:
    dim = dim_of(op, 1, len(shape))
    return Selected(dim, _from_start(sizes_of(builder, op.args[2]), shape[dim]))


def _flipped(builder: Builder, op: Op, shape: Shape) -> IndexMap:
    return Flipped(dims_of(shape, op.args[1]))


def _rolled(builder: Builder, op: Op, shape: Shape) -> IndexMap:
    shifts, dims = op.args[1], argument(op, 2, "dims", ())
    if dims == ():
        if len(shape) != 1:
            raise NotCovered("a roll over all elements")
        dims = (0,)
    shifts = shifts if isinstance(shifts, tuple) else (shifts,)
    return Rolled(dims_of(shape, dims), tuple(sizes_of(builder, each) for each in shifts))


def _diagonal(builder: Builder, op: Op, shape: Shape) -> IndexMap:
    offset = sizes_of(builder, argument(op, 1, "offset", 0))
    first = argument(op, 2, "dim1", 0) % len(shape)
    second = argument(op, 3, "dim2", 1) % len(shape)
    below, right = tuple(max(-each, 0) for each in offset), tuple(max(each, 0) for each in offset)
    return Diagonal(first, second, (below, right))


def _each_repeated(builder: Builder, op: Op, shape: Shape) -> IndexMap:
    dim = argument(op, 2, "dim")
    if dim is None:
        raise NotCovered("elements repeated over all dimensions")
    return Repeated(dim % len(shape), sizes_of(builder, op.args[1]), each=True)


def _last_two(builder: Builder, op: Op, shape: Shape) -> IndexMap:
    dims = list(range(len(shape)))
    return Permuted((*dims[:-2], dims[-1], dims[-2]))


def _unfolded(builder: Builder, op: Op, shape: Shape) -> IndexMap:
    return Unfolded(dim_of(op, 1, len(shape)), sizes_of(builder, op.args[3]))


def _glu(builder: Builder, op: Op) -> None:
    """The first half of a dimension times the sigmoid of the second."""
    x = tensor(op)
    floats(builder, op, x)
    dim, result = dim_of(op, 1, len(builder.shape(x)), -1), result_of(builder, op)
    starts = (sizes_of(builder, 0), result[dim])
    value, gate = (builder.index("slice", Sliced(dim, at, sizes_of(builder, 1)), (x,), result) for at in starts)
    builder.map("{0} * tl.sigmoid({1})", value, gate, name=op.outputs[0], flops=5)


def _expanded(builder: Builder, op: Op, shape: Shape) -> IndexMap:
    return Expanded()


def _repeated(builder: Builder, op: Op) -> None:
    """One dimension after the other; new ones in front are repeated as dimensions of size 1."""
    x, counts = tensor(op), [sizes_of(builder, each) for each in op.args[1]]
    shape = builder.shape(x)
    ones = (1,) * len(builder.graph.variants)
    if len(counts) > len(shape):
        shape = (*(ones for _ in range(len(counts) - len(shape))), *shape)
        x = builder.view(x, shape)
    steps = [dim for dim, count in enumerate(counts) if not is_one(count)]
    for dim in steps:
        size = tuple(a * b for a, b in zip(shape[dim], counts[dim], strict=True))
        shape = (*shape[:dim], size, *shape[dim + 1 :])
        name = op.outputs[0] if dim == steps[-1] else None
        index = Expanded() if is_one(builder.shape(x)[dim]) else Repeated(dim, counts[dim])
        x = builder.index("repeat", index, (x,), shape, name=name)
    if not steps:
        builder.view(x, shape, name=op.outputs[0])


def _split(at: str) -> Expand:
    """Pieces of a dimension. at: how many elements each has ("size", "sizes"), how many there are ("chunks"), or that each
    is one element whose dimension is gone ("unbind")."""

    def expand(builder: Builder, op: Op) -> None:
        x = tensor(op)
        shape = builder.shape(x)
        dim = dim_of(op, 1 if at == "unbind" else 2, len(shape))
        start = sizes_of(builder, 0)
        for number, output in enumerate(op.outputs):
            result = result_of(builder, op, number)
            if at == "unbind":
                builder.index("select", Selected(dim, start), (x,), result, name=output)
                start = tuple(each + 1 for each in start)
            else:
                builder.index("slice", Sliced(dim, start, sizes_of(builder, 1)), (x,), result, name=output)
                start = tuple(a + b for a, b in zip(start, result[dim], strict=True))

    return expand


def _parts(builder: Builder, op: Op) -> list[str]:
    """The tensors of an op that joins several. Raises: NotCovered where they are not of one kind."""
    parts = op.args[0]
    if not isinstance(parts, tuple) or not parts or not all(isinstance(part, Ref) for part in parts):
        raise NotCovered(f"{op.target} of something else than tensors")
    names = [part.name for part in parts]
    if len({builder.compute(name) for name in names}) != 1:
        raise NotCovered(f"{op.target} of floating-point numbers and others")
    return names


def _cat(builder: Builder, op: Op) -> None:
    names, shape = _parts(builder, op), result_of(builder, op)
    if any(len(builder.shape(name)) != len(shape) for name in names):
        raise NotCovered("an empty part without dimensions")
    dim = dim_of(op, 1, len(shape))
    builder.index("join", Joined(dim), names, shape, name=op.outputs[0], dims=(dim,))


def _stack(builder: Builder, op: Op) -> None:
    names, shape = _parts(builder, op), result_of(builder, op)
    dim = dim_of(op, 1, len(shape))
    one = (*shape[:dim], (1,) * len(builder.graph.variants), *shape[dim + 1 :])
    parts = [builder.view(name, one, hint="layer") for name in names]
    builder.index("join", Joined(dim), parts, shape, name=op.outputs[0], dims=(dim,))


def _before(builder: Builder, op: Op, rank: int) -> tuple[Size, ...]:
    """How many elements a pad puts in front, for each dimension. They are given for the last dimension first."""
    given = op.args[1]
    if not isinstance(given, tuple):
        raise NotCovered(f"{op.target} by {given!r}")
    before = [sizes_of(builder, 0)] * rank
    for number, each in enumerate(given[::2]):
        before[rank - 1 - number] = sizes_of(builder, each)
    return tuple(before)


def _padded(how: str) -> Expand:
    """how: as in `Padded`; "" where the op's argument says."""

    def expand(builder: Builder, op: Op) -> None:
        x = tensor(op)
        mode = how or str(argument(op, 2, "mode", "constant"))
        value = argument(op, 2 if how else 3, "value", 0) if mode == "constant" else None
        if isinstance(value, (Varying, Ref)):
            raise NotCovered("a pad with a number that differs between shapes")
        index = Padded(_before(builder, op, len(builder.shape(x))), mode)
        fill = None if mode != "constant" else float(value or 0)
        builder.index("pad", index, (x,), result_of(builder, op), name=op.outputs[0], fill=fill)

    return expand


def _replaced(one_only: bool) -> Expand:
    """slice_scatter and select_scatter: a tensor with a part of it replaced."""

    def expand(builder: Builder, op: Op) -> None:
        x, part = tensor(op), tensor(op, 1)
        shape = builder.shape(x)
        if builder.compute(x) != builder.compute(part):
            raise NotCovered(f"{op.target} of floating-point numbers and others")
        dim = dim_of(op, 2, len(shape))
        start = argument(op, 3, "index" if one_only else "start")
        first = _from_start(sizes_of(builder, 0 if start is None else start), shape[dim])
        if one_only:
            index = Replaced(dim, first, tuple(each + 1 for each in first), gone=True)
        else:
            if argument(op, 5, "step", 1) != 1:
                raise NotCovered(f"{op.target} with a step")
            end = tuple(a + b for a, b in zip(first, builder.shape(part)[dim], strict=True))
            index = Replaced(dim, first, end)
        builder.index("replace", index, (x, part), shape, name=op.outputs[0])

    return expand


INDEXING: dict[str, Expand] = {
    "aten.permute.default": _one("permute", _permuted),
    "aten.transpose.int": _one("permute", _transposed),
    "aten.t.default": _one("permute", _transposed),
    "aten.numpy_T.default": _one("permute", lambda builder, op, shape: Permuted(tuple(range(len(shape)))[::-1])),
    "aten.mT.default": _one("permute", _last_two),
    "aten.adjoint.default": _one("permute", _last_two),
    "aten.swapaxes.default": _one("permute", _transposed),
    "aten.swapdims.default": _one("permute", _transposed),
    "aten.unfold.default": _one("unfold", _unfolded),
    "aten.glu.default": _glu,
    "aten.movedim.int": _one("permute", _moved),
    "aten.movedim.intlist": _one("permute", _moved),
    "aten.slice.Tensor": _one("slice", _sliced),
    "aten.narrow.default": _one("slice", _narrowed),
    "aten.select.int": _one("select", _selected),
    "aten.flip.default": _one("flip", _flipped),
    "aten.roll.default": _one("roll", _rolled),
    "aten.diagonal.default": _one("diagonal", _diagonal),
    "aten.repeat_interleave.self_int": _one("repeat", _each_repeated),
    "aten.expand.default": _one("expand", _expanded),
    "aten.expand_as.default": _one("expand", _expanded),
    "aten.repeat.default": _repeated,
    "aten.tile.default": _repeated,
    "aten.split.Tensor": _split("size"),
    "aten.split_with_sizes.default": _split("sizes"),
    "aten.chunk.default": _split("chunks"),
    "aten.unbind.int": _split("unbind"),
    "aten.cat.default": _cat,
    "aten.concat.default": _cat,
    "aten.stack.default": _stack,
    "aten.constant_pad_nd.default": _padded("constant"),
    "aten.pad.default": _padded(""),
    "aten.reflection_pad1d.default": _padded("reflect"),
    "aten.reflection_pad2d.default": _padded("reflect"),
    "aten.reflection_pad3d.default": _padded("reflect"),
    "aten.replication_pad1d.default": _padded("replicate"),
    "aten.replication_pad2d.default": _padded("replicate"),
    "aten.replication_pad3d.default": _padded("replicate"),
    "aten.slice_scatter.default": _replaced(False),
    "aten.select_scatter.default": _replaced(True),
}
