"""blocks: the same block two to eight times, each time with weights of its own, as in networks."""

from __future__ import annotations

import random
from collections.abc import Callable

from mtmc.rl.generator.draft import Draft
from mtmc.rl.generator.image import Way, batch_norm, convolve
from mtmc.rl.generator.program import Value
from mtmc.rl.generator.table import Row

_MOST_STEPS = 34
_ACTS = {
    "relu": ("torch.relu({x})", 1),
    "gelu": ("nn.functional.gelu({x})", 12),
    "silu": ("nn.functional.silu({x})", 6),
    "tanh": ("torch.tanh({x})", 6),
    "hardswish": ("nn.functional.hardswish({x})", 5),
}


def blocks(draft: Draft) -> None:
    """Blocks of one kind; what is drawn within a block is drawn alike in each."""
    rng = draft.rng
    kind = rng.choices(list(_BLOCKS), list(_BLOCKS.values()))[0]
    images = kind in (_residual_image, _separable)
    rows = ("rows", "cols") if kind is not _attention and draft.chance(0.6) else ("batch", "rows", "cols")
    draft.current = draft.add_input(("batch", "maps", "height", "width") if images else rows)
    seed, times = rng.random(), rng.randint(2, 3 if kind is _layer else 8)
    for _ in range(times):
        before = len(draft.steps)
        draft.rng = random.Random(seed)
        kind(draft)
        if 2 * len(draft.steps) - before > _MOST_STEPS:
            break
    draft.rng = rng


def linear(draft: Draft, outer: str, x: Value | None = None) -> Value:
    """A linear layer of a value (the current one by default) to `outer` features."""
    x = x or draft.current
    inner = x.dims[-1]
    bias = "" if draft.chance(0.7) else ", bias=False"
    name = draft.add_module("linear", f"nn.Linear({inner}, {outer}{bias}{draft.float_dtype})", [inner, outer])
    draft.weights.append((inner, outer))
    draft.products += 1
    dims = (*x.dims[:-1], outer)
    return draft.add_step(Row("linear", ""), f"self.{name}({x.name})", [x.name], dims, frozenset(), inner)


def layer_norm(draft: Draft) -> Value:
    """A layer norm along the last dimension."""
    size = draft.current.dims[-1]
    name = draft.add_module("layer_norm", f"nn.LayerNorm({size}{draft.float_dtype})", [size])
    draft.weights.append((size,))
    return draft.apply("layer_norm", f"self.{name}({{x}})", gives="centred", flops=8)


def _act(draft: Draft) -> Value:
    op = draft.rng.choice(list(_ACTS))
    return draft.apply(op, _ACTS[op][0], flops=_ACTS[op][1])


def _together(draft: Draft, op: str, text: str, *values: Value) -> Value:
    names = [value.name for value in values]
    return draft.add_step(Row(op, ""), text.format(*names), names, values[0].dims, frozenset())


def _layer(draft: Draft) -> None:
    """Layer and activation."""
    linear(draft, draft.current.dims[-1])
    _act(draft)


def _perceptron(draft: Draft) -> None:
    """Layer, activation, and a norm or the input again, without which numbers fade from block to block."""
    x = draft.current
    _layer(draft)
    normed = draft.chance(0.5)
    if normed:
        layer_norm(draft)
    if not normed or draft.chance(0.4):
        _together(draft, "add", "{0} + {1}", draft.current, x)


def _residual(draft: Draft) -> None:
    """The feed-forward half of a transformer's layer."""
    x = draft.current
    if draft.chance(0.8):
        layer_norm(draft)
    linear(draft, "features1")
    _act(draft)
    _together(draft, "add", "{0} + {1}", linear(draft, x.dims[-1]), x)


def _gated(draft: Draft) -> None:
    """A gate of two layers, and back."""
    x = draft.current
    gate, value = linear(draft, "features1", x), linear(draft, "features1", x)
    _together(draft, "swish_gate", "nn.functional.silu({0}) * {1}", gate, value)
    _together(draft, "add", "{0} + {1}", linear(draft, x.dims[-1]), x)


def _pointwise(draft: Draft) -> None:
    """No product: a scale, an activation, a norm, the input again."""
    x = draft.current
    scale = draft.parameter("scale", "0.5 + torch.rand({d})", (x.dims[-1],))
    draft.apply("channel_scale", f"{{x}} * {scale}")
    act = _act(draft)
    if draft.chance(0.5):
        act = layer_norm(draft)
    _together(draft, "add", "0.5 * {0} + {1}", act, x)


def _attention(draft: Draft) -> None:
    """Attention of one head with its input added."""
    x = draft.current
    seen = layer_norm(draft) if draft.chance(0.6) else x
    query, key, value = (linear(draft, x.dims[-1], seen) for _ in range(3))
    rows = x.dims[-2]
    if draft.chance(0.5):
        text = "nn.functional.scaled_dot_product_attention({0}, {1}, {2})"
        names = [each.name for each in (query, key, value)]
        row = Row("attention", "", flops=8)
        mixed = draft.add_step(row, text.format(*names), names, x.dims, frozenset(), rows, 2)
    else:
        scores = (*x.dims[:-1], rows)
        text = f"({query.name} @ {key.name}.transpose(-1, -2)) * {query.name}.shape[-1] ** -0.5"
        draft.add_step(Row("turned", ""), text, [query.name, key.name], scores, frozenset(), x.dims[-1])
        weights = draft.apply("softmax", "torch.softmax({x}, dim=-1)", flops=8)
        text = f"{weights.name} @ {value.name}"
        mixed = draft.add_step(Row("matmul", ""), text, [weights.name, value.name], x.dims, frozenset(), rows)
    _together(draft, "add", "{0} + {1}", linear(draft, x.dims[-1], mixed) if draft.chance(0.6) else mixed, x)


def _residual_image(draft: Draft) -> None:
    """Convolution, norm, activation, with the input added."""
    x, way = draft.current, Way(3, ", padding=1")
    normed = draft.chance(0.6)
    convolve(draft, way, keep=True)
    if normed:
        batch_norm(draft, evaluation=draft.chance(0.5))
    if draft.chance(0.5):
        draft.apply("relu", "torch.relu({x})")
        convolve(draft, way, keep=True)
    _together(draft, "add", "{0} + {1}", draft.current, x)
    draft.apply("relu", "torch.relu({x})")


def _separable(draft: Draft) -> None:
    """A depthwise convolution, then one over channels alone."""
    evaluation, normed = draft.chance(0.5), draft.chance(0.5)
    for way in (Way(3, ", padding=1", groups=0), Way(1, "")):
        convolve(draft, way, keep=True)
        if normed:
            batch_norm(draft, evaluation)
        draft.apply("relu6", "nn.functional.relu6({x})")


_BLOCKS: dict[Callable[[Draft], None], float] = {
    _layer: 0.5,
    _perceptron: 0.9,
    _residual: 1.2,
    _gated: 0.8,
    _pointwise: 1.0,
    _attention: 1.0,
    _residual_image: 1.2,
    _separable: 0.6,
}
