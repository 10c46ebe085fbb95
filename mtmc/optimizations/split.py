"""split: several programs share what one had to do alone; a second small kernel puts their shares together."""

from __future__ import annotations

from mtmc.optimizations.settings import Choice, Settings
from mtmc.optimizations.version import Version
from mtmc.rewrite.plan import Stage

PAGE = """\
# split

What it does: cuts the inner dimension of a product (split-K), the columns of a product that is reduced as it is made, or
each row of a reduction, among several programs. Each
writes its share; a second kernel adds the shares up, always in the same order, so that results are reproducible.

When it pays: when there are fewer programs than multiprocessors: a product with small m and n and a large k, a reduction
of a few very long rows.
When it harms: when the chip is full already: the shares are written and read in vain and a launch is added.
"""

SPLITS_K = (1, 2, 4, 8)
SPLITS_N = (1, 4, 8, 16, 32)
SPLITS_ROW = (1, 4, 16, 64)


def _offer(version: Version, stage: Stage) -> list[tuple[Choice, str]]:
    if stage.family == "matmul":
        body = version.body(stage)
        if body is not None and any(node.kind == "reduce" for node in body.nodes):
            return [
                ({"split_n": count}, f"split the columns of the {stage.name} kernel among {count} programs")
                for count in SPLITS_N
            ]
        return [
            ({"split_k": count}, f"split the inner dimension of the {stage.name} kernel among {count} programs")
            for count in SPLITS_K
        ]
    if stage.family == "rowwise":
        block = stage.number("block_cols") or 1024
        return [
            (
                {"split": count, "passes": "loop", "block_cols": block},
                f"split each row of the {stage.name} kernel among {count} programs",
            )
            for count in SPLITS_ROW
            if count != stage.number("split")
        ]
    return []


Split = Settings("split", PAGE, _offer)
