"""What a count says against a version. Runs where verdicts are made: no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mtmc.evaluate.compiling.build import Built
from mtmc.evaluate.compiling.launched import Launch
from mtmc.evaluate.counting.count import Counted
from mtmc.outcome import Diagnosis, Outcome


def too_long(counted: Counted) -> Outcome | None:
    """The outcome of a version of which nothing was compared, as what its programs load takes too long to compute."""
    found = counted.found
    if not found.exhausted or found.compared > found.unknown:
        return None
    message = (
        "at the full shapes nothing of what the forward writes could be compared: what its launches read of earlier ones "
        "takes too long to compute; let earlier launches be fewer, or their programs shorter"
    )
    return Outcome("rejected", diagnosis=Diagnosis("estimate", "TooLongToCompare", message))


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
    return Outcome("rejected", diagnosis=Diagnosis("estimate", "OtherLaunches", message[:1200]))


def _told(launch: Launch, built: Built) -> dict[str, Any]:
    """What a launch is by the process that compiled it, as plain texts and numbers."""
    known = 0 <= launch.compiled < len(built.kernels)
    warps = built.kernels[launch.compiled].num_warps if known else None
    named = {"kernel": launch.kernel, "grid": list(launch.grid), "num_warps": warps, "function": launch.function}
    return named | launch.texts


def _seen(record: Mapping[str, Any]) -> dict[str, Any]:
    """The same by the process that counted it."""
    return {name: record[name] for name in ("kernel", "grid", "num_warps", "function")} | record["arguments"]
