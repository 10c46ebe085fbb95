"""collection: garbage collection in processes that have loaded torch."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


def freeze() -> None:
    """Take all that is alive now out of the collector's sight: modules, mostly, which live as long as the process.

    A full collection goes through 180,000 objects of torch and triton, 0.15 to 0.3 s; after this it takes
    microseconds. Memory is given back to a device only when its tensors are collected, so evaluation collects often.
    """
    gc.collect()
    gc.freeze()


@contextmanager
def loading() -> Iterator[None]:
    """Load modules in here: without the collector, which would go through them while they come, and frozen at the end.

    Torch and triton take a fifth less time. What was garbage by then stays, some megabytes.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
