"""Bytes that a forward has to do with, each counted once: what a floor is held against."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from mtmc.evaluate.counting.tally import Counts

SHARE = 0.9
"""Part of the floor that a version must reach: counting a sample of its programs is a little off."""


def distinct_bytes(records: Sequence[Counts], inputs: Sequence[int]) -> int:
    """Bytes that a forward reads of its inputs, each once, and that its launches write.

    What a kernel reads or writes at addresses that it has from memory may be of an input or an output, and counts too.
    records, inputs: see `mtmc.evaluate.counting.count.count`.
    """
    read: defaultdict[int, int] = defaultdict(int)
    total = 0
    for record in records:
        for number, size in record["reads"]:
            read[number] += size
        total += sum(size for _, size in record["writes"])
        if "kernel" in record:
            total += record["unique_read"] - sum(size for _, size in record["reads"])
            total += record["unique_written"] - sum(size for _, size in record["writes"])
    return total + sum(min(size, read[number]) for number, size in enumerate(inputs))
