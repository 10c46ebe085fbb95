"""awaited_sums: a slice of a product is done before work on the next one begins, where its left tile is made in registers.

On Hopper the tensor cores go on reading a left tile in registers after the program has gone on. Triton 3.6 waits for the
first of a slice's instructions only, so that work on the next slice may write into registers that the others still read
(triton-lang/triton issue 9433, repaired for 3.7): of a GELU before a product of ViT-S/16 half of the elements were wrong on
an H200, and the interpreter knows no registers. Where the sums are read in the loop, Triton waits for all of them. What
reads them here is a selection whose condition is the loop's own: the compiler leaves the waiting and drops the selection.
"""

from __future__ import annotations

from collections.abc import Sequence

from mtmc.rewrite.plan import Stage
from mtmc.rewrite.templates.writer import Writer

IN_PARTS = ("ieee", "tf32x3")
"""Precisions for which Triton reads the sums in the loop by itself, or uses no tensor cores."""


def await_sums(writer: Writer, sums: Sequence[str], inside: str, stage: Stage) -> None:
    """Lines that have the sums wait for the slice at hand. inside: what holds in every round of the loop."""
    if stage.setting("precision") in IN_PARTS:
        return
    writer.comment("the tensor cores have read the left tile before its registers are written again")
    for name in sums:
        writer.line(f"{name} = tl.where({inside}, {name}, 0)")
