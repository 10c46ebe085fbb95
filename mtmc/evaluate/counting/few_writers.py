"""Programs that alone write an output: a draw of a few among hundreds would hardly hold one of them."""

from __future__ import annotations

from collections.abc import Collection

from mtmc.evaluate.counting.launches import Sampled


def few_that_write(sampled: Sampled, outputs: Collection[int]) -> list[int]:
    """Indices of the programs of a launch's sample that write outputs, where most of the sample do not: the one that adds
    up what all others have left, say. None where most do. outputs: their storages.
    """
    found = [
        index
        for index, tally in sampled.tallies.items()
        if any(number in tally.uses and tally.uses[number].written for number in outputs)
    ]
    if not found and any(number in outputs and size for number, size in sampled.record["writes"]):
        found = [0]  # of the first program the record may tell more than the sample, see `Launches`
    return found if 2 * len(found) <= len(sampled.tallies) else []
