"""conv_rounding: operands of a convolution that are rounded to TF32, as the library does: tensor cores cut them off.

Rounded in the kernel's loop they go through registers instead of straight from shared memory to the tensor cores, and do so
again for each tap and tile. So they are rounded once, in memory, where they can be.
"""

from __future__ import annotations

from mtmc.rewrite.body import Body
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.templates.channels_last import is_channels_last
from mtmc.rewrite.templates.positions import Windowed

ROUNDED = "tf32_rounded"
"""One TF32 product of operands that are rounded to it before."""


def is_rounded(stage: Stage) -> bool:
    """Whether a stage is such a product."""
    return dict(stage.schedule).get("precision") == ROUNDED


def rounded_in_memory(body: Body, found: Windowed, stage: Stage) -> tuple[str, ...]:
    """Of the operand and the weight of a convolution, those that its launcher is to be given rounded to TF32.

    The weight is; the operand is where no work comes before the convolution, and its channels lie last or are few, so that
    it is small beside the result. Elsewhere it goes through registers in any case. What other work of the kernel reads, as
    a residual does, is given as it is. The kernel rounds what is not given so.
    """
    if not is_rounded(stage):
        return ()
    operand, weight = found.node.reads()[:2]
    others = {read for node in body.nodes if node is not found.node for read in node.reads()}
    small = is_channels_last(stage) or dict(stage.schedule).get("loop") == "channels"
    given = (operand, weight) if small and not found.before else (weight,)
    return tuple(value for value in dict.fromkeys(given) if value not in others)
