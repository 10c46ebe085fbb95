"""proton: the profile that Triton's own profiler writes (`triton.profiler`), read. Pure. It has times, and no counters.

A file "NAME.hatchet" is JSON: a list of a tree of frames, each with metrics ("time (ns)" and "count") and children, and of
facts of the devices. A frame with a time is a kernel. Its time is that of all launches together.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

TIMES = ("time (ns)", "Time (ns)")
COUNTS = ("count", "Count")
MOST_DEPTH = 64
"""Frames that are gone down."""


def parse(text: str, calls: int) -> list[tuple[str, dict[str, float]]]:
    """Name and figures (ms, launches) of each kernel, of one of `calls` forwards; none of a file of another form."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return []
    roots = data if isinstance(data, list) else [data]
    return [
        (name, {"ms": nanoseconds / calls / 1e6, "launches": count / calls})
        for root in roots
        for name, nanoseconds, count in _kernels(root, MOST_DEPTH)
    ]


def _kernels(frame: Any, depth: int) -> Iterator[tuple[str, float, float]]:
    if not isinstance(frame, Mapping) or depth == 0:
        return
    about, metrics, children = frame.get("frame"), frame.get("metrics"), frame.get("children")
    if isinstance(about, Mapping) and isinstance(metrics, Mapping) and not children:
        time = next((metrics[name] for name in TIMES if isinstance(metrics.get(name), (int, float))), None)
        count = next((metrics[name] for name in COUNTS if isinstance(metrics.get(name), (int, float))), 1.0)
        if time:
            yield str(about.get("name", "")), float(time), float(count)
    for child in children if isinstance(children, list) else ():
        yield from _kernels(child, depth - 1)
