"""image: a convolution of the library's and what follows it: elementwise work, norms, pools, reductions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mtmc.rl.generator import groups, table
from mtmc.rl.generator.draft import Draft
from mtmc.rl.generator.program import Dims, base, size_of, then
from mtmc.rl.generator.table import LARGE, Row

PLACES: dict[int, Dims] = {1: ("length",), 2: ("height", "width"), 3: ("depth", "high", "wide")}
"""The dimensions of an image by their number."""
_LEAST = 5
"""Number of places in a row that every image has at any shape."""


@dataclass(frozen=True)
class Way:
    """How a convolution goes over places. taps: along each dimension. changes: of each dimension, see `program.then`.
    transposed: whether it is a transposed one; groups: 0 for as many as there are channels."""

    taps: int
    arguments: str
    changes: tuple[str, ...] = ()
    transposed: bool = False
    groups: int = 1


_WAYS: tuple[tuple[Way, float], ...] = (
    (Way(3, ", padding=1"), 3.0),
    (Way(3, "", ("- 2",)), 2.0),
    (Way(1, ""), 1.0),
    (Way(5, ", padding=2"), 0.5),
    (Way(3, ", stride=2, padding=1", ("+ 1", "// 2")), 1.0),
    (Way(3, ", padding=1", groups=0), 0.9),
    (Way(3, ", padding=1", groups=4), 0.6),
    (Way(3, "", ("+ 2",), transposed=True), 1.0),
    (Way(3, ", padding=1", transposed=True), 0.5),
    (Way(2, ", stride=2", ("* 2",), transposed=True), 0.6),
    (Way(4, ", stride=2, padding=1", ("* 2",), transposed=True), 0.5),
)
_RANKS = {2: 0.68, 3: 0.2, 1: 0.12}


def image(draft: Draft) -> None:
    """One or two convolutions of 16 channels or more, each with one to four steps behind it."""
    rank = draft.rng.choices(list(_RANKS), list(_RANKS.values()))[0]
    draft.current = draft.add_input(("batch", "maps", *PLACES[rank]))
    for _ in range(draft.rng.choice((1, 1, 2))):
        convolve(draft, draft.rng.choices([each[0] for each in _WAYS], [each[1] for each in _WAYS])[0])
        for _ in range(draft.rng.randint(1, 4)):
            draft.rng.choices(list(_FOLLOWERS), list(_FOLLOWERS.values()))[0](draft)
    draft.rng.choices(list(_ENDS), list(_ENDS.values()))[0](draft)


def convolve(draft: Draft, way: Way, keep: bool = False) -> None:
    """A convolution of the current value. keep: as many filters as channels. Nothing where the image is too small."""
    x, rank = draft.current, len(draft.current.dims) - 2
    places = tuple(then(dim, *way.changes) for dim in x.dims[2:])
    if not all(_fits(dim) for dim in places) or LARGE in x.traits:
        return
    channels = x.dims[1]
    draft.products += 1
    filters = channels if keep or way.groups == 0 else f"kernels{draft.products}"
    grouped = {0: f", groups={channels}", 1: ""}.get(way.groups, f", groups={way.groups}")
    bias = "" if draft.chance(0.7) else ", bias=False"
    kind = f"ConvTranspose{rank}d" if way.transposed else f"Conv{rank}d"
    sizes = f"{channels}, {filters}, {way.taps}{way.arguments}{grouped}{bias}{draft.float_dtype}"
    name = draft.add_module("conv", f"nn.{kind}({sizes})", [channels, filters])
    taps = way.taps**rank
    inner = {0: "", 1: channels}.get(way.groups, then(channels, f"// {way.groups}"))
    draft.weights.append((filters, inner or filters))
    word = "transposed" if way.transposed else {0: "depthwise", 1: "conv"}.get(way.groups, "grouped")
    row = Row(f"{word}{rank}d", "", flops=2 * taps)
    draft.add_step(
        row, f"self.{name}({x.name})", [x.name], (x.dims[0], filters, *places), frozenset(), inner, taps, filters
    )


def batch_norm(draft: Draft, evaluation: bool) -> None:
    """A batch norm along dimension 1, in evaluation or by the batch's own numbers. In fp32 alone."""
    x = draft.current
    if draft.dtype != "fp32" or x.traits & {table.CENTRED, table.SHARED}:
        return
    rank = max(1, len(x.dims) - 2)
    name = draft.add_module("norm", f"nn.BatchNorm{rank}d({x.dims[1]}){'.eval()' * evaluation}", [x.dims[1]])
    draft.weights.append((x.dims[1],))
    draft.apply("batch_norm_eval" if evaluation else "batch_norm", f"self.{name}({{x}})", flops=4)


def pool(draft: Draft, kind: str = "", size: int = 2) -> None:
    """A pool over windows side by side. kind: "max", "avg" or "" for any."""
    x = draft.current
    kind = kind or draft.rng.choice(("max", "avg"))
    places = tuple(then(dim, f"// {size}") for dim in x.dims[2:])
    if all(_fits(dim, 1) for dim in places):
        text = f"nn.functional.{kind}_pool{len(places)}d({{x}}, {size})"
        draft.apply(f"{kind}_pool{len(places)}d", text, (*x.dims[:2], *places), gives="keeps", flops=4)


def _fits(dim: str, least: int = 3) -> bool:
    return size_of(dim, {base(dim): _LEAST}) >= least


def _normed(draft: Draft) -> None:
    if draft.dtype == "fp32" and draft.chance(0.6):
        batch_norm(draft, evaluation=draft.chance(0.5))
        return
    x = draft.current
    if x.traits & {table.CENTRED, table.SHARED}:
        return
    if draft.chance(0.3):
        draft.apply("instance_norm", "nn.functional.instance_norm({x})", gives="centred", flops=8)
        return
    name = draft.add_module(
        "group_norm", f"nn.GroupNorm({draft.rng.choice((2, 4))}, {x.dims[1]}{draft.float_dtype})", [x.dims[1]]
    )
    draft.weights.append((x.dims[1],))
    draft.apply("group_norm", f"self.{name}({{x}})", gives="centred", flops=8)


def _by_channel(draft: Draft) -> None:
    """With a number for each channel."""
    x, ones = draft.current, len(draft.current.dims) - 2
    if draft.chance(0.6) and table.SHARED not in x.traits:
        by = draft.parameter("bias", "torch.randn({d})", (x.dims[1],), ones)
        draft.apply("channel_bias", f"{{x}} {draft.rng.choice('+-')} {by}")
    else:
        by = draft.parameter("scale", "0.5 + torch.rand({d})", (x.dims[1],), ones)
        draft.apply("by_channel", f"{{x}} * {by}", gives="keeps")


def _channel_softmax(draft: Draft) -> None:
    if not draft.current.traits & {table.SHARED, table.BOUNDED}:
        draft.apply("channel_softmax", "torch.softmax({x}, dim=1)", gives="bounded positive shared", flops=8)


def _over_channels(draft: Draft) -> None:
    x = draft.current
    word = draft.rng.choice(("amax", "amin", "logsumexp", "mean", "sum"))
    if table.SHARED in x.traits or (LARGE in x.traits and word in ("sum", "mean")):
        return
    dims = (x.dims[0], *x.dims[2:])
    draft.apply(f"channel_{word}", f"torch.{word}({{x}}, dim=1)", dims, gives="large" * (word == "sum"), flops=2)
    if draft.chance(0.6):
        groups.pointwise(draft)


def _over_places(draft: Draft) -> None:
    x = draft.current
    if not x.traits & {table.CENTRED, LARGE, table.SHARED}:
        dims = ", ".join(str(dim) for dim in range(2, len(x.dims)))
        draft.apply("places_mean", f"{{x}}.mean(dim=({dims},))", x.dims[:2])
        if draft.chance(0.6):
            groups.pointwise(draft)


_FOLLOWERS: dict[Callable[[Draft], None], float] = {
    groups.pointwise: 4.0,
    groups.binary: 1.0,
    _by_channel: 1.2,
    _normed: 1.2,
    pool: 0.9,
    _channel_softmax: 0.2,
}
_ENDS: dict[Callable[[Draft], None], float] = {
    groups.pointwise: 0.5,
    _over_channels: 0.25,
    _over_places: 0.25,
}
