"""table: the ops that training tasks are composed of. Adding an op is adding a row.

A row says how the op is written, what it needs of its operand and what is known of its result, so that a task's values
stay finite in half precision and its outputs say something: no exponential of large numbers, no mean of what has been
centred.
"""

from __future__ import annotations

from dataclasses import dataclass

BOUNDED, POSITIVE, LARGE, CENTRED, SHARED = "bounded", "positive", "large", "centred", "shared"
"""What may be known of a value: its numbers are about 1 at most; not below 0; may be thousands; rows have mean 0; rows
have sum 1."""

KEEPS = "keeps"
"""In `Row.gives`: what is known of the operand holds for the result."""


@dataclass(frozen=True)
class Row:
    """One op.

    name: as in a task's description. text: the expression; {x} is the operand, {y} the second one, {c} a number, {m} a
    module or parameter of the model, {d} the last dimension's size. needs, refuses: what must, and must not, be known
    of {x}. gives: what is known of the result. numbers: what {c} is drawn from.
    module: the constructor's expression behind {m}.
    flops: per element of the result. passes: kernels that eager mode takes for it, roughly.
    """

    name: str
    text: str
    needs: frozenset[str] = frozenset()
    refuses: frozenset[str] = frozenset()
    gives: frozenset[str] = frozenset()
    numbers: tuple[float, ...] = ()
    module: str = ""
    flops: int = 1
    passes: int = 1


def _row(
    name: str,
    text: str,
    *,
    needs: str = "",
    refuses: str = "",
    gives: str = "",
    numbers: tuple[float, ...] = (),
    module: str = "",
    flops: int = 1,
    passes: int = 1,
) -> Row:
    sets = [frozenset(each.split()) for each in (needs, refuses, gives)]
    return Row(name, text, sets[0], sets[1], sets[2], numbers, module, flops, passes)


POINTWISE: tuple[Row, ...] = (
    _row("relu", "torch.relu({x})", refuses="positive large", gives="positive"),
    _row("gelu", "nn.functional.gelu({x})", refuses="large", flops=12),
    _row("gelu_tanh", 'nn.functional.gelu({x}, approximate="tanh")', refuses="large", flops=12),
    _row("silu", "nn.functional.silu({x})", refuses="large", flops=6),
    _row("mish", "nn.functional.mish({x})", refuses="large", flops=12),
    _row("tanh", "torch.tanh({x})", refuses="bounded", gives="bounded", flops=6),
    _row("sigmoid", "torch.sigmoid({x})", refuses="large bounded", gives="bounded positive", flops=6),
    _row("elu", "nn.functional.elu({x})", refuses="large positive", flops=5),
    _row("leaky_relu", "nn.functional.leaky_relu({x}, {c})", refuses="positive", numbers=(0.01, 0.1, 0.2), flops=2),
    _row("softplus", "nn.functional.softplus({x})", refuses="large positive", gives="positive", flops=8),
    _row("hardswish", "nn.functional.hardswish({x})", refuses="large bounded", flops=5),
    _row("hardsigmoid", "nn.functional.hardsigmoid({x})", refuses="large bounded", gives="bounded positive", flops=4),
    _row("abs", "torch.abs({x})", refuses="positive", gives="positive"),
    _row("square", "{x} * {x}", refuses="large", gives="positive large"),
    _row("exp", "torch.exp({x})", needs="bounded", gives="positive", flops=4),
    _row("sin", "torch.sin({x})", refuses="large", gives="bounded", flops=10),
    _row(
        "sqrt", "torch.sqrt({x} + {c})", needs="positive", gives="positive", numbers=(0.01, 0.1, 1.0), flops=3, passes=2
    ),
    _row("log1p", "torch.log1p({x})", needs="positive", gives="positive", flops=6),
    _row("reciprocal", "1.0 / ({x} + {c})", needs="positive", gives="positive", numbers=(1.0, 2.0), flops=3, passes=2),
    _row(
        "clamp", "torch.clamp({x}, -{c}, {c})", refuses="bounded positive", gives="bounded", numbers=(0.5, 1.0), flops=2
    ),
    _row("scale", "{x} * {c}", gives="keeps", numbers=(0.25, 0.5, 0.7071, 1.5)),
    _row("shift", "{x} + {c}", gives="keeps", numbers=(0.5, 1.0, 2.0)),
    _row("reverse", "{c} - {x}", refuses="large", numbers=(0.5, 1.0, 2.0)),
)

BINARY: tuple[Row, ...] = (
    _row("add", "{x} + {y}"),
    _row("sub", "{x} - {y}"),
    _row("mul", "{x} * {y}", refuses="shared large", gives="large"),
    _row("maximum", "torch.maximum({x}, {y})"),
    _row("minimum", "torch.minimum({x}, {y})", refuses="shared"),
    _row("gate", "{x} * torch.sigmoid({y})", refuses="shared", flops=7, passes=2),
    _row("swish_gate", "nn.functional.silu({x}) * {y}", refuses="shared large", gives="large", flops=7, passes=2),
    _row("where", "torch.where({x} > {y}, {x}, {c} * {y})", refuses="shared", numbers=(0.1, 0.5), flops=3, passes=3),
    _row("ratio", "{x} / (1.0 + torch.abs({y}))", refuses="shared", flops=4, passes=3),
    _row("mix", "{c} * {x} + (1.0 - {c}) * {y}", numbers=(0.1, 0.25, 0.5), flops=3, passes=3),
)
"""Of a value and another of the same shape: an earlier value, or one more input."""

VECTOR: tuple[Row, ...] = (
    _row("bias", "{x} + {m}", module="0.5 * torch.randn({d})"),
    _row("channel_scale", "{x} * {m}", module="0.5 + torch.rand({d})", gives="keeps"),
    _row("affine", "{x} * {m} + {x}", module="0.5 * torch.rand({d})", flops=2, passes=2),
)
"""Of a value and a parameter along its last dimension; {m} is `nn.Parameter` of the module expression."""

NORMS: tuple[Row, ...] = (
    _row("softmax", "torch.softmax({x}, dim=-1)", refuses="bounded shared", gives="bounded positive shared", flops=8),
    _row("log_softmax", "torch.log_softmax({x}, dim=-1)", refuses="shared", gives="large", flops=8),
    _row("layer_norm", "self.{m}({x})", module="nn.LayerNorm({d})", refuses="centred shared", gives="centred", flops=8),
    _row(
        "rms_norm",
        "{x} * torch.rsqrt({x}.pow(2).mean(dim=-1, keepdim=True) + 1e-5)",
        refuses="large shared",
        flops=5,
        passes=5,
    ),
    _row("l2_norm", "{x} * (4.0 / (1e-3 + {x}.norm(dim=-1, keepdim=True)))", refuses="large shared", flops=5, passes=4),
    _row(
        "centre",
        "{x} - {x}.mean(dim=-1, keepdim=True)",
        refuses="centred shared large",
        gives="centred",
        flops=2,
        passes=2,
    ),
    _row(
        "peak_norm",
        "{x} / (0.1 + torch.abs({x}).amax(dim=-1, keepdim=True))",
        refuses="shared",
        gives="bounded",
        flops=4,
        passes=4,
    ),
    _row("below_peak", "{x} - {x}.amax(dim=-1, keepdim=True)", refuses="shared", flops=2, passes=2),
    _row(
        "standardize",
        "({x} - {x}.mean(dim=-1, keepdim=True)) / ({x}.std(dim=-1, keepdim=True) + 1e-2)",
        refuses="centred shared large",
        gives="centred",
        flops=8,
        passes=6,
    ),
)
"""Of a value and its own rows; the shape stays."""

REDUCTIONS: tuple[Row, ...] = (
    _row("row_sum", "{x}.sum(dim=-1)", refuses="centred shared large", gives="large"),
    _row("row_mean", "{x}.mean(dim=-1)", refuses="centred shared large"),
    _row("row_max", "{x}.amax(dim=-1)", refuses="shared"),
    _row("row_min", "{x}.amin(dim=-1)", refuses="shared"),
    _row("row_logsumexp", "torch.logsumexp({x}, dim=-1)", refuses="shared", flops=6, passes=5),
    _row("row_var", "{x}.var(dim=-1)", refuses="shared large centred bounded", gives="positive", flops=4),
    _row("row_max_pair", "torch.max({x}, dim=-1).values", refuses="shared"),
)
"""Take the last dimension away."""

WINDOWS: tuple[Row, ...] = (
    _row("max_pool", "nn.functional.max_pool2d({x}, 2)", gives="keeps", flops=4),
    _row("avg_pool", "nn.functional.avg_pool2d({x}, 2)", gives="keeps", flops=4),
)
"""Halve height and width of an image."""
