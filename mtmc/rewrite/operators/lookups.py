"""lookups: elements at indices that another tensor holds: rows of an embedding, gather, indexing by whole numbers."""

from __future__ import annotations

import math
from typing import Any

from mtmc.rewrite.body import NotCovered
from mtmc.rewrite.builder import Builder, Expand
from mtmc.rewrite.graph import Op, Ref
from mtmc.rewrite.index_maps import Looked
from mtmc.rewrite.operators.steps import dim_of, result_of, tensor


def index_of(builder: Builder, op: Op, argument: Any) -> str:
    """The value that holds indices. To torch numbers of type uint8 are a mask."""
    whole = isinstance(argument, Ref) and builder.compute(argument.name) == "int"
    if not whole or getattr(builder.graph.values.get(argument.name), "dtype", "") == "uint8":
        raise NotCovered(f"{op.target} by something else than whole numbers")
    return argument.name


def _embedding(builder: Builder, op: Op) -> None:
    table, rows = tensor(op), index_of(builder, op, op.args[1])
    looked = Looked((0,), 0, len(builder.shape(rows)))
    builder.index("lookup", looked, (table, rows), result_of(builder, op), name=op.outputs[0], fill=math.nan)


def _index_select(builder: Builder, op: Op) -> None:
    x, which = tensor(op), index_of(builder, op, op.args[2])
    dim = dim_of(op, 1, len(builder.shape(x)))
    looked = Looked((dim,), dim, 1)
    builder.index("lookup", looked, (x, which), result_of(builder, op), name=op.outputs[0], fill=math.nan)


def _gather(builder: Builder, op: Op) -> None:
    x, which = tensor(op), index_of(builder, op, op.args[2])
    dim = dim_of(op, 1, len(builder.shape(x)))
    looked = Looked((dim,), 0, len(builder.shape(x)), aligned=True)
    builder.index("gather", looked, (x, which), result_of(builder, op), name=op.outputs[0], fill=math.nan)


def _index(builder: Builder, op: Op) -> None:
    """x[i, :, j]: where the indices stand for neighbouring dimensions, the result has theirs there, else in front."""
    x, given = tensor(op), op.args[1]
    if not isinstance(given, tuple):
        raise NotCovered(f"{op.target} by {given!r}")
    dims = tuple(dim for dim, each in enumerate(given) if each is not None)
    names = [index_of(builder, op, given[dim]) for dim in dims]
    rank = max(len(builder.shape(name)) for name in names)
    first = dims[0] if dims == tuple(range(dims[0], dims[-1] + 1)) else 0
    looked = Looked(dims, first, rank, negative=True)
    builder.index("lookup", looked, (x, *names), result_of(builder, op), name=op.outputs[0], fill=math.nan)


LOOKUPS: dict[str, Expand] = {
    "aten.embedding.default": _embedding,
    "aten.index_select.default": _index_select,
    "aten.gather.default": _gather,
    "aten.index.Tensor": _index,
}
