"""why: the one line on a problem that is not 1.05 times as fast as its better baseline. Pure, from metrics only.

The rules, the first that holds. b is the better baseline, v the version that is handed back, R the fraction of the roofline
that v reaches, so that R t(v) is the least time that the work takes on this GPU.

    at_the_roof      a version that reaches REACHABLE of the roofline would gain less than ENOUGH over b:
                     t(b) / (R t(v) / REACHABLE) < ENOUGH
    launch_bound     its time is launches: the host takes longer for a call than the device (by a tenth of it at least), or
                     launching its kernels takes the device at least half of t(v): kernels x launch time >= t(v) / 2
    template_missing v still calls the library for ops that no kernel template covers
    kernels_fail     versions with kernels were made, and none passed
    nothing_tried    no version with a kernel was made
    library_better   the fastest right version with a kernel is no faster than b
    ended            that version is faster than b, but by less than ENOUGH: what the search found until it ended

Where R, the launches or the ops are not known, the rules that need them do not hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mtmc.bench.row import Why
from mtmc.evaluate.estimates.host_time import launch_bound

ENOUGH = 1.05
REACHABLE = 0.9
"""Fraction of the roofline that good kernels get: DRAM delivers about nine tenths of its peak."""
_SHOWN = 4


@dataclass(frozen=True)
class WhyFacts:
    """What the rules look at. Times in milliseconds.

    baseline, baseline_ms: the better one. best_ms: of what is handed back. roofline: fraction that reaches, 0 to 1.
    kernels: launches of one forward. launch_us: of one launch on this GPU. device_ms, call_ms: of what is handed back, where
    they were measured and the host's work is part of its runtime.
    uncovered: library ops that the best version still calls and no kernel template covers, by name, with how many.
    ops: library calls and kernels of the best version together.
    kernel_ms: of the fastest right version with a kernel. made: versions with kernels. statuses: how these ended.
    finished: why the search ended.
    """

    baseline: str
    baseline_ms: float
    best_ms: float
    roofline: float | None = None
    kernels: float | None = None
    launch_us: float | None = None
    device_ms: float | None = None
    call_ms: float | None = None
    uncovered: Mapping[str, int] | None = None
    ops: int = 0
    kernel_ms: float | None = None
    made: int = 0
    statuses: Mapping[str, int] | None = None
    finished: str = ""


def why(facts: WhyFacts) -> Why | None:
    """Why there is no more; None where the gain is `ENOUGH`."""
    gain = facts.baseline_ms / facts.best_ms
    if gain >= ENOUGH:
        return None
    for rule in (_at_the_roof, _launch_bound, _template_missing, _without_kernels):
        found = rule(facts)
        if found is not None:
            return found
    assert facts.kernel_ms is not None
    kernel = f"the fastest right version with a kernel takes {_ms(facts.kernel_ms)}{_reaching(facts)}"
    if facts.kernel_ms >= facts.baseline_ms:
        return Why("library_better", f"{kernel}, {facts.baseline} {_ms(facts.baseline_ms)}")
    ended = f"; the search ended: {facts.finished}" if facts.finished else ""
    return Why("ended", f"{kernel}, {gain:.2f}x over {facts.baseline}{ended}")


def _at_the_roof(facts: WhyFacts) -> Why | None:
    if facts.roofline is None:
        return None
    least = facts.roofline * facts.best_ms
    possible = facts.baseline_ms / (least / REACHABLE) if least > 0 else float("inf")
    if possible >= ENOUGH:
        return None
    told = f"{facts.baseline} takes {_ms(facts.baseline_ms)}, {_percent(least / facts.baseline_ms)} of the roofline"
    return Why("at_the_roof", f"{told}: at {_percent(REACHABLE)} of it a version would be {possible:.2f}x")


def _launch_bound(facts: WhyFacts) -> Why | None:
    if launch_bound(facts.device_ms, facts.call_ms):
        assert facts.device_ms is not None and facts.call_ms is not None
        kernels = "its launches" if facts.kernels is None else f"{facts.kernels:.0f} launches"
        waits = f"the device takes {_ms(facts.device_ms)} of it"
        return Why("launch_bound", f"its time is launches: the host takes {_ms(facts.call_ms)} for {kernels}, {waits}")
    if facts.kernels is None or facts.launch_us is None:
        return None
    launching = facts.kernels * facts.launch_us / 1e3
    if launching < facts.best_ms / 2:
        return None
    launches = f"{facts.kernels:.0f} launches of {facts.launch_us:g} \u00b5s"
    return Why("launch_bound", f"{launches} are {_percent(launching / facts.best_ms)} of its {_ms(facts.best_ms)}")


_REASONS = {
    "fourier": "a Fourier transform of more than 512 numbers",
    "fft": "a Fourier transform of more than 512 numbers, or one that gives complex ones",
    "masked_select": "how many elements it gives hangs on the mask",
    "ctc_loss": "a recursion over places",
}
"""Beginnings of the names of ops that are left to the library for good, with what stands in the way."""


def _named(name: str, count: int) -> str:
    """An op that no template covers, with how many there are and why."""
    reason = next((text for start, text in _REASONS.items() if name.startswith(start)), "")
    told = [f"{count}" if count > 1 else "", reason]
    return f"{name} ({': '.join(filter(None, told))})" if any(told) else name


def _template_missing(facts: WhyFacts) -> Why | None:
    if not facts.uncovered:
        return None
    names = [_named(name, count) for name, count in facts.uncovered.items()]
    shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    count = sum(facts.uncovered.values())
    return Why(
        "template_missing", f"no kernel template covers {shown}: {count} of {facts.ops} steps stay with the library"
    )


def _without_kernels(facts: WhyFacts) -> Why | None:
    if facts.kernel_ms is not None:
        return None
    if not facts.made:
        return Why(
            "nothing_tried", f"no version with a kernel was made: {facts.finished or 'the search has not ended'}"
        )
    statuses = ", ".join(f"{count} {name}" for name, count in sorted((facts.statuses or {}).items()))
    return Why("kernels_fail", f"none of {facts.made} versions with a kernel is right: {statuses}")


def _reaching(facts: WhyFacts) -> str:
    """The fraction of the roofline that the fastest version with a kernel reaches."""
    if facts.roofline is None or facts.kernel_ms is None:
        return ""
    return f" ({_percent(facts.roofline * facts.best_ms / facts.kernel_ms)} of the roofline)"


def _ms(value: float) -> str:
    return f"{value * 1e3:.3g} \u00b5s" if value < 0.1 else f"{value:.3g} ms"


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.0f}%"
