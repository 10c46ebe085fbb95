"""product_dispatch: one file for few and for many rows: the launcher takes a tile by the number of rows at run time.

The table stands in the file. Its last entry is the kernel's own tile, for all numbers of rows that no other entry has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mtmc.rewrite.body import NotCovered
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.templates.product import Product

BY_ROWS = "rows"
"""The value of the setting "dispatch"."""
NAMES = {"block_m": "tile_m", "block_n": "tile_n", "block_k": "tile_k", "num_warps": "warps", "num_stages": "stages"}
"""Settings that the launcher takes from the table, and what it calls them."""
FEW: tuple[tuple[int, tuple[int, int, int, int, int]], ...] = (
    (16, (16, 64, 128, 4, 4)),
    (128, (64, 128, 64, 4, 4)),
)
"""Most rows, and a tile's rows, columns, bytes / 2 of the inner dimension, warps and stages. The first is what products of
16 rows start with; the second holds two tiles of 128 rows, each of which reads the right operand once."""


@dataclass(frozen=True)
class Dispatch:
    """What the launcher says in place of a schedule's numbers. lines: those that set it, without indentation."""

    texts: Mapping[str, str]
    lines: tuple[str, ...] = ()


def dispatch_of(found: Product, stage: Stage, rows: str) -> Dispatch:
    """How a product's launcher comes by its tile. rows: expression of their number. Raises: NotCovered where kernels of
    different tiles would not be one text."""
    schedule = dict(stage.schedule)
    if schedule.get("dispatch", "") != BY_ROWS:
        return Dispatch({name: str(stage.number(name)) for name in NAMES})
    special = any(schedule.get(name) for name in ("stream_k", "specialized", "swapped"))
    if found.batch or found.reduces or special or stage.number("split_k") > 1:
        raise NotCovered("a tile by the number of rows for a product that is made in another way")
    names, lines = ", ".join(NAMES.values()), list[str]()
    wide = 2 if found.fp8 else 1
    for at, (most, (m, n, k, warps, stages)) in enumerate(FEW):
        lines.append(f"{'elif' if at else 'if'} ({rows}) <= {most}:")
        lines.append(f"    {names} = {m}, {n}, {k * wide}, {warps}, {stages}")
    own = ", ".join(str(stage.number(name)) for name in NAMES)
    return Dispatch(NAMES, ("# the tile by the number of rows", *lines, "else:", f"    {names} = {own}"))
