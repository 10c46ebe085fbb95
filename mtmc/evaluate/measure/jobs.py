"""What the processes for candidates run, see `mtmc.evaluate.measure.subject`, which loads torch: this does not."""

from __future__ import annotations


def warm(backend: str, target_name: str, compiles: bool = False) -> None:
    """See `subject.warm`."""
    from mtmc.evaluate.measure import subject

    subject.warm(backend, target_name, compiles)


def serve(oracle: str, token: str, backend: str, locked: bool, cache: str) -> None:
    """See `subject.serve`."""
    from mtmc.evaluate.measure import subject

    subject.serve(oracle, token, backend, locked, cache)
