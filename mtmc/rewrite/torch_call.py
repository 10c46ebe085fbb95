"""torch_call: an ATen op of the graph -> the Python call that a person would write, for any shape."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

from mtmc.rewrite.graph import CONSTANT, FOURIER, IN_ORDER, Graph, Op, Ref, Varying, is_number
from mtmc.rewrite.operators.fourier import Transform, transform_of
from mtmc.rewrite.sizes import NoExpression, Scope
from mtmc.rewrite.write_back import NORM, in_place_text

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
    **{f"aten.conv{n}d.default": f"{_FUNCTIONAL}.conv{n}d" for n in (1, 2, 3)},
    **{f"aten.conv{n}d.padding": f"{_FUNCTIONAL}.conv{n}d" for n in (1, 2, 3)},
    "aten.conv_transpose1d.default": f"{_FUNCTIONAL}.conv_transpose1d",
    **{f"aten.conv_transpose{n}d.input": f"{_FUNCTIONAL}.conv_transpose{n}d" for n in (2, 3)},
    **{f"aten.max_pool{n}d.default": f"{_FUNCTIONAL}.max_pool{n}d" for n in (1, 2, 3)},
    **{f"aten.avg_pool{n}d.default": f"{_FUNCTIONAL}.avg_pool{n}d" for n in (1, 2, 3)},
    **{f"aten.adaptive_avg_pool{n}d.default": f"{_FUNCTIONAL}.adaptive_avg_pool{n}d" for n in (1, 2, 3)},
    "aten.cumsum.default": "torch.cumsum",
    "aten.cumprod.default": "torch.cumprod",
    "aten.logcumsumexp.default": "torch.logcumsumexp",
    "aten.flip.default": "torch.flip",
    "aten.cat.default": "torch.cat",
    "aten.tril.default": "torch.tril",
    "aten.triu.default": "torch.triu",
    "aten.numpy_T.default": "torch.t",
    "aten.t.default": "torch.t",
    "aten.unsqueeze.default": "torch.unsqueeze",
    "aten.squeeze.dim": "torch.squeeze",
    "aten.flatten.using_ints": "torch.flatten",
    "aten.narrow.default": "torch.narrow",
    "aten.einsum.default": "torch.einsum",
    "aten.clone.default": "torch.clone",
    "aten.mean.dim": "torch.mean",
    "aten.sum.dim_IntList": "torch.sum",
    "aten.clamp.default": "torch.clamp",
    "aten.leaky_relu.default": f"{_FUNCTIONAL}.leaky_relu",
    "aten.hardtanh.default": f"{_FUNCTIONAL}.hardtanh",
    "aten.hardswish.default": f"{_FUNCTIONAL}.hardswish",
    "aten.mish.default": f"{_FUNCTIONAL}.mish",
    "aten.dropout.default": f"{_FUNCTIONAL}.dropout",
    "aten.scaled_dot_product_attention.default": f"{_FUNCTIONAL}.scaled_dot_product_attention",
}
_NORMS = {
    "aten.batch_norm.default": (0, 3, 4, 1, 2, 5, 6, 7),
    "aten._native_batch_norm_legit_functional.default": (0, None, None, 1, 2, 5, 6, 7),
    "aten._native_batch_norm_legit_no_training.default": (0, 3, 4, 1, 2, None, 5, 6),
    "aten._native_batch_norm_legit.no_stats": (0, None, None, 1, 2, 3, 4, 5),
    "aten.instance_norm.default": (0, 3, 4, 1, 2, 5, 6, 7),
}
"""Where the arguments of torch.nn.functional.batch_norm and instance_norm stand in the op's: input, mean and variance
that are kept, weight, bias, whether to use the input's own, momentum, eps. In training the statistics that are kept make
no difference to the normalized tensor."""
_FOUND_BY_ITSELF = {("aten.einsum.default", "path")}
"""Arguments of an op that its public function does not take: torch.einsum asks opt_einsum for its path, if that is there."""
_SHAPED = ("aten.view.default", "aten.reshape.default", "aten._unsafe_view.default")
"""Views that are told all sizes: what a kernel makes may lie in another order than theirs says, see `channels_last`."""


def call_text(
    op: Op, expressions: Mapping[str, str], scope: Scope, graph: Graph, in_place: tuple[tuple[int, int, str], ...] = ()
) -> str:
    """The call as an expression. expressions: of the values in reach. in_place: see `WriteBack.in_place`.

    Raises: NoExpression.
    """

    def text(item: Any, between: bool = False) -> str:
        return _argument(item, expressions, scope, op, between)

    if op.target == CONSTANT:
        device = f", device={scope.tensors[0][0]}.device" if scope.tensors else ""
        if is_number(op):  # filled on the device: a copy from the host would wait for it
            return f"torch.full((), {_numbers(op.args[0])}, dtype={op.args[1]}{device})"
        return f"torch.tensor({_numbers(op.args[0])}, dtype={op.args[1]}{device})"
    if op.target == IN_ORDER:
        return f"{text(op.args[0], True)}.contiguous()"
    if op.target == FOURIER:
        return _transform(text(op.args[0], True), text(op.args[2]), transform_of(op))
    if in_place and op.target != NORM:
        named = ", ".join(f"{key}={text(value)}" for key, value in op.kwargs.items())
        return in_place_text(op, expressions[in_place[0][2]], text, named)
    if op.target in _NORMS and (in_place or op.target != NORM or not set(op.outputs[1:]) & set(graph.used)):
        kind = "instance_norm" if "instance" in op.target else "batch_norm"
        found = [op.args[at] if at is not None else None for at in _NORMS[op.target]]
        found[5] = bool(found[5])
        if in_place:
            found[1:3] = op.args[3:5]
        return f"{_FUNCTIONAL}.{kind}({', '.join(text(item) for item in found)})"
    name = op.target.split(".")[1]
    if op.target in _SHAPED and isinstance(op.args[0], Ref):
        return f"{text(op.args[0])}.reshape({_target_shape(op.args[1], text)})"
    if name in _BINARY and len(op.args) == 2 and not op.kwargs:
        return f"{text(op.args[0], True)} {_BINARY[name]} {text(op.args[1], True)}"
    arguments = [text(item) for item in op.args]
    if op.target == "aten.group_norm.default":
        arguments = arguments[:5]  # the sixth chooses cudnn, which the public function does by itself
    if op.target == "aten.layer_norm.default":
        arguments = arguments[:5]
    said = {key: value for key, value in op.kwargs.items() if (op.target, key) not in _FOUND_BY_ITSELF}
    arguments += [f"{key}={text(value)}" for key, value in said.items()]
    function = _CALLS.get(op.target, f"torch.ops.{op.target}")
    return f"{function}({', '.join(arguments)})"


def _transform(x: str, length: str, found: Transform) -> str:
    """torch's transform of real numbers, or of pairs of them side by side."""
    if not found.real:
        x = f"torch.view_as_complex({x}.unflatten(-1, (-1, 2)))"
    norm = "" if found.norm == "backward" else f', norm="{found.norm}"'
    call = f"torch.fft.{found.kind}({x}, {length}{norm})"
    if found.kind == "irfft":
        return call
    return f"torch.view_as_real({call}).flatten(-2)" if found.part == "both" else f"{call}.{found.part}.contiguous()"


def gives_one(op: Op, used: Collection[str]) -> bool:
    """Whether the call that is written for an op gives its first output alone. used: values that something reads."""
    return len(op.outputs) == 1 or (op.target in _NORMS and not set(op.outputs[1:]) & set(used))


def _argument(item: Any, expressions: Mapping[str, str], scope: Scope, op: Op, between: bool = False) -> str:
    """An argument as text. between: it stands beside an operator."""
    import torch

    if isinstance(item, Ref):
        return expressions[item.name]
    if isinstance(item, Varying):
        number = scope.number(item)
        return f"({number})" if between and " " in number else number
    if isinstance(item, tuple):
        return "[" + ", ".join(_argument(part, expressions, scope, op) for part in item) + "]"
    if isinstance(item, torch.device):
        tensors = [expressions[ref] for ref in op.refs()] or [name for name, _ in scope.tensors]
        return f"{tensors[0]}.device" if tensors else f"torch.{item!r}"
    return _numbers(item)


def _numbers(item: Any) -> str:
    """A number, or nested lists of numbers, as text."""
    if isinstance(item, list):
        return "[" + ", ".join(_numbers(part) for part in item) + "]"
    return f'float("{item}")' if isinstance(item, float) and not math.isfinite(item) else repr(item)


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
