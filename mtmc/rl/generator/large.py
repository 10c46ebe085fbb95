"""large: one op that is neither elementwise nor over rows: over a middle or over several dimensions, scans, losses, pools
with overlap, products in other orders. Some elementwise step stands before or behind it."""

from __future__ import annotations

from collections.abc import Callable

from mtmc.rl.generator import groups, table
from mtmc.rl.generator.draft import Draft
from mtmc.rl.generator.image import PLACES
from mtmc.rl.generator.program import Dims, then
from mtmc.rl.generator.table import Row

_BATCH: Dims = ("batch", "rows", "cols")
_ROWS: Dims = ("rows", "cols")
_IMAGE: Dims = ("batch", "maps", "height", "width")


def large(draft: Draft) -> None:
    """The op, with one or two elementwise steps around it."""
    drawn = draft.rng.choices([each[0] for each in _OPS], [each[1] for each in _OPS])[0]
    before = draft.chance(0.5)
    drawn(draft, before)
    if not before or draft.chance(0.3):
        groups.pointwise(draft)


def _start(draft: Draft, before: bool, *layouts: Dims) -> None:
    draft.current = draft.add_input(draft.rng.choice(layouts))
    if before:
        groups.tame(draft)


def _middle(draft: Draft, before: bool) -> None:
    """A reduction over a dimension that is not the last."""
    _start(draft, before, _BATCH, _ROWS, _IMAGE)
    x = draft.current
    at = draft.rng.randrange(0 if len(x.dims) == 2 else 1, len(x.dims) - 1)
    words = ["amax", "amin", "logsumexp", "norm", "var"]
    if table.CENTRED not in x.traits:
        words += ["sum", "mean", "mean", "prod"][: 4 if table.BOUNDED in x.traits else 3]
    word, kept = draft.rng.choice(words), draft.chance(0.3)
    dims = (*x.dims[:at], *("1",) * kept, *x.dims[at + 1 :])
    text = f"{{x}}.{word}(dim={at}{', keepdim=True' * kept})"
    draft.apply(f"middle_{word}", text, dims, gives="large" if word in ("sum", "norm") else "", flops=2)


def _middle_norm(draft: Draft, before: bool) -> None:
    """Softmax, or a norm by the root of mean squares, along a dimension that is not the last."""
    _start(draft, before, _BATCH, _IMAGE)
    texts = {
        "middle_softmax": "torch.softmax({x}, dim=1)",
        "middle_log_softmax": "torch.log_softmax({x}, dim=1)",
        "middle_rms_norm": "{x} / torch.sqrt({x}.pow(2).mean(dim=1, keepdim=True) + 1e-5)",
        "middle_l1_norm": "{x} / (1e-3 + {x}.abs().mean(dim=1, keepdim=True))",
    }
    op = draft.rng.choice(list(texts))
    shared = "bounded positive shared" if op == "middle_softmax" else ""
    draft.apply(op, texts[op], gives=shared, flops=8, passes=1 if "softmax" in op else 5)


def _several(draft: Draft, before: bool) -> None:
    """Over several dimensions: norms and reductions."""
    _start(draft, before, _IMAGE, _BATCH)
    x = draft.current
    texts = {
        "layer_norm_of_all": "nn.functional.layer_norm({x}, {x}.shape[1:])",
        "whole_norm": "{x} / (1e-3 + {x}.pow(2).mean().sqrt())",
    }
    if len(x.dims) == 4:
        texts |= {
            "instance_norm": "nn.functional.instance_norm({x})",
            "groups_norm": f"nn.functional.group_norm({{x}}, {draft.rng.choice((2, 4))})",
            "places_max": "{x}.amax(dim=(2, 3))",
            "places_logsumexp": "torch.logsumexp({x}, dim=(2, 3))",
        }
    op = draft.rng.choice(list(texts))
    reduces = op.startswith("places")
    draft.apply(op, texts[op], x.dims[:2] if reduces else None, gives="" if reduces else "centred", flops=8)


def _scan(draft: Draft, before: bool) -> None:
    """Running sums, products and maxima."""
    _start(draft, before, _ROWS, _ROWS, _BATCH)
    dim = draft.rng.choice((-1, -1, 0 if len(draft.current.dims) == 2 else 1))
    texts = {
        "running_mean": f"torch.cumsum({{x}}, dim={dim}) / {{x}}.shape[{dim}]",
        "running_sum_back": f"torch.flip(torch.cumsum(torch.flip({{x}}, dims=({dim},)), dim={dim}), dims=({dim},))",
        "running_max": f"torch.cummax({{x}}, dim={dim}).values",
        "running_sum_of_some": f"torch.cumsum(torch.where({{x}} > 0.0, {{x}}, 0.0), dim={dim}) / {{x}}.shape[{dim}]",
    }
    if draft.dtype != "fp32":
        del texts["running_sum_back"]  # long sums of rounded numbers
    op = draft.rng.choice(list(texts))
    draft.apply(op, texts[op], gives="large", flops=4, passes=3)


def _loss(draft: Draft, before: bool) -> None:
    """A number of two tensors."""
    _start(draft, before, _ROWS, _BATCH)
    x = draft.current
    y = draft.add_input(x.dims)
    texts = {
        "mse_loss": "nn.functional.mse_loss({0}, {1})",
        "l1_loss": "nn.functional.l1_loss({0}, {1})",
        "smooth_l1_loss": "nn.functional.smooth_l1_loss({0}, {1})",
        "huber_loss": "nn.functional.huber_loss({0}, {1}, delta=0.5)",
        "hinge_loss": "torch.clamp(1.0 - {0} * {1}, min=0.0).mean()",
        "logistic_loss": "nn.functional.softplus(-{0} * {1}).mean()",
        "cosine_loss": "1.0 - nn.functional.cosine_similarity({0}, {1}, dim=-1).mean()",
        "kl_loss": "nn.functional.kl_div(torch.log_softmax({0}, dim=-1), torch.softmax({1}, dim=-1))",
    }
    op = draft.rng.choice(list(texts))
    if op == "kl_loss":
        texts[op] = texts[op][:-1] + ', reduction="batchmean")'
    text = texts[op].format(x.name, y.name)
    draft.add_step(Row(op, "", flops=8, passes=3), text, [x.name, y.name], (), frozenset())


def _window(draft: Draft, before: bool) -> None:
    """A pool whose windows overlap."""
    rank = draft.rng.choice((1, 2, 2, 3))
    _start(draft, before, ("batch", "maps", *PLACES[rank]))
    x = draft.current
    kind = draft.rng.choice(("max", "avg"))
    arguments, changes = draft.rng.choice(
        (("3, stride=2, padding=1", ("+ 1", "// 2")), ("3, stride=1, padding=1", ()), ("3, stride=1", ("- 2",)))
    )
    places = tuple(then(dim, *changes) for dim in x.dims[2:])
    text = f"nn.functional.{kind}_pool{rank}d({{x}}, {arguments})"
    draft.apply(f"{kind}_pool{rank}d", text, (*x.dims[:2], *places), gives="keeps", flops=2 * 3**rank)


def _turned(draft: Draft, before: bool) -> None:
    """Products with operands in other orders and of more dimensions, and of parts of a matrix."""
    texts: dict[str, tuple[Dims, Dims, Dims, str]] = {
        "turned_left": (("cols", "rows"), ("cols", "features1"), ("rows", "features1"), "{0}.T @ {1}"),
        "turned_both": (("cols", "rows"), ("features1", "cols"), ("rows", "features1"), "{0}.T @ {1}.T"),
        "batched": (_BATCH, ("batch", "cols", "features1"), ("batch", "rows", "features1"), "torch.bmm({0}, {1})"),
        "vector": (_ROWS, ("cols", "1"), ("rows", "1"), "{0} @ {1}"),
        "lower_part": (_ROWS, ("cols", "features1"), ("rows", "features1"), "torch.tril({0}) @ {1}"),
        "of_four": (
            ("batch", "maps", "height", "cols"),
            ("cols", "features1"),
            ("batch", "maps", "height", "features1"),
            'torch.einsum("bijl,lk->bijk", {0}, {1})',
        ),
    }
    op = draft.rng.choice(list(texts))
    first, second, dims, text = texts[op]
    _start(draft, before, first)
    x = draft.current
    y = draft.add_input(second)
    draft.products += 1
    text = f"{text.format(x.name, y.name)} / 16.0"
    draft.add_step(Row(op, ""), text, [x.name, y.name], dims, frozenset(), "cols", across=dims[-1])


_OPS: tuple[tuple[Callable[[Draft, bool], None], float], ...] = (
    (_middle, 1.6),
    (_middle_norm, 0.8),
    (_several, 1.0),
    (_scan, 1.0),
    (_loss, 1.0),
    (_window, 1.0),
    (_turned, 0.8),
)
