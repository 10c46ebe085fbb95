"""row_shared: a row that is too long for one program's registers, held by some that wait for each other.

Each program holds one piece of the row, reduces it, writes what it has found, and waits until all of the row have done so.
Then it puts the pieces together, as all the others do, and goes on with what it holds: the row is read once, where a loop
reads it once for each reduction that waits for another, and again for the results.

Who waits for others must not keep them from beginning. Programs take their numbers when they begin (`turns`), those of a
row one after the other, so of the rows at work the first one has all its programs under way or ended, and goes on as long as
`MOST_SHARES` programs have room on the GPU at the same time. A row counts in `turns`, too, how many of its programs
have written what they found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mtmc.rewrite.body import Body, Node
from mtmc.rewrite.folding import INDENT
from mtmc.rewrite.graph import is_one
from mtmc.rewrite.templates import row_online
from mtmc.rewrite.templates.row_extremes import ONE_ROW, PLACES
from mtmc.rewrite.templates.row_parts import Shares, as_one, leave, sum_beside
from mtmc.rewrite.templates.row_passes import deviations_alone, whole
from mtmc.rewrite.templates.rows import Layout
from mtmc.rewrite.templates.writer import Writer

SHARED = "shared"
"""Value of the setting "passes"."""
MOST_SHARES = 64
"""Programs of a row at most. A GPU with fewer multiprocessors might never end: launchers refuse it."""
PIECES = (8192, 16384, 32768)
"""Columns that a program holds, 64 in a thread."""
TURNS = "turns"


def why_not_shared(body: Body, layout: Layout) -> str | None:
    """Why programs cannot share rows so, or None if they can."""
    if layout.lead or not is_one(layout.inner) or "total" in layout.place.values():
        return "only rows whose columns lie one behind the other are shared"
    if any(node.kind == "reduce" and (node.operation in PLACES or node.operation == "prod") for node in body.nodes):
        return "places and products are not put together from pieces"
    if any(node.kind == "window" for node in body.nodes):
        return "rows with windows are not shared"
    return None


def pieces_of(layout: Layout, most: int = MOST_SHARES) -> list[int]:
    """How many columns a program may hold so that a row of the full shapes is two to `MOST_SHARES` pieces. most: no more
    than so many, the multiprocessors of a GPU."""
    columns = layout.cols[0] if layout.cols else 1
    return [piece for piece in PIECES if piece < columns <= piece * min(most, MOST_SHARES)]


def begin(writer: Writer) -> None:
    """Write which row a program has, and which share of it."""
    writer.comment("in the order in which programs begin: those of a row wait for each other")
    writer.line(f"turn = tl.atomic_add({TURNS}, 1)")
    writer.line("row, share = turn // SPLIT, turn % SPLIT")
    writer.line("rows = (row + tl.arange(0, BLOCK_ROWS))[:, None]")


def exchange(
    writer: Writer, layout: Layout, reductions: Sequence[Node], values: Mapping[str, str], rounds: int
) -> None:
    """Write how a program reduces its piece, and how the programs of a row tell each other what each has found.

    values: what the reductions read; the sums of exponentials of `Layout.online` are not among them. rounds: how often the
    programs have waited for each other, with this time.
    """
    for node in reductions:
        if node.name in layout.online:
            top = layout.online[node.name]
            row_online.alone(writer, next(each for each in reductions if each.name == top), node, values[top])
        elif node.operation == "deviations":
            total = sum_beside(reductions, node)
            known = "" if total is None else total.name
            deviations_alone(writer, node, values[node.name], writer.size(layout.cols), known)
        else:
            whole(writer, node, values[node.name], {}, writer.size(layout.cols))
    leave(writer, reductions, "rows * SPLIT + share")
    writer.line("tl.debug_barrier()")
    writer.line(f"tl.atomic_add({TURNS} + 1 + row, 1)")
    writer.line(f"while tl.atomic_add({TURNS} + 1 + row, 0) < {f'{rounds} * ' if rounds > 1 else ''}SPLIT:")
    writer.line("    pass")
    if rounds == 1:
        writer.line("shares = tl.arange(0, SHARES)[None, :]")
    at_hand = Shares("row_mask & (shares < SPLIT)", "BLOCK_COLS", "SHARES", ONE_ROW, ', cache_modifier=".cg"')
    as_one(writer, layout, reductions, at_hand)


def launcher_lines(rows: str, columns: str, least: int, like: str) -> list[str]:
    """Lines of the launcher: how many programs hold a row, and what they take their turns by. rows, columns: expressions of
    their numbers. least: columns that a program holds at least."""
    return [
        f"{INDENT}block_cols = max({least}, triton.next_power_of_2(triton.cdiv({columns}, {MOST_SHARES})))",
        f"{INDENT}split = triton.cdiv({columns}, block_cols)",
        f"{INDENT}if {like}.is_cuda and split > torch.cuda.get_device_properties({like}.device).multi_processor_count:",
        f'{INDENT * 2}raise RuntimeError(f"{{split}} programs wait for each other, more than this GPU has room for")',
        f"{INDENT}{TURNS} = torch.zeros(1 + {rows}, device={like}.device, dtype=torch.int32)",
    ]
