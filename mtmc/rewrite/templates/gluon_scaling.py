"""gluon_scaling: how attention's scores become powers of two: apart, or joined in one instruction (the setting "scaling").

Apart, `(score - largest) * factor` takes two instructions a score and leaves exactly 0 of the largest. Joined, `score *
factor - base` takes one, a fused multiplication and addition with one rounding, where `base` is the row's `largest *
factor`, rounded. Of the largest then `left = largest * factor - base` is left, in place of nothing.

Why that is right. All weights of a row are too large by one factor, 2**left, which the quotient of the sums cancels. When a
larger score comes, earlier sums are scaled by the weight that the earlier largest has now over the one that it had,
2**(top * factor - base - left), so the factor stays one for the whole row. With 24 bits, |left| is at most half of the
last place of `base`: 2**-15 for 1e3, 16 below LIMIT = 2**29. So weights are at most 2**16 and those that matter no
subnormal ones, which fp32 and bf16 hold; fp16 does not, and keeps "apart".

From LIMIT on, a row's factor is 1 and its base the largest score itself, both exact. Any two scores there are at least
2**-24 of the largest apart, which is 2**-24 * LIMIT = 32 times one over the factor: another score's weight is at most 2**-32
both with the factor and, where that is at most 1, even more so without. Nothing overflows where the scores do not. For
factors between 1 and 2 the limit is 2**30, which gives the same bounds with 2**32; larger ones keep "apart".
"""

from __future__ import annotations

from mtmc.rewrite.body import NotCovered
from mtmc.rewrite.templates.attention_shares import LOG2_E
from mtmc.rewrite.templates.softmax_product import SoftmaxProduct

APART, JOINED = "apart", "joined"
LIMIT_BITS = 29
"""From 2**29 on a scaled score's last place is worth 32 or more."""
MOST = 2.0
"""The largest factor of scores that can be joined."""


def is_joined(schedule: dict[str, int | str]) -> bool:
    """Whether a schedule joins product and subtraction."""
    return schedule.get("scaling", APART) == JOINED


def why_apart(found: SoftmaxProduct, dtype: str) -> str:
    """Why the two cannot be joined; "" where they can be. dtype: of queries, keys and values."""
    number, _ = found.factor()
    if dtype != "bfloat16":
        return f"scores that are scaled and shifted at once, of {dtype}, which holds no weights of 2**16"
    if number is not None and number * LOG2_E > MOST:
        return f"scores that are scaled and shifted at once by a factor of {number:g}, which is more than 1.38"
    return ""


def check(found: SoftmaxProduct, dtype: str, schedule: dict[str, int | str]) -> None:
    """Raises: NotCovered where a schedule joins what cannot be."""
    scaling = schedule.get("scaling", APART)
    if scaling not in (APART, JOINED):
        raise NotCovered(f"scaling={scaling!r}: it is {APART!r} or {JOINED!r}")
    if scaling == JOINED and (why := why_apart(found, dtype)):
        raise NotCovered(why)


def limit(found: SoftmaxProduct) -> float:
    """The scaled score from which on a row's factor is 1."""
    number, _ = found.factor()
    return 2.0 ** (LIMIT_BITS + int(number is not None and number * LOG2_E > 1))
