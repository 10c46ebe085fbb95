"""printing: edits of recorded trees, whose versions are printed from their plans again: half a second a tree, most of it
for exporting the reference, so the trees are spread over the cores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool

from mtmc.errors import RunError
from mtmc.evaluate.devices import cores
from mtmc.rl.edits import RecordedEdit, edits_of_tree
from mtmc.rl.processes import process_pool
from mtmc.rl.trees import RecordedTree

LEAST = 8
"""Trees for which another process is worth its start, some seconds."""
Job = tuple[RecordedTree, Sequence[int]]


def printed(jobs: Sequence[Job]) -> Iterator[RecordedEdit]:
    """The edits of all jobs, in their order. jobs: trees and numbers of their versions, see `edits_of_tree`.

    Raises: RunError where a process dies.
    """
    workers = min(cores(), len(jobs) // LEAST)
    if workers < 2:
        for job in jobs:
            yield from _edits(job)
        return
    with process_pool(workers) as pool:
        try:
            for edits in pool.map(_edits, jobs, chunksize=2):
                yield from edits
        except BrokenProcessPool as error:
            raise RunError(f"a process that printed versions died ({error}): free some memory and try again") from error


def _edits(job: Job) -> list[RecordedEdit]:
    return list(edits_of_tree(*job))
