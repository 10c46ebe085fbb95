"""row_following: shares of long rows that are used in the launch that makes them, while the cache still has them.

Where rows are split, a first kernel makes the shares of all rows and a second one goes over them once more: if all rows are
more than the cache holds, they come from memory twice. Here one kernel does both. Each program makes a share, as the first
kernel's do, and then goes over the share of the program that began `behind` programs before it, as the second kernel's do.

No one waits for a program that might not begin. Programs take their numbers when they begin (`turns`), each makes its share
before it waits for others, and waits only for shares of programs with smaller numbers: `behind` is at least `SPLIT`. So,
unlike programs that hold a row (`row_shared`), they need no room on the GPU at the same time.
"""

from __future__ import annotations

from mtmc.rewrite.body import Body
from mtmc.rewrite.folding import INDENT
from mtmc.rewrite.graph import power_of_two_below
from mtmc.rewrite.templates.row_shared import TURNS
from mtmc.rewrite.templates.rows import Layout, why_not_split
from mtmc.rewrite.templates.writer import Writer

FOLLOWING = "following"
"""Value of the setting "passes"."""
COLUMNS, FEWEST, MOST_SHARES = (4096, 2048), 2, 1024
"""Columns that a program's share has at least, by choice; programs of a row. Of larger shares the cache would not hold all
that is read and written between a share and its use."""
LEAST = 256
"""Columns of a share, at other shapes than the full ones too."""
BEHIND = 2
"""Programs of each multiprocessor that begin, once all of a row have begun, before the first share of it is used: about a
third of those that are under way, so that the shares are made by then, and the cache has not forgotten them."""
SHARES, LAG = "n_shares", "behind"
"""Arguments of the kernel."""


def why_not_following(body: Body, layout: Layout) -> str | None:
    """Why a row's shares cannot be used in the launch that makes them, or None if they can."""
    if all(layout.place.get(value) != "full" for value in body.stores):
        return "nothing is made of each element once its row is reduced"
    return why_not_split(body, layout)


def splits_of(layout: Layout) -> list[int]:
    """Among how many programs rows of the full shapes may be split."""
    columns = layout.cols[0] if layout.cols else 1
    counts = (min(MOST_SHARES, power_of_two_below(columns // each)) for each in COLUMNS if columns >= each)
    return [count for count in dict.fromkeys(counts) if count >= FEWEST]


def begin(writer: Writer) -> None:
    """Write which share a program makes, and open what it does if there is one."""
    writer.comment("in the order in which programs begin: each makes a share, and uses one made some programs before")
    writer.line(f"turn = tl.atomic_add({TURNS}, 1)")
    writer.line(f"if turn < {SHARES}:")
    writer.level += 1
    writer.line("block, part = turn // SPLIT, turn % SPLIT")


def use(writer: Writer) -> None:
    """Write that the share is made, and wait for those of the row whose share is used next; open what is done with it."""
    writer.line("tl.debug_barrier()")
    writer.line(f"tl.atomic_add({TURNS} + 1 + block, 1)")
    writer.level -= 1
    writer.line(f"if turn >= {LAG}:")
    writer.level += 1
    writer.line(f"block, part = (turn - {LAG}) // SPLIT, (turn - {LAG}) % SPLIT")
    writer.line(f"while tl.atomic_add({TURNS} + 1 + block, 0) < SPLIT:")
    writer.line("    pass")


def launcher_lines(blocks: str, columns: str, split: int, like: str) -> list[str]:
    """Lines of the launcher: among how many programs rows are split, how many shares that makes, how many programs later
    each is used, and the programs' turns. blocks, columns: expressions of their numbers."""
    many = f"{BEHIND} * torch.cuda.get_device_properties({like}.device).multi_processor_count"
    return [
        f"{INDENT}split = min({split}, triton.next_power_of_2(triton.cdiv({columns}, {LEAST})))",
        f"{INDENT}{SHARES} = ({blocks}) * split",
        f"{INDENT}{LAG} = split",
        f"{INDENT}if {like}.is_cuda:  # so many later that the shares are made by then, and still in the cache",
        f"{INDENT * 2}{LAG} += {many}",
        f"{INDENT}{TURNS} = torch.zeros(1 + {blocks}, device={like}.device, dtype=torch.int32)",
    ]
