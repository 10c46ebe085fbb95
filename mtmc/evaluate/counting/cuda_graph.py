"""Forwards that replay a CUDA graph of their launches, and what they copy around it. For estimates, without a GPU.

A replay is one entry in the records of such a forward: {"graph": records of what it replays}.
"""

from __future__ import annotations

from collections.abc import Sequence

from mtmc.evaluate.counting.tally import Record


def unfolded(records: Sequence[Record]) -> list[Record]:
    """Records in launch order, those of replayed graphs among them."""
    return [each for record in records for each in record.get("graph", (record,))]


def parted(records: Sequence[Record]) -> tuple[list[Record], list[Record] | None]:
    """The records of a forward's own work, and those of the torch ops that surround one graph of it; None for any other
    forward, whose records are all its own: one without a graph, with several, or with launches outside of it."""
    graphs = [record["graph"] for record in records if "graph" in record]
    around = [record for record in records if "graph" not in record]
    if len(graphs) != 1 or any("kernel" in record for record in around):
        return unfolded(records), None
    return list(graphs[0]), around
