"""makers: tensors of numbers, as values inside a kernel: constants, and numbers that go up along a dimension.

A kernel of nothing else there is not: what it reads tells the device, and where it is to be launched.
"""

from __future__ import annotations

from typing import Any

from mtmc.rewrite.body import Index, Node, NotCovered, Number, Operand, operand
from mtmc.rewrite.builder import Builder, Expand
from mtmc.rewrite.graph import Op, Ref
from mtmc.rewrite.operators.steps import argument
from mtmc.rewrite.operators.typed import kind_of, result_dtype, triton_type, typed


def spread(builder: Builder, op: Op, expression: str, *operands: Operand) -> None:
    """Add the op's result: an expression over operands that broadcast to the shape of the result."""
    name, dtype = op.outputs[0], result_dtype(builder, op)
    shape = builder.graph.values[name].shape
    builder.nodes[name] = Node(name, "map", expression, operands, shape, kind_of(dtype), flops=0)


def _filled(at: int, named: str = "fill_value") -> Expand:
    """at: where the number stands among the arguments. What an op is like is read too: it tells the device."""

    def expand(builder: Builder, op: Op) -> None:
        value = operand(argument(op, at, named))
        _constant(builder, op, value)

    return expand


def _constant(builder: Builder, op: Op, value: Operand) -> None:
    dtype = result_dtype(builder, op)
    first, shape = op.args[0] if op.args else None, builder.graph.values[op.outputs[0]].shape
    like = [first.name] if isinstance(first, Ref) and builder.shape(first.name) == shape else []
    value = typed(builder, value, dtype)
    spread(builder, op, f"tl.cast({{0}}, {triton_type(dtype)})", value, *like)


def _number(value: float) -> Expand:
    """The same number whatever the arguments; of an empty tensor any is right."""

    def expand(builder: Builder, op: Op) -> None:
        _constant(builder, op, Number(value))

    return expand


def _arange(start_at: int | None, end_at: int, step_at: int | None) -> Expand:
    """Where start, end and step stand among the arguments."""

    def part(op: Op, at: int | None, default: Any) -> Operand:
        return operand(op.args[at] if at is not None and len(op.args) > at else default)

    def expand(builder: Builder, op: Op) -> None:
        start, step = part(op, start_at, 0), part(op, step_at, 1)
        dtype = result_dtype(builder, op)
        if kind_of(dtype) == "bool":
            raise NotCovered(f"{op.target} of masks")
        kind = triton_type(dtype)
        start, step = typed(builder, start, dtype), typed(builder, step, dtype)
        spread(builder, op, f"(tl.cast({{0}}, {kind}) * {{2}} + {{1}}).to({kind})", Index(1), start, step)

    return expand


def _copy(builder: Builder, op: Op) -> None:
    """Another tensor's numbers in the shape and dtype of the first."""
    source = operand(op.args[1])
    spread(builder, op, "{0}", typed(builder, source, result_dtype(builder, op)), op.args[0].name)


MAKERS: dict[str, Expand] = {
    "aten.full.default": _filled(1),
    "aten.full_like.default": _filled(1),
    "aten.fill.Scalar": _filled(1, "value"),
    "aten.fill.Tensor": _filled(1, "value"),
    "aten.scalar_tensor.default": _filled(0, "s"),
    "aten.new_full.default": _filled(2),
    **{f"aten.{name}.default": _number(0) for name in ["zeros", "zeros_like", "new_zeros", "empty_like", "new_empty"]},
    **{f"aten.{name}.default": _number(1) for name in ["ones", "ones_like", "new_ones"]},
    "aten.empty.memory_format": _number(0),
    "aten.empty_strided.default": _number(0),
    "aten.empty_permuted.default": _number(0),
    "aten.arange.default": _arange(None, 0, None),
    "aten.arange.start": _arange(0, 1, None),
    "aten.arange.start_step": _arange(0, 1, 2),
    "aten.copy.default": _copy,
}
