"""gluon_keys: in which order attention in Gluon takes its blocks of keys (the setting "keys"): "forward" or "backward".

Masks of causal attention, and of a last block of keys that is not whole, are in the last block that a group of warps
sees. Taken backward, from the last block to the first, it is the first step, and the loop over the others has no masks and
no branches around them.

Why that is so. A group has rows `own` to `own + 63`, and `own` is a multiple of 64, as is block_n. Its last row sees the
columns up to min(own + 63, n_cols - 1), the last of which is in a block j of keys. That block's first column, j * block_n,
is a multiple of 64 and at most own + 63, hence at most `own`: all rows of the group see it, and it is there. So the largest
of finite scores is finite after the first step, and the softmax takes no -inf from -inf. The blocks before j end at columns
below `own` that are there: all rows see all of them. Those after j are seen by no row of the group, only by other groups of
the program where block_n is no multiple of block_m: the group waits for them and frees them (`skips`). Without causal masks
only the last block may be not whole, and all groups see it.

Blocks of 32 keys, and what else masks or changes scores (windows, lengths, biases), keep "forward".
"""

from __future__ import annotations

from dataclasses import dataclass

from mtmc.rewrite.body import NotCovered
from mtmc.rewrite.plan import Setting
from mtmc.rewrite.templates.gluon_tiles import GROUP_ROWS
from mtmc.rewrite.templates.softmax_product import SoftmaxProduct

FORWARD, BACKWARD = "forward", "backward"


@dataclass(frozen=True)
class Keys:
    """columns: of a block of keys. backward: whether the last one comes first. skips: whether some groups of warps then see
    nothing of the first ones."""

    columns: int
    backward: bool = False
    skips: bool = False

    def start(self, step: str) -> str:
        """The first column of a step's block of keys. step: its number, or "" for the first one."""
        if self.backward:
            return f"(steps - 1{step and f' - {step}'}) * {self.columns}"
        return f"first + {step} * {self.columns}" if step else "first"

    def most_skipped(self, rows: int) -> int:
        """The largest such number, of any group of a program of so many rows."""
        if not self.skips:
            return 0
        return max(
            (own + rows - 1) // self.columns - (own + GROUP_ROWS - 1) // self.columns
            for own in range(0, rows * self.columns, rows)
        )

    def skipped(self, n_cols: str) -> str:
        """How many blocks of keys are behind all rows of a group."""
        return f"steps - 1 - tl.minimum(own + {GROUP_ROWS - 1}, {n_cols} - 1) // {self.columns}"


def keys_of(found: SoftmaxProduct, schedule: dict[str, Setting]) -> Keys:
    """The order that a schedule asks for. Raises: NotCovered where it cannot be."""
    order, rows, columns = schedule.get("keys", FORWARD), int(schedule["block_m"]), int(schedule["block_n"])
    if order not in (FORWARD, BACKWARD):
        raise NotCovered(f"keys={order!r}: it is {FORWARD!r} or {BACKWARD!r}")
    if order == FORWARD:
        return Keys(columns)
    if why := why_forward(found, columns):
        raise NotCovered(why)
    return Keys(columns, True, found.causal and columns % rows != 0)


def why_forward(found: SoftmaxProduct, columns: int) -> str:
    """Why blocks of so many keys cannot be taken backward; "" where they can."""
    if found.masked:
        return "keys from the last to the first where more than causal masks changes the scores"
    if found.causal and columns % GROUP_ROWS:
        return f"keys from the last to the first in blocks of {columns}, of which several have masks"
    return ""
