"""What a version wrote at the full shapes beside what the reference makes there. Runs where verdicts are made: no torch.

Only sampled programs have run, and rows are those of a small draw (`mtmc.evaluate.counting.tiling`). Whether a version is
precise is found out at small shapes; here the question is whether it does the same work, so the tolerance is wide.
"""

from __future__ import annotations

import array
import math
from collections.abc import Sequence
from dataclasses import dataclass

from mtmc.task.tolerance import DEFAULT, Tolerance

Spot = tuple[int, int, float]
"""One element that a program wrote: number of the output, place in the small draw's, value."""

OFF, SHARE = 0.03, 0.01
"""What an element may be off, times its own size and the root mean square of the output; the share of those that may be."""

EXACT_BITS, NORM, LEAST = 24, 0.003, 1e-4
"""Bits of significand from which on elements may be off by `NORM` only, as root mean squares of all but that share, where
float64 does not tell how much they have to be; `LEAST` where it does, as sums are longer here than at small shapes."""

RARE = 1e-6
"""Odds of what is taken not to happen."""

STEP, MOST = 0.25, 0.5
"""What one step of integers or fp8 may be of an element, where a task allows steps: e5m2 has two bits; and all of them."""


@dataclass(frozen=True)
class Changed:
    """What some programs wrote to outputs of which others changed a part besides. share: of the elements, at most."""

    written: tuple[Spot, ...]
    share: float
    programs: int

    @property
    def allowed(self) -> float:
        """Share of these elements that may be other ones: as many programs as hardly ever lie in that part, all of each."""
        few, odds = 0, (1.0 - self.share) ** self.programs
        while 1.0 - odds > RARE and few < self.programs:
            few += 1
            part = self.share**few * (1.0 - self.share) ** (self.programs - few)
            odds += math.comb(self.programs, few) * part
        return max(few / max(1, self.programs), 3.0 * self.share)


@dataclass(frozen=True)
class Found:
    """What spot checks saw. written: what was written to outputs, of programs that loaded nothing unknown.
    changed: the same of launches that are not alone in writing an output.
    compared, unknown: how many programs wrote to outputs, and of how many of them it is not known what they load.
    exhausted: kernels of launches that write outputs, of which no program could be compared, as what they load takes more
        work to compute than there is for it.
    unsummed: whether something was asked for that atomics add up, which takes too much work to compute."""

    written: tuple[Spot, ...] = ()
    changed: tuple[Changed, ...] = ()
    compared: int = 0
    unknown: int = 0
    exhausted: tuple[str, ...] = ()
    unsummed: bool = False

    @property
    def metrics(self) -> dict[str, float]:
        """As metrics of an outcome."""
        return {"compared_at_full": float(self.compared - self.unknown)}


def wrong(
    written: Sequence[Spot],
    expected: Sequence[array.array[float]],
    tolerance: Tolerance = DEFAULT,
    bits: int = 0,
    near: Sequence[float] = (),
    others: float = 0.0,
) -> str:
    """What is wrong with elements that a version wrote, or "". Forged places count as wrong.

    expected: of each output of the small draw, all elements. tolerance: the task's, where it is wider. bits: of the
    narrowest significand that the task asks for, 0 where that is not known. near: see `Tiles`. others: share of the elements
    that may have been changed afterwards.
    """
    reach = max(OFF, tolerance.rtol or 0.0, min(STEP * (tolerance.steps or 0), MOST))
    scales = [_scale(values) for values in expected]
    worst, off, broken, count = (0.0, 0, 0.0, 0.0), 0, 0, 0
    for output, place, value in written:
        if not (0 <= output < len(expected) and 0 <= place < len(expected[output])):
            return f"element {place} of output {output}, which there is not"
        want = expected[output][place]
        if not math.isfinite(want):
            continue
        count += 1
        apart = max(0.0, abs(value - want) - (tolerance.atol or 0.0))
        excess = apart / (abs(want) + scales[output]) if math.isfinite(value) else math.inf
        off, broken = off + (excess > reach), broken + (not math.isfinite(value))
        worst = max(worst, (excess, output, value, want))
    if not count or (off <= (SHARE + others) * count and broken <= others * count):
        if not tolerance.is_default or others:
            return ""
        usual = NORM if bits >= EXACT_BITS else math.inf
        limits = [min(usual, max(each, LEAST)) for each in near or [math.inf] * len(scales)]
        return _far(written, expected, scales, limits)
    return f"{off} of {count} elements of output {worst[1]}, such as {worst[2]:.6g} instead of {worst[3]:.6g}"


def wrong_of(
    found: Found, expected: Sequence[array.array[float]], tolerance: Tolerance, bits: int, near: Sequence[float]
) -> str:
    """What is wrong with what spot checks saw, or ""; see `wrong`."""
    told = wrong(found.written, expected, tolerance, bits, near)
    each = (wrong(part.written, expected, tolerance, bits, near, part.allowed) for part in found.changed)
    return told or next(filter(None, each), "")


def _far(
    written: Sequence[Spot],
    expected: Sequence[array.array[float]],
    scales: Sequence[float],
    limits: Sequence[float],
) -> str:
    """An output that is further off as a whole than numbers of its precision are, or ""."""
    for output, scale in enumerate(scales):
        pairs = [(value, expected[output][place]) for number, place, value in written if number == output]
        errors = sorted((value - want) ** 2 for value, want in pairs if math.isfinite(want) and math.isfinite(value))
        kept = errors[: len(errors) - int(SHARE * len(errors))]
        error = math.sqrt(sum(kept) / len(kept)) if kept else 0.0
        size = sum(want * want for _, want in pairs if math.isfinite(want)) / max(1, len(pairs))
        scale = max(scale, math.sqrt(size))  # programs may lie where numbers are large
        if error > limits[output] * scale:
            return f"output {output}, {error / scale:.2%} off as a whole (allowed {limits[output]:.2%})"
    return ""


def _scale(values: array.array[float]) -> float:
    """Root mean square of what is finite, of at most some thousand elements."""
    some = [value for value in values[:: max(1, len(values) // 4096)] if math.isfinite(value)]
    return math.sqrt(sum(value * value for value in some) / max(1, len(some))) or 1e-30
