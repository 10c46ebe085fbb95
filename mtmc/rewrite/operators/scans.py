"""scans: running sums, products and the like along a dimension, forwards or (between two flips) backwards."""

from __future__ import annotations

from mtmc.rewrite.body import NotCovered
from mtmc.rewrite.builder import Builder, Expand
from mtmc.rewrite.graph import Op, Varying
from mtmc.rewrite.operators.steps import dims_of, tensor
from mtmc.rewrite.operators.typed import result_dtype, typed


def _scan(operation: str) -> Expand:
    def expand(builder: Builder, op: Op) -> None:
        x = typed(builder, tensor(op), result_dtype(builder, op))
        assert isinstance(x, str)
        if isinstance(op.args[1], Varying):
            raise NotCovered(f"{op.target} with another dimension")
        dims = dims_of(builder.shape(x), op.args[1])
        if len(dims) != 1:
            raise NotCovered(f"{op.target} of a number")
        builder.scan(operation, x, dims[0], op.outputs[0])

    return expand


SCANS: dict[str, Expand] = {
    "aten.cumsum.default": _scan("cumsum"),
    "aten.cumprod.default": _scan("cumprod"),
    "aten.logcumsumexp.default": _scan("logcumsumexp"),
}
