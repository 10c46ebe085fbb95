"""What the processes for candidates run, see `mtmc.evaluate.measure.candidate_process`, which loads torch: this does not."""

from __future__ import annotations

from mtmc.task import Task


def warm(backend: str, target_name: str, compiles: bool = False) -> None:
    """See `candidate_process.warm`."""
    from mtmc.evaluate.measure import candidate_process

    candidate_process.warm(backend, target_name, compiles)


def serve(oracle: str, token: str, backend: str, locked: bool, cache: str, target_name: str) -> None:
    """See `candidate_process.serve`."""
    from mtmc.evaluate.measure import candidate_process

    candidate_process.serve(oracle, token, backend, locked, cache, target_name)


def compile_first(task: Task, mode: str, backend: str, lock: str) -> None:
    """See `candidate_process.compile_first`."""
    from mtmc.evaluate.measure import candidate_process

    candidate_process.compile_first(task, mode, backend, lock)
