"""ATen calls in the spelling that a PyTorch user knows: `aten.linear.default` is `torch.nn.functional.linear`.

Also the expressions that make weights.

What is not in these tables is spelled `torch.ops.aten.NAME.OVERLOAD(...)`, which is as right and less pretty. An entry
is only used for a call that gives no more arguments than the entry is known to take.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from mtmc.task.live_layout import as_tuple, contiguous, layout_of

SYMBOLS: dict[Callable[..., Any], str] = {
    operator.add: "+",
    operator.sub: "-",
    operator.mul: "*",
    operator.floordiv: "//",
    operator.truediv: "/",
    operator.mod: "%",
    operator.pow: "**",
    operator.eq: "==",
    operator.ne: "!=",
    operator.lt: "<",
    operator.le: "<=",
    operator.gt: ">",
    operator.ge: ">=",
}
FUNCTIONS = {
    torch.sym_max: "torch.sym_max",
    torch.sym_min: "torch.sym_min",
    torch.sym_float: "torch.sym_float",
    torch.sym_int: "torch.sym_int",
    torch.sym_not: "torch.sym_not",
    torch.sym_ite: "torch.sym_ite",
    math.floor: "math.floor",
    math.ceil: "math.ceil",
    math.trunc: "math.trunc",
}
"""How functions of sizes are spelled, which are no ATen calls: between two arguments, and before them."""

_INFIX = {
    "aten.add.Tensor": "+",
    "aten.sub.Tensor": "-",
    "aten.mul.Tensor": "*",
    "aten.div.Tensor": "/",
    "aten.matmul.default": "@",
    "aten.eq.Scalar": "==",
    "aten.ne.Scalar": "!=",
    "aten.lt.Scalar": "<",
    "aten.le.Scalar": "<=",
    "aten.gt.Scalar": ">",
    "aten.ge.Scalar": ">=",
    **{
        f"aten.__{name}__.{kind}": sign
        for name, sign in (("and", "&"), ("or", "|"), ("xor", "^"))
        for kind in ("Tensor", "Scalar")
    },
}

_METHODS = {
    "aten.view.default": ("view", 2),
    "aten.reshape.default": ("reshape", 2),
    "aten.permute.default": ("permute", 2),
    "aten.expand.default": ("expand", 2),
    "aten.transpose.int": ("transpose", 3),
    "aten.contiguous.default": ("contiguous", 1),
    "aten.unsqueeze.default": ("unsqueeze", 2),
    "aten.squeeze.dim": ("squeeze", 2),
    "aten.flatten.using_ints": ("flatten", 3),
    "aten.unflatten.int": ("unflatten", 3),
    "aten.chunk.default": ("chunk", 3),
    "aten.split.Tensor": ("split", 3),
    "aten.unbind.int": ("unbind", 2),
    "aten.select.int": ("select", 3),
    "aten.sym_size.int": ("size", 2),
    "aten.pow.Tensor_Scalar": ("pow", 2),
    "aten.mean.dim": ("mean", 3),
    "aten.sum.dim_IntList": ("sum", 3),
    "aten.amax.default": ("amax", 3),
    "aten.to.dtype": ("to", 2),
    "aten._to_copy.default": ("to", 1),
    "aten.masked_fill.Scalar": ("masked_fill", 3),
    "aten.clone.default": ("clone", 1),
    "aten.item.default": ("item", 1),
}

_FUNCTIONS = {
    "aten.relu.default": ("torch.relu", 1),
    "aten.sigmoid.default": ("torch.sigmoid", 1),
    "aten.tanh.default": ("torch.tanh", 1),
    "aten.exp.default": ("torch.exp", 1),
    "aten.log.default": ("torch.log", 1),
    "aten.sqrt.default": ("torch.sqrt", 1),
    "aten.rsqrt.default": ("torch.rsqrt", 1),
    "aten.abs.default": ("torch.abs", 1),
    "aten.sin.default": ("torch.sin", 1),
    "aten.cos.default": ("torch.cos", 1),
    "aten.bmm.default": ("torch.bmm", 2),
    "aten.cat.default": ("torch.cat", 2),
    "aten.stack.default": ("torch.stack", 2),
    "aten.where.self": ("torch.where", 3),
    "aten.softmax.int": ("torch.softmax", 2),
    "aten.log_softmax.int": ("torch.log_softmax", 2),
    "aten.linear.default": ("torch.nn.functional.linear", 3),
    "aten.gelu.default": ("torch.nn.functional.gelu", 1),
    "aten.silu.default": ("torch.nn.functional.silu", 1),
    "aten.layer_norm.default": ("torch.nn.functional.layer_norm", 5),
    "aten.group_norm.default": ("torch.nn.functional.group_norm", 5),
    "aten.conv1d.default": ("torch.nn.functional.conv1d", 7),
    "aten.conv2d.default": ("torch.nn.functional.conv2d", 7),
    "aten.max_pool2d.default": ("torch.nn.functional.max_pool2d", 6),
    "aten.adaptive_avg_pool2d.default": ("torch.nn.functional.adaptive_avg_pool2d", 2),
    "aten.scaled_dot_product_attention.default": ("torch.nn.functional.scaled_dot_product_attention", 6),
}

_WITHOUT_LAST = {"aten.layer_norm.default": 6, "aten.group_norm.default": 6}
"""Calls whose last argument only chooses a library, and is left out."""


def spell(op: str, args: Sequence[str], kwargs: Mapping[str, str]) -> str:
    """One ATen call as an expression. op: "aten.NAME.OVERLOAD". args, kwargs: texts of the arguments."""
    if len(args) == _WITHOUT_LAST.get(op):
        args = args[:-1]
    if op in _INFIX and not kwargs and len(args) == 2:
        return f"{args[0]} {_INFIX[op]} {args[1]}"
    named = [f"{key}={value}" for key, value in kwargs.items()]
    if op in _METHODS and len(args) <= _METHODS[op][1]:
        return f"{args[0]}.{_METHODS[op][0]}({', '.join([*args[1:], *named])})"
    if op in _FUNCTIONS and len(args) <= _FUNCTIONS[op][1]:
        return f"{_FUNCTIONS[op][0]}({', '.join([*args, *named])})"
    if op == "aten.embedding.default" and len(args) == 2 and not kwargs:
        return f"torch.nn.functional.embedding({args[1]}, {args[0]})"
    if op == "aten.batch_norm.default" and len(args) == 9 and not kwargs:
        x, weight, bias, mean, variance, training, momentum, eps, _ = args
        known = ", ".join((x, mean, variance, weight, bias, training, momentum, eps))
        return f"torch.nn.functional.batch_norm({known})"
    name = op.split(".")[1]
    if name.endswith("_") and not name.startswith("_") and hasattr(torch.Tensor, name):  # in place
        return f"{args[0]}.{name}({', '.join([*args[1:], *named])})"
    return f"torch.ops.{op}({', '.join([*args, *named])})"


def initial_tensor(tensor: torch.Tensor) -> str:
    """An expression for a tensor of the same shape, strides and dtype, of plausible size; the state dict replaces it."""
    shape = [str(size) for size in tensor.shape]
    layout = layout_of(tensor, shape) or contiguous(shape)
    memory = as_tuple(layout.memory)
    dtype = "" if tensor.dtype == torch.float32 else f", dtype={tensor.dtype}"
    if tensor.dtype not in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        return layout.part(f"torch.zeros({memory}{dtype})")
    if tensor.dim() < 2:
        return layout.part(f"torch.rand({memory}{dtype})")
    fan_in = max(1, tensor.numel() // max(1, tensor.shape[0]))
    return layout.part(f"torch.randn({memory}{dtype}) * {1 / math.sqrt(fan_in):.3g}")
