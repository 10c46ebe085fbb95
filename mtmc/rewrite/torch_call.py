"""torch_call: an ATen op of the graph -> the Python call that a person would write, for any shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mtmc.rewrite.graph import CONSTANT, Graph, Op, Ref, Varying
from mtmc.rewrite.sizes import NoExpression, Scope

_FUNCTIONAL = "torch.nn.functional"
_BINARY = {"add": "+", "sub": "-", "mul": "*", "div": "/", "matmul": "@", "mm": "@"}
_CALLS = {
    "aten.linear.default": f"{_FUNCTIONAL}.linear",
    "aten.gelu.default": f"{_FUNCTIONAL}.gelu",
    "aten.relu.default": "torch.relu",
    "aten.sigmoid.default": "torch.sigmoid",
    "aten.tanh.default": "torch.tanh",
    "aten.exp.default": "torch.exp",
    "aten.sqrt.default": "torch.sqrt",
    "aten.rsqrt.default": "torch.rsqrt",
    "aten.bmm.default": "torch.bmm",
    "aten.softmax.int": "torch.softmax",
    "aten.log_softmax.int": "torch.log_softmax",
    "aten.logsumexp.default": "torch.logsumexp",
    "aten.silu.default": f"{_FUNCTIONAL}.silu",
    "aten.amax.default": "torch.amax",
    "aten.max.dim": "torch.max",
    "aten.min.dim": "torch.min",
    "aten.argmax.default": "torch.argmax",
    "aten.transpose.int": "torch.transpose",
    "aten.permute.default": "torch.permute",
    "aten.group_norm.default": f"{_FUNCTIONAL}.group_norm",
    "aten.layer_norm.default": f"{_FUNCTIONAL}.layer_norm",
}
_SHAPED = ("aten.view.default", "aten.reshape.default")


def call_text(op: Op, expressions: Mapping[str, str], scope: Scope, graph: Graph) -> str:
    """The call as an expression. expressions: of the values in reach. Raises: NoExpression."""

    def text(item: Any) -> str:
        return _argument(item, expressions, scope, op)

    if op.target == CONSTANT:
        device = f", device={scope.tensors[0][0]}.device" if scope.tensors else ""
        return f"torch.tensor({op.args[0]!r}, dtype={op.args[1]}{device})"
    name = op.target.split(".")[1]
    if op.target in _SHAPED and isinstance(op.args[0], Ref):
        return f"{text(op.args[0])}.reshape({_target_shape(op.args[1], text)})"
    if name in _BINARY and len(op.args) == 2 and not op.kwargs:
        return f"{text(op.args[0])} {_BINARY[name]} {text(op.args[1])}"
    arguments = [text(item) for item in op.args]
    if op.target == "aten.group_norm.default":
        arguments = arguments[:5]  # the sixth chooses cudnn, which the public function does by itself
    if op.target == "aten.layer_norm.default":
        arguments = arguments[:5]
    arguments += [f"{key}={text(value)}" for key, value in op.kwargs.items()]
    function = _CALLS.get(op.target, f"torch.ops.{op.target}")
    return f"{function}({', '.join(arguments)})"


def _argument(item: Any, expressions: Mapping[str, str], scope: Scope, op: Op) -> str:
    import torch

    if isinstance(item, Ref):
        return expressions[item.name]
    if isinstance(item, Varying):
        return scope.number(item)
    if isinstance(item, tuple):
        return "[" + ", ".join(_argument(part, expressions, scope, op) for part in item) + "]"
    if isinstance(item, torch.device):
        tensors = [expressions[ref] for ref in op.refs()] or [name for name, _ in scope.tensors]
        return f"{tensors[0]}.device" if tensors else f"torch.{item!r}"
    if isinstance(item, float) and item in (float("inf"), float("-inf")):
        return f'float("{item}")'
    return repr(item)


def _target_shape(shape: tuple[Any, ...], text: Callable[[Any], str]) -> str:
    """The sizes of a reshape; one that has no expression may be left to torch as -1."""
    parts, open_ = [], any(item == -1 for item in shape)
    for item in shape:
        try:
            parts.append(text(item))
        except NoExpression:
            if open_:
                raise
            open_ = True
            parts.append("-1")
    return ", ".join(parts)
