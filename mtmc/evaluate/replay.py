"""Evaluation from a record: the outcomes of an earlier run, given again. Needs no GPU, no compiler, no worker.

The record is that of one run: one task, one evaluator, its settings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mtmc.errors import ConfigError, EvaluatorError
from mtmc.outcome import Outcome
from mtmc.protocols import EvaluationRequest, Evaluator, EvaluatorSettings
from mtmc.store import Store
from mtmc.tree import source_hash


@dataclass(frozen=True)
class ReplaySettings(EvaluatorSettings):
    """run: folder of the recorded run. hardware: by name in the hardware table, for a run that has recorded none."""

    run: str = ""
    hardware: str = "H100"

    def open(self) -> ReplayEvaluator:
        """An evaluator over what the run has recorded.

        Raises: ConfigError where no run is named, RunError where there is none.
        """
        if not self.run:
            raise ConfigError("the replay evaluator has no recorded run: set evaluator.run to the folder of one")
        store = Store.read(Path(self.run))
        try:
            hardware = store.hardware() or self.hardware
            return ReplayEvaluator(store.verdicts(), hardware, store.task().source, store.profiles())
        finally:
            store.close()


class ReplayEvaluator(Evaluator):
    """Gives the recorded outcome of each source; see `mtmc.protocols.Evaluator`.

    outcomes: by `mtmc.tree.source_hash` of the version.
    task_source: the recorded run's task; requests for another are refused. None: any task is taken for it.
    profiled: what depth "profile" gives, by the same hashes.
    """

    def __init__(
        self,
        outcomes: Mapping[str, Outcome],
        hardware: str,
        task_source: str | None = None,
        profiled: Mapping[str, Outcome] | None = None,
    ) -> None:
        self.hardware = hardware
        self._outcomes = dict(outcomes)
        self._profiled = dict(profiled or {})
        self.profiles = bool(self._profiled)
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
        if request.depth == "profile" and key in self._profiled:
            return self._profiled[key]
        if key not in self._outcomes:
            raise EvaluatorError(
                f"version {key} is not among the {len(self._outcomes)} recorded ones; replay with the settings and "
                "seed of the recorded run, or evaluate with another evaluator (evaluator=lab)"
            )
        return self._outcomes[key]

    def close(self) -> None:
        """Nothing to end."""
