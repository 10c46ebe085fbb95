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

EXACT_BITS, NORM = 24, 0.003
"""Bits of significand from which on elements may be off by this only, as root mean squares of all but that share."""

STEP, MOST = 0.25, 0.5
"""What one step of integers or fp8 may be of an element, where a task allows steps: e5m2 has two bits; and all of them."""


@dataclass(frozen=True)
class Found:
    """What spot checks saw. written: what was written to outputs, of programs that loaded nothing unknown.
    compared, unknown: how many programs wrote to outputs, and of how many of them it is not known what they load.
    exhausted: of how many of these it was looked for until time was up."""

    written: tuple[Spot, ...] = ()
    compared: int = 0
    unknown: int = 0
    exhausted: int = 0

    @property
    def metrics(self) -> dict[str, float]:
        """As metrics of an outcome."""
        return {"compared_at_full": float(self.compared - self.unknown)}


def wrong(
    written: Sequence[Spot], expected: Sequence[array.array[float]], tolerance: Tolerance = DEFAULT, bits: int = 0
) -> str:
    """What is wrong with elements that a version wrote, or "". Forged places count as wrong.

    expected: of each output of the small draw, all elements. tolerance: the task's, where it is wider. bits: of the
    narrowest significand that the task asks for, 0 where that is not known.
    """
    near = max(OFF, tolerance.rtol or 0.0, min(STEP * (tolerance.steps or 0), MOST))
    scales = [_scale(values) for values in expected]
    worst, off, count = (0.0, 0, 0.0, 0.0), 0, 0
    for output, place, value in written:
        if not (0 <= output < len(expected) and 0 <= place < len(expected[output])):
            return f"element {place} of output {output}, which there is not"
        want = expected[output][place]
        if not math.isfinite(want):
            continue
        count += 1
        apart = max(0.0, abs(value - want) - (tolerance.atol or 0.0))
        excess = apart / (abs(want) + scales[output]) if math.isfinite(value) else math.inf
        off += excess > near
        worst = max(worst, (excess, output, value, want))
    if not count or off <= SHARE * count:
        return "" if bits < EXACT_BITS or not tolerance.is_default else _far(written, expected, scales)
    return f"{off} of {count} elements of output {worst[1]}, such as {worst[2]:.6g} instead of {worst[3]:.6g}"


def _far(written: Sequence[Spot], expected: Sequence[array.array[float]], scales: Sequence[float]) -> str:
    """An output that is further off as a whole than numbers of full precision are, or ""."""
    for output, scale in enumerate(scales):
        pairs = [(value, expected[output][place]) for number, place, value in written if number == output]
        errors = sorted((value - want) ** 2 for value, want in pairs if math.isfinite(want) and math.isfinite(value))
        kept = errors[: len(errors) - int(SHARE * len(errors))]
        error = math.sqrt(sum(kept) / len(kept)) if kept else 0.0
        if error > NORM * scale:
            return f"output {output}, {error / scale:.1%} off as a whole"
    return ""


def _scale(values: array.array[float]) -> float:
    """Root mean square of what is finite, of at most some thousand elements."""
    some = [value for value in values[:: max(1, len(values) // 4096)] if math.isfinite(value)]
    return math.sqrt(sum(value * value for value in some) / max(1, len(some))) or 1e-30
