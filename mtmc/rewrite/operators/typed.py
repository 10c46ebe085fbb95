"""typed: operands in the dtype that torch computes in, and elementwise ops with an expression for each kind of value.

Floating dtypes are computed in fp32, whole numbers in their own dtype, with torch's promotion between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mtmc.rewrite.body import Compute, Index, NotCovered, Number, Operand, Trailing, folded, operand
from mtmc.rewrite.builder import Builder, Expand
from mtmc.rewrite.graph import FP8, Op, Varying

BITS = {"uint8": 8, "int8": 8, "int16": 16, "int32": 32, "int64": 64}
"""Whole numbers that kernels compute with."""
_FLOATS = ("float32", "float16", "bfloat16", *FP8)


@dataclass(frozen=True)
class Typed:
    """One elementwise op.

    floats, whole, masks: its expression for each kind of value, over {0}, {1}, ...: the op's arguments in order; "" where
    the op is not for these. TYPE stands for Triton's name of the dtype, BITS for its width. compares: whether it gives
    a mask and takes operands in their common dtype; else they are taken in the dtype of the result. operands: how many
    there are; those that are left out take their place in `defaults`.
    """

    floats: str = ""
    whole: str = ""
    masks: str = ""
    flops: int = 1
    compares: bool = False
    operands: int = 1
    defaults: tuple[float, ...] = ()


def kind_of(dtype: str) -> Compute:
    """What values of a dtype are inside a kernel. Raises: NotCovered."""
    if dtype in _FLOATS:
        return "float"
    if dtype == "bool":
        return "bool"
    if dtype in BITS:
        return "int"
    raise NotCovered(f"kernels do not compute on {dtype}")


def result_dtype(builder: Builder, op: Op, output: int = 0) -> str:
    """The dtype of a result, which kernels must know how to compute. Raises: NotCovered."""
    dtype = builder.graph.values[op.outputs[output]].dtype
    kind_of(dtype)
    return dtype


def dtype_of(builder: Builder, item: Operand) -> str:
    """The dtype of an operand; "bool", "int64" and "float32" for numbers, which `promoted` does not count as such."""
    if isinstance(item, (Number, Varying)):
        value = item.value if isinstance(item, Number) else item.values[0]
        return "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float32"
    name = item.value if isinstance(item, Trailing) else item
    if isinstance(name, str):
        if name in builder.graph.values:
            return builder.graph.values[name].dtype
        return {"float": "float32", "int": "int64", "bool": "bool"}[builder.compute(name)]
    return "int64" if isinstance(name, Index) else "float32"


def promoted(builder: Builder, items: Sequence[Operand]) -> str:
    """The dtype that torch computes in: a number changes it only where it is of a higher kind."""
    tensors = [dtype_of(builder, item) for item in items if not isinstance(item, (Number, Varying))]
    numbers = [dtype_of(builder, item) for item in items if isinstance(item, (Number, Varying))]
    found = tensors[0] if tensors else numbers[0]
    for other in tensors[1:]:
        found = _wider(found, other)
    rank = ("bool", "int", "float")
    for other in numbers:
        if rank.index(kind_of(other)) > rank.index(kind_of(found)):
            found = other
    return found


def _wider(one: str, other: str) -> str:
    kinds = {kind_of(one), kind_of(other)}
    if "float" in kinds:
        return "float32"
    if one == "bool" or one == other:
        return other
    if other == "bool":
        return one
    if {one, other} == {"uint8", "int8"}:
        return "int16"
    return max(one, other, key=lambda dtype: (BITS[dtype], dtype != "uint8"))


def typed(builder: Builder, item: Operand, dtype: str) -> Operand:
    """An operand in a dtype: itself where it is that already. Raises: NotCovered."""
    item = folded(builder.graph, item)
    kind = kind_of(dtype)
    if isinstance(item, Number):
        return Number(_number(item.value, dtype))
    if isinstance(item, Varying):
        return item
    if isinstance(item, Index):
        return builder.map(f"tl.cast({{0}}, {triton_type(dtype)})", item, compute=kind, hint="place")
    if kind == "float":
        return builder.floating(item)
    if kind == "bool":
        return item if builder.compute(item) == "bool" else builder.map("{0} != 0", item, compute="bool", hint="mask")
    outside = isinstance(item, str) and item not in builder.nodes
    if (outside or kind_is_exact(builder, item)) and dtype_of(builder, item) == dtype:
        return item
    return builder.map(f"{{0}}.to(tl.{dtype})", item, compute="int", hint=dtype)


def beside(builder: Builder, item: Operand, other: Operand) -> Operand:
    """A number that differs between shapes, as many times as another operand has elements: what the interpreter makes of
    a comparison of single numbers is no mask."""
    if not isinstance(item, Varying) or not isinstance(other, str):
        return item
    return builder.map("tl.zeros_like({1}) + {0}", item, other, compute=builder.compute(other), hint="number", flops=0)


def kind_is_exact(builder: Builder, item: Operand) -> bool:
    """Whether a node of whole numbers has the dtype that the graph gives it: places of extremes are narrower."""
    node = builder.nodes.get(item) if isinstance(item, str) else None
    return node is not None and node.kind == "map" and node.compute == "int"


def triton_type(dtype: str) -> str:
    """Triton's name for what values of a dtype are inside a kernel."""
    kind = kind_of(dtype)
    return "tl.float32" if kind == "float" else "tl.int1" if kind == "bool" else f"tl.{dtype}"


def _number(value: float, dtype: str) -> float:
    """A number as the dtype has it: whole numbers wrap around."""
    if dtype == "bool":
        return bool(value)
    if dtype not in BITS:
        return float(value) if isinstance(value, bool) or abs(value) > 2**31 else value
    bits, low = BITS[dtype], 0 if dtype == "uint8" else -(2 ** (BITS[dtype] - 1))
    return (int(value) - low) % 2**bits + low


def typed_map(builder: Builder, row: Typed, items: Sequence[Operand], dtype: str, name: str | None = None) -> str:
    """Add the node of a row over some operands, computed in a dtype. Raises: NotCovered where the row is not for it."""
    kind = kind_of(dtype)
    expression = {"float": row.floats, "int": row.whole, "bool": row.masks}[kind]
    if not expression:
        raise NotCovered(f"no expression for {dtype}")
    expression = expression.replace("TYPE", triton_type(dtype)).replace("BITS", str(BITS.get(dtype, 32)))
    operands = [typed(builder, item, dtype) for item in items]
    if not any(not isinstance(item, Number) for item in operands):
        raise NotCovered("a result of numbers alone")
    return builder.map(
        expression, *operands, compute="bool" if row.compares else kind, name=name, hint="typed", flops=row.flops
    )


def by_type(row: Typed) -> Expand:
    """The expansion of an op that is one typed row."""

    def expand(builder: Builder, op: Op) -> None:
        given = [operand(argument) for argument in op.args]
        missing = row.operands - len(given)
        items = [*given, *(Number(value) for value in row.defaults[len(row.defaults) - missing :] if missing > 0)]
        if len(items) != row.operands or op.kwargs:
            raise NotCovered(f"{op.target} with arguments {op.args} {dict(op.kwargs)}")
        dtype = promoted(builder, [folded(builder.graph, each) for each in items]) if row.compares else ""
        if dtype == "bool" and not row.masks:
            dtype = "int32"
        try:
            typed_map(builder, row, items, dtype or result_dtype(builder, op), op.outputs[0])
        except NotCovered as error:
            raise NotCovered(f"{op.target}: {error}") from error

    return expand
