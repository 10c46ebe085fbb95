"""What a count says against a version. Runs where verdicts are made: no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mtmc.evaluate.compiling.build import Built
from mtmc.evaluate.compiling.launched import Launch
from mtmc.evaluate.counting.count import Counted
from mtmc.evaluate.counting.distinct import SHARE, distinct_bytes
from mtmc.evaluate.counting.floor import Floor, unpriced
from mtmc.evaluate.counting.upstream import short_of, unreached
from mtmc.outcome import LOW_PRECISION, Diagnosis, Outcome


def too_little(counted: Counted, least: Floor) -> Outcome | None:
    """The outcome of a version that leaves out what its task takes at the full shapes. least: of the task."""
    everything = (*counted.records, *(counted.copies or ()))
    moved = distinct_bytes(everything, counted.inputs)
    if moved < SHARE * least.bytes or not counted.records:
        return _too_little(
            f"the forward moves {moved} bytes, but the reference has {least.bytes} of inputs to read and outputs to write: "
            "work is left out there, or not done by launches"
        )
    flops = sum(record["flops"] for record in everything)
    if flops < least.flops:
        return _too_little(
            f"the forward computes {flops} flops, but the reference's products alone take {least.flops} in any way: some of "
            "them are left out there"
        )
    short = short_of(least.everywhere, counted.inputs, counted.records, least.largest, SHARE)
    if short and counted.copies is None:
        return _too_little(f"{short}, all of which the result hangs on: work is left out there")
    given = len(counted.inputs)
    left = unreached(least.outputs, least.state, counted.outputs, dict(counted.kept), given, everything)
    if left:
        return _too_little(f"nothing that has read an input writes {left}: work is left out there")
    return None


def _too_little(message: str) -> Outcome:
    return _rejected("TooLittleWork", f"at the full shapes {message}")


def unknown_work(counted: Counted, least: Floor) -> Outcome | None:
    """The outcome of a version with an op of which nobody knows what it computes. least: of the task."""
    unknown = [op for op in unpriced(counted.records) if op not in least.unpriced]
    if not unknown or least.unknown:
        return None
    message = f"nobody has counted what {unknown[0]} computes; use another op, or one that the reference has too"
    return _rejected("UnknownWork", message)


def imprecise(bits: int, least: int, checked: int | None) -> Outcome:
    """The outcome of a version that multiplies less precisely at the full shapes than its task asks for.

    bits: of significand, there. least: of the task. checked: where results are compared, None without products there.
    """
    message = (
        f"at the full shapes numbers are multiplied, or rounded before, to {bits} bits of significand; the task asks "
        f"for {least}, and where results are compared the forward has {checked or 'no such product'}"
    )
    return _rejected(LOW_PRECISION, message)


def too_long(counted: Counted) -> Outcome | None:
    """The outcome of a version with a launch that writes an output, of which nothing was compared, as what its programs load
    takes too long to compute. How long is counted work, the same on every machine."""
    exhausted = [found.exhausted for found in (counted.found, *counted.others) if found.exhausted]
    if not exhausted:
        return None
    message = (
        f"at the full shapes nothing of what {' or '.join(exhausted[0])} writes could be compared: what it reads of earlier "
        "launches takes too long to compute; let earlier launches be fewer, or their programs shorter"
    )
    return _rejected("TooLongToCompare", message)


def unchecked(counted: Counted, least: Floor, not_standing_out: str = "") -> str:
    """What nobody has compared of a version that stood all gates at the full shapes, and why; "" where nothing is left out.

    least: of the task. What hangs on the task is the same for all its versions, and on every machine. not_standing_out: see
    `mtmc.evaluate.counting.floor.StandingOut.why_not`.
    """
    found = counted.found
    told = [*least.left_out, *counted.left_out, *filter(None, [not_standing_out])]
    if any(each.unsummed for each in (found, *counted.others)):
        told.append(
            "what atomics add up to takes too much work to compute: where results hang on that, none is compared"
        )
    if least.tiles is not None and found.compared <= found.unknown:
        why = (
            "what its launches read of earlier ones takes too long to compute"
            if found.exhausted
            else "what its programs write hangs on what is not known of earlier work"
            if found.compared
            else "no program that was run writes an output"
        )
        told.append(f"no results were compared at the full shapes: {why}")
    return "; ".join(told)


def other_launches(built: Built, counted: Counted) -> Outcome | None:
    """The outcome of a version that launches other things where they are counted than where they are compiled."""
    compiled = [_told(launch, built) for launch in built.launches]
    found = [_seen(record) for record in counted.records if "kernel" in record]
    if compiled == found:
        return None
    names = [[str(launch["kernel"]) for launch in launches] for launches in (compiled, found)]
    if names[0] != names[1]:
        parts = [", ".join(each) or "nothing" for each in names]
    else:
        first, second = next(pair for pair in zip(compiled, found, strict=True) if pair[0] != pair[1])
        keys = [key for key in {**first, **second} if first.get(key) != second.get(key)]
        parts = [
            f"{first['kernel']} with {', '.join(f'{key} {each.get(key)}' for key in keys)}" for each in (first, second)
        ]
    message = (
        f"the forward launches {parts[0]} when it is built and {parts[1]} when it is counted: what a version launches must "
        "hang on shapes alone"
    )
    return _rejected("OtherLaunches", message[:1200])


def _rejected(kind: str, message: str) -> Outcome:
    return Outcome("rejected", diagnosis=Diagnosis("estimate", kind, message))


def _told(launch: Launch, built: Built) -> dict[str, Any]:
    """What a launch is by the process that compiled it, as plain texts and numbers."""
    known = 0 <= launch.compiled < len(built.kernels)
    warps = built.kernels[launch.compiled].num_warps if known else None
    named = {"kernel": launch.kernel, "grid": list(launch.grid), "num_warps": warps, "function": launch.function}
    return named | launch.texts


def _seen(record: Mapping[str, Any]) -> dict[str, Any]:
    """The same by the process that counted it."""
    return {name: record[name] for name in ("kernel", "grid", "num_warps", "function")} | record["arguments"]
