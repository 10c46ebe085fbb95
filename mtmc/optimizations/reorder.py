"""reorder: the order in which programs take their blocks, and the order of loops."""

from __future__ import annotations

from mtmc.optimizations.settings import Choice, Settings
from mtmc.optimizations.version import Version
from mtmc.rewrite.families.rowwise import lay_out
from mtmc.rewrite.graph import is_one
from mtmc.rewrite.plan import Stage

PAGE = """\
# reorder

What it does: changes which blocks run at the same time, or in which order a program goes through its data. Programs that
run together and read the same rows or columns of an operand find them in the L2 cache. For rows it changes the loop: hold
the row in registers and read it once, or walk over it in several passes.

When it pays: products whose operands are larger than the L2 cache (grouped order); rows that fit in registers (one read
instead of two or three); very long rows (a loop, so that nothing spills).
When it harms: it cannot harm much; grouping does nothing where everything is in the cache anyway.
"""

GROUPS = (1, 4, 8, 16)


def _offer(version: Version, stage: Stage) -> list[tuple[Choice, str]]:
    name = stage.name
    if stage.family == "matmul":
        offers: list[tuple[Choice, str]] = [
            ({"group_m": group}, f"reorder the {name} kernel's blocks in groups of {group}") for group in GROUPS
        ]
        for order, words in (("mn", "rows first"), ("nm", "columns first")):
            offers.append(({"order": order}, f"reorder the {name} kernel's blocks {words}"))
        body = version.body(stage)
        reduces = body is not None and any(node.kind == "reduce" for node in body.nodes)
        return [] if reduces else offers
    if stage.family == "rowwise":
        return _loops(version, stage)
    return []


def _loops(version: Version, stage: Stage) -> list[tuple[Choice, str]]:
    body = version.body(stage)
    assert body is not None
    layout = lay_out(version.graph, body)
    inner = 1 if is_one(layout.inner) else 32
    if stage.setting("passes") == "loop":
        words = f"hold each row of the {stage.name} kernel in registers"
        return [({"passes": "registers", "block_cols": 0}, words)] if stage.number("split") == 1 else []
    block = max(32, min(4096 // inner, 1024))
    return [({"passes": "loop", "block_cols": block}, f"walk over each row of the {stage.name} kernel in passes")]


Reorder = Settings("reorder", PAGE, _offer)
