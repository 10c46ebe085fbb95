"""spare: programs with work that algebra can leave out, one pattern for each of its rules (see `mtmc.rewrite.algebra`)."""

from __future__ import annotations

from collections.abc import Callable

from mtmc.rl.generator import groups
from mtmc.rl.generator.blocks import linear
from mtmc.rl.generator.draft import Draft
from mtmc.rl.generator.image import Way, batch_norm, convolve, pool
from mtmc.rl.generator.table import Row


def spare(draft: Draft) -> None:
    """One pattern, with up to two steps before and behind it."""
    pattern, layout = draft.rng.choice(_PATTERNS)
    if pattern in (_wide_attention, _batch_norm_of_features, _batch_norm_of_maps):
        draft.dtype = "fp32"  # of the others there is nothing to leave out
    draft.current = draft.add_input(layout)
    if draft.chance(0.33):
        groups.tame(draft)
    pattern(draft)
    for _ in range(draft.rng.randint(0, 2)):
        groups.pointwise(draft)


def _product(draft: Draft) -> None:
    if draft.chance(0.6):
        linear(draft, "features1")
        return
    x = draft.current
    y = draft.add_input((x.dims[-1], "features1"))
    text = f"{x.name} @ {y.name}"
    dims = (*x.dims[:-1], "features1")
    draft.add_step(Row("matmul", ""), text, [x.name, y.name], dims, frozenset(), x.dims[-1])


def _sum_of_features(draft: Draft) -> None:
    _product(draft)
    if draft.chance(0.5):
        draft.apply("scale", f"{{x}} {draft.rng.choice('*/')} {draft.rng.choice((0.5, 1.5, 2.0))}")
    word, kept = draft.rng.choice(("sum", "mean")), draft.chance(0.4)
    dims = (*draft.current.dims[:-1], *("1",) * kept)
    draft.apply(f"row_{word}", f"{{x}}.{word}(dim=-1{', keepdim=True' * kept})", dims, gives="large")


def _mean_of_places(draft: Draft) -> None:
    way = Way(*draft.rng.choice(((3, "", ("+ 2",)), (2, ", stride=2", ("* 2",)))), transposed=True)
    convolve(draft, way)
    if draft.chance(0.5):
        draft.apply("scale", f"{{x}} * {draft.rng.choice((0.5, 1.5, 2.0))}")
    word = draft.rng.choice(("mean", "mean", "sum"))
    draft.apply(f"places_{word}", f"{{x}}.{word}(dim=(2, 3))", draft.current.dims[:2], gives="large")


def _batch_norm_of_features(draft: Draft) -> None:
    linear(draft, "features1")
    batch_norm(draft, evaluation=True)


def _batch_norm_of_maps(draft: Draft) -> None:
    convolve(draft, draft.rng.choice((Way(3, ", padding=1"), Way(1, ""), Way(3, "", ("+ 2",), transposed=True))))
    batch_norm(draft, evaluation=True)


def _dropout(draft: Draft) -> None:
    if draft.chance(0.6):
        _product(draft)
    name = draft.add_module("dropout", f"nn.Dropout({draft.rng.choice((0.1, 0.2, 0.5))}).eval()", [])
    draft.apply("dropout", f"self.{name}({{x}})")
    draft.apply("tanh", "torch.tanh({x})", gives="bounded", flops=6)


def _pool_of_a_pool(draft: Draft) -> None:
    if draft.chance(0.4):
        convolve(draft, Way(3, ", padding=1"))
    kind = draft.rng.choice(("max", "avg"))
    pool(draft, kind)
    pool(draft, kind)


def _mean_of_neighbours(draft: Draft) -> None:
    linear(draft, "features1")
    count = draft.rng.choice((2, 4, 8))
    dims = (draft.current.dims[0], f"features1 // {count}")
    text = f"nn.functional.avg_pool1d({{x}}.unsqueeze(1), {count}).squeeze(1)"
    draft.apply("feature_pool", text, dims, flops=2)


def _again(draft: Draft) -> None:
    """The same call twice."""
    x = draft.current
    word, flops = draft.rng.choice((("torch.tanh", 6), ("nn.functional.gelu", 12), ("torch.sigmoid", 6)))
    row = Row(word.split(".")[-1], "", flops=flops)
    first = draft.add_step(row, f"{word}({x.name})", [x.name], x.dims, frozenset())
    if draft.chance(0.5):
        first = draft.apply("scale", f"{{x}} * {draft.rng.choice((0.5, 2.0))}")
    second = draft.add_step(row, f"{word}({x.name})", [x.name], x.dims, frozenset())
    text = draft.rng.choice(("{0} * {1} + {2}", "{0} + {1} * {2}"))
    names = [first.name, second.name, x.name]
    draft.add_step(Row("combine", "", flops=2, passes=2), text.format(*names), names, x.dims, frozenset())


def _undone(draft: Draft) -> None:
    """Turned or negated twice, or with a number that changes nothing."""
    x = draft.current
    text = draft.rng.choice(("-(-{x})", "{x} + 0.0", "{x} * 1.0", "{x} / 1.0", "{x}.transpose(0, 1).transpose(0, 1)"))
    draft.apply("undone", text, gives="keeps")
    draft.apply("tanh", "torch.tanh({x})", gives="bounded", flops=6)
    draft.add_step(
        Row("add", ""), f"{draft.current.name} + {x.name}", [draft.current.name, x.name], x.dims, frozenset()
    )


def _one_element(draft: Draft) -> None:
    """Reductions over what is one number already; what they give is added to the value they come of."""
    x = draft.current
    peak = draft.apply("row_max", "{x}.amax(dim=-1, keepdim=True)", (*x.dims[:-1], "1"))
    again = draft.rng.choice(("{x}.logsumexp(dim=-1, keepdim=True)", "{x}.mean(dim=-1, keepdim=True)"))
    draft.apply("over_one", again)
    if draft.chance(0.5):
        last = draft.current.name
        draft.add_step(Row("less_itself", ""), f"{peak.name} - {last}", [peak.name, last], peak.dims, frozenset())
    last = draft.current.name
    draft.add_step(Row("add", ""), f"{x.name} + {last}", [x.name, last], x.dims, frozenset())


def _wide_attention(draft: Draft) -> None:
    """Attention with a head that one kernel cannot hold."""
    x = draft.current
    key, value = (draft.add_input((x.dims[0], "keys", x.dims[-1])) for _ in range(2))
    names = [x.name, key.name, value.name]
    text = f"nn.functional.scaled_dot_product_attention({', '.join(names)})"
    draft.add_step(Row("attention", ""), text, names, x.dims, frozenset(), "keys", 2)


_PATTERNS: tuple[tuple[Callable[[Draft], None], tuple[str, ...]], ...] = (
    (_sum_of_features, ("rows", "cols")),
    (_sum_of_features, ("batch", "rows", "cols")),
    (_mean_of_places, ("batch", "maps", "height", "width")),
    (_batch_norm_of_features, ("rows", "cols")),
    (_batch_norm_of_maps, ("batch", "maps", "height", "width")),
    (_dropout, ("rows", "cols")),
    (_dropout, ("batch", "rows", "cols")),
    (_pool_of_a_pool, ("batch", "maps", "height", "width")),
    (_mean_of_neighbours, ("rows", "cols")),
    (_again, ("rows", "cols")),
    (_again, ("batch", "rows", "cols")),
    (_undone, ("rows", "cols")),
    (_one_element, ("rows", "cols")),
    (_wide_attention, ("batch", "rows", "span")),
)
