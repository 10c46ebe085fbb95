"""Times: a median with its confidence interval, when to stop, and whether a stated time agrees with the oracle's clock.

The candidate's own device events are precise but are read in its process. The oracle's clock runs from opening the gate
to the moment when the oracle has taken the outputs out of the candidate's reach, which it does as soon as the candidate's
stream raises a flag. A flag that is raised too early finds outputs that are not there; nothing that a candidate writes moves
this clock. Other processes add to that, and take nothing from it: with contexts being made and versions being built on the
same machine, half of the calls of a millisecond can show 0.12 to 0.15 ms more (on an H200) while the others agree within a
few microseconds. So the stated time counts where

    low(walls) - overhead(output bytes) - median(stated) <= 5 us + 3% of overhead(output bytes) + 0.1% of low(walls)

(the second term is how far the evaluator's own copies differ between processes, the third how far two clocks may run apart)
with `low` the lower eighth, and `overhead` the lower eighth of what the evaluator's own models show in the same way.

What a forged time gains: a wall is the oracle's own, and no shorter than the overhead and the work of that call, whose
outputs are checked. So a version that passes states at least the time that its work truly took in the fastest eighth
of its calls, less the slack, whichever of its times it forged, and however many. Work that hides in every call is in that
eighth; work that is left out of some calls makes their outputs wrong; slow calls beside fast ones only add to the walls.
(The median of `wall - stated` in pairs would ask for more of the honest and for no more of the others: it passes with just
under half of the times forged, and the median of the stated ones is then the least of the true ones.) Calls before which
the device was not idle do not count, see `timing_validation`: their work may have begun before the clock.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

SLACK_MS = 0.005
COPIES_SHARE = 0.03
DRIFT_SHARE = 0.001
TICKS_MS = 1e-4
"""Three ticks of the clock that device events are taken from (32 ns on an H100): no median is known more closely."""
OUTPUT_MS = 0.004
"""What handing over one more output costs: one more copy kernel in the stream."""
TOGETHER = 16
"""So many outputs and more are copied by few kernels (see `handing_over`), which take no longer than so many copies."""


@dataclass(frozen=True)
class Timing:
    """A median of `trials` samples with the 95% confidence interval of the median, in milliseconds."""

    median_ms: float
    low_ms: float
    high_ms: float
    trials: int


def summarize(samples: Sequence[float]) -> Timing:
    """Median and its distribution-free 95% interval: the order statistics (n -+ 1.96 sqrt(n)) / 2 (Conover, Practical
    Nonparametric Statistics, section 3.2).

    samples: at least one, in milliseconds. Raises: ValueError if there is none.
    """
    if not samples:
        raise ValueError("no samples to summarize")
    ordered = sorted(samples)
    n = len(ordered)
    half = 1.96 * math.sqrt(n) / 2
    low = max(0, math.floor(n / 2 - half))
    high = min(n - 1, math.ceil(n / 2 + half) - 1)
    return Timing(median(ordered), ordered[low], ordered[max(high, low)], n)


def median(samples: Sequence[float]) -> float:
    """The middle sample, or the mean of the two in the middle."""
    ordered = sorted(samples)
    n = len(ordered)
    middle = ordered[n // 2]
    return middle if n % 2 else (ordered[n // 2 - 1] + middle) / 2


def lower_eighth(samples: Sequence[float]) -> float:
    """Of n samples in ascending order the one at place (n - 1) // 8, counted from 0: at least an eighth are no greater."""
    return sorted(samples)[(len(samples) - 1) // 8]


@dataclass(frozen=True)
class TimingBudget:
    """When to stop timing. least, most: samples. precision: half the interval over the median that is enough; so is half
    an interval of `enough_ms`.

    seconds: after which no more than `least` samples are taken.
    """

    least: int
    most: int
    precision: float
    seconds: float
    enough_ms: float = TICKS_MS

    def enough(self, samples: Sequence[float], spent_s: float) -> bool:
        """Whether no further sample is needed."""
        n = len(samples)
        if n < self.least:
            return False
        if n >= self.most or spent_s >= self.seconds:
            return True
        timing = summarize(samples)
        return (timing.high_ms - timing.low_ms) / 2 <= max(self.precision * timing.median_ms, self.enough_ms)


@dataclass(frozen=True)
class Overhead:
    """What the oracle's clock shows beyond the stated time, by bytes of output: points in ascending order, between which
    it is interpolated linearly and beyond which the last slope goes on. In milliseconds."""

    points: tuple[tuple[int, float], ...]

    def ms(self, output_bytes: int, outputs: int) -> float:
        """For that many outputs of that many bytes together."""
        sizes = [size for size, _ in self.points]
        at = min(max(1, bisect.bisect_right(sizes, output_bytes)), len(sizes) - 1)
        (x0, y0), (x1, y1) = self.points[at - 1], self.points[at]
        inside = y0 + (y1 - y0) * (output_bytes - x0) / (x1 - x0)
        return inside + more_outputs_ms(outputs)


def more_outputs_ms(outputs: int) -> float:
    """What handing over so many outputs of a call costs more than handing over one of as many bytes."""
    return OUTPUT_MS * max(0, min(outputs, TOGETHER) - 1)


@dataclass(frozen=True)
class TaskOverhead:
    """What the oracle's clock shows beyond the stated time of the evaluator's own model among the draws and references of a
    task, in milliseconds: a reference of 24 ms between two calls leaves caches and clocks of both sides otherwise than a
    short one. output_bytes, outputs: of a call. ahead_ms: behind the gate. everywhere_ms: behind one for all streams; None
    where these cannot be held."""

    output_bytes: int
    outputs: int
    ahead_ms: float
    everywhere_ms: float | None


@dataclass(frozen=True)
class OverheadTable:
    """ahead: of calls enqueued behind the gate. waiting: of calls whose host code runs after the gate has opened; medians,
    as are the runtimes of such calls.
    flush_ms: of writing the last piece of the inputs and flushing the cache while nothing else uses the device, by its own
    events; late_ms: by the oracle's clock. everywhere_ms: how much longer it takes where all streams wait at the
    gate; None where they cannot be made to.
    reveal: of a call of some in a row that gives one number, by bytes of its inputs, which are copied. loop: what copying
    the outputs adds to that; loop_host_ms: of both, on the host alone."""

    ahead: Overhead
    waiting: Overhead
    flush_ms: float
    loop: Overhead = Overhead(((0, 0.0), (1, 0.0)))
    loop_host_ms: float = 0.0
    reveal: Overhead = Overhead(((0, 0.0), (1, 0.0)))
    late_ms: float = 0.0
    everywhere_ms: float | None = 0.0

    def at_least(self, own: TaskOverhead | None) -> OverheadTable:
        """With what it is for a task, where that is more. own: None where it was not measured."""
        if own is None:
            return self
        usual = self.ahead.ms(own.output_bytes, own.outputs)
        beyond = max(0.0, own.ahead_ms - usual)
        ahead = Overhead(tuple((size, ms + beyond) for size, ms in self.ahead.points))
        everywhere = self.everywhere_ms
        if everywhere is not None and own.everywhere_ms is not None:
            everywhere = max(everywhere, own.everywhere_ms - usual - beyond)
        return replace(self, ahead=ahead, everywhere_ms=everywhere)

    def of(self, ahead: bool) -> Overhead:
        """The one that holds for a call."""
        return self.ahead if ahead else self.waiting


def hidden_ms(walls: Sequence[float], stated: Sequence[float], overhead_ms: float) -> float:
    """How much of the oracle's clock the stated times leave unexplained where that is more than the slack; else 0.

    walls: of calls that count, at least one. stated: of all calls whose median is the runtime. In milliseconds.
    """
    clock = lower_eighth(walls)
    excess = clock - overhead_ms - median(stated)
    return excess if excess > slack_ms(clock, overhead_ms) else 0.0


def disturbed_share(walls: Sequence[float], stated: Sequence[float], overhead_ms: float) -> float:
    """Share of calls whose own stated time leaves more than the slack unexplained: what else the machine did, of honest
    ones. walls, stated: of the same calls."""
    pairs = list(zip(walls, stated, strict=True))
    return sum(wall - own - overhead_ms > slack_ms(wall, overhead_ms) for wall, own in pairs) / len(pairs)


def slack_ms(wall_ms: float, overhead_ms: float) -> float:
    """What a wall may show beyond overhead and stated time."""
    return SLACK_MS + COPIES_SHARE * overhead_ms + DRIFT_SHARE * wall_ms


def floor_ms(input_bytes: int, output_bytes: int, cache_bytes: int, dram_gbs: float) -> float:
    """Least time to read cold inputs and to write what of the outputs the last-level cache cannot hold, at the DRAM's
    peak rate: no kernel that reads all of its inputs is faster."""
    moved = input_bytes + max(0, output_bytes - cache_bytes)
    return moved / (dram_gbs * 1e6)
