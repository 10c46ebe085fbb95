"""compose: programs drawn at random, of several kinds.

single, subgraph, network   mixed of everything; chains and graphs with branches
short                       the same, longer and of few numbers: launches are all its time
image, blocks, spare, large see the files of these names
"""

from __future__ import annotations

import random
from collections.abc import Callable

from mtmc.rl.generator import groups, table
from mtmc.rl.generator.blocks import blocks
from mtmc.rl.generator.draft import Draft
from mtmc.rl.generator.image import image
from mtmc.rl.generator.large import large
from mtmc.rl.generator.program import Dims, Program
from mtmc.rl.generator.spare import spare

_KINDS = {
    "single": 0.06,
    "subgraph": 0.2,
    "network": 0.16,
    "image": 0.16,
    "blocks": 0.14,
    "spare": 0.09,
    "short": 0.09,
    "large": 0.1,
}
"""Kinds of programs and their shares."""
_LENGTHS = {"single": (1, 1), "subgraph": (2, 6), "network": (5, 12), "short": (7, 10)}
"""Fewest and most steps of the kinds that are mixed of everything."""
_DRAWN: dict[str, Callable[[Draft], None]] = {"image": image, "blocks": blocks, "spare": spare, "large": large}
_LAYOUTS: tuple[tuple[Dims, float], ...] = (
    (("rows", "cols"), 0.6),
    (("batch", "rows", "cols"), 0.25),
    (("batch", "channels", "height", "width"), 0.15),
)
_DTYPES = (("fp32", 0.6), ("fp16", 0.2), ("bf16", 0.2))
MOST_PRODUCTS = 4


def compose(rng: random.Random) -> Program:
    """A program; `rng` decides all of it."""
    kind = rng.choices(list(_KINDS), list(_KINDS.values()))[0]
    dtype = rng.choices([each[0] for each in _DTYPES], [each[1] for each in _DTYPES])[0]
    draft = Draft(rng, dtype)
    _DRAWN.get(kind, lambda draft: _mixed(draft, kind))(draft)
    return draft.program(kind)


def _mixed(draft: Draft, kind: str) -> None:
    layout = draft.rng.choices([each[0] for each in _LAYOUTS], [each[1] for each in _LAYOUTS])[0]
    draft.current = draft.add_input(layout)
    wanted = draft.rng.randint(*_LENGTHS[kind])
    for _ in range(8 * wanted):  # a drawn group may have no op that fits
        if len(draft.steps) >= wanted:
            break
        _group(draft, kind, last=len(draft.steps) == wanted - 1)(draft)


Group = Callable[[Draft], None]


def _group(draft: Draft, kind: str, last: bool) -> Group:
    """What kind of step comes next."""
    ranks = len(draft.current.dims)
    weights: dict[Group, float] = {groups.pointwise: 4.0, groups.binary: 1.8, groups.vector: 0.8}
    if kind == "single":
        weights = {groups.pointwise: 0.6, groups.binary: 0.6, groups.vector: 0.4}
    if ranks in (2, 3):
        weights |= {groups.norm: 1.2, groups.product: 1.0 if kind == "subgraph" else 2.0}
    if ranks == 4:
        weights |= {groups.window: 0.6, groups.convolution: 1.2, groups.norm: 0.3, groups.pixels: 0.8 if last else 0.1}
    if ranks >= 2 and last:
        weights[groups.reduction] = 1.5
    if ranks == 1:
        weights = {groups.pointwise: 1.0}
    needs_product = kind == "network" and not draft.products and len(draft.steps) >= 2 and ranks in (2, 3)
    if needs_product and table.LARGE not in draft.current.traits:
        weights = {groups.product: 1.0}
    if draft.products >= MOST_PRODUCTS:
        weights = {
            group: weight for group, weight in weights.items() if group not in (groups.product, groups.convolution)
        }
    return draft.rng.choices(list(weights), list(weights.values()))[0]
