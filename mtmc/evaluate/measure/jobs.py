"""What the processes for candidates run, see `mtmc.evaluate.measure.candidate_process`, which loads torch: this does not."""

from __future__ import annotations

from typing import Any


def warm(backend: str, target_name: str, compiles: bool = False) -> None:
    """See `candidate_process.warm`."""
    from mtmc.evaluate.measure import candidate_process

    candidate_process.warm(backend, target_name, compiles)


def serve(**arguments: Any) -> None:
    """See `candidate_process.serve`."""
    from mtmc.evaluate.measure import candidate_process

    candidate_process.serve(**arguments)
