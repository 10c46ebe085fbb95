"""Evaluation from a record: the outcomes of an earlier run, given again. Needs no GPU, no compiler, no worker.

The record is that of one run: one task, one evaluator, its settings. Who opens it hands over the outcomes by source
hash (`mtmc.tree.source_hash`) and the name of the hardware they hold for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mtmc.errors import EvaluatorError
from mtmc.outcome import Outcome
from mtmc.protocols import EvaluationRequest
from mtmc.tree import source_hash


@dataclass(frozen=True)
class ReplaySettings:
    """run: folder of the recorded run. hardware: of that run, by name in the hardware table."""

    run: str = ""
    hardware: str = "H100"

    def open(self, outcomes: Mapping[str, Outcome], task_source: str | None = None) -> ReplayEvaluator:
        """An evaluator over `outcomes`, by source hash."""
        return ReplayEvaluator(outcomes, self.hardware, task_source)


class ReplayEvaluator:
    """Gives the recorded outcome of each source; see `mtmc.protocols.Evaluator`.

    outcomes: by `mtmc.tree.source_hash` of the version.
    task_source: the recorded run's task; requests for another are refused. None: any task is taken for it.
    """

    def __init__(self, outcomes: Mapping[str, Outcome], hardware: str, task_source: str | None = None) -> None:
        self.hardware = hardware
        self._outcomes = dict(outcomes)
        self._task_hash = None if task_source is None else source_hash(task_source)

    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
        """One recorded outcome per request, same order.

        Raises: EvaluatorError for a source or a task that was not recorded.
        """
        return [self._recorded(request) for request in requests]

    def _recorded(self, request: EvaluationRequest) -> Outcome:
        if self._task_hash is not None and source_hash(request.task.source) != self._task_hash:
            raise EvaluatorError(
                f"the record is of another task than {request.task.name!r} (source {source_hash(request.task.source)}, "
                f"recorded {self._task_hash}); replay it with the task of the recorded run"
            )
        key = source_hash(request.source)
        if key not in self._outcomes:
            raise EvaluatorError(
                f"version {key} is not among the {len(self._outcomes)} recorded ones; replay with the settings and "
                "seed of the recorded run, or evaluate with another evaluator (evaluator=lab)"
            )
        return self._outcomes[key]

    def close(self) -> None:
        """Nothing to end."""
