"""strides: tensors by their strides in memory, where these are known: of an operand that lies dense."""

from __future__ import annotations

from mtmc.rewrite.body import NotCovered
from mtmc.rewrite.builder import Builder, Expand
from mtmc.rewrite.graph import Op
from mtmc.rewrite.index_maps import Strided
from mtmc.rewrite.operators.indexing import sizes_of
from mtmc.rewrite.operators.steps import argument, result_of, tensor


def _as_strided(builder: Builder, op: Op) -> None:
    """Raises: NotCovered for an offset into the memory of an input, which may itself begin anywhere in it."""
    x, offset = tensor(op), argument(op, 3, "storage_offset")
    if not builder.graph.values[x].contiguous:
        raise NotCovered(f"{op.target} of a tensor with gaps in memory")
    if offset is not None and x in (*builder.graph.inputs, *builder.graph.parameters):
        raise NotCovered(f"{op.target} by an offset into the memory of an input")
    index = Strided(tuple(sizes_of(builder, each) for each in op.args[2]), sizes_of(builder, offset or 0))
    builder.index("strided", index, (x,), result_of(builder, op), name=op.outputs[0])


STRIDES: dict[str, Expand] = {"aten.as_strided.default": _as_strided}
