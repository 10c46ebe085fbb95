"""What is found out of a task itself, once, and held against all its versions.

A gate that was asked for and has not come to an end has not been passed. So where a job that looks a task over does not
end (its time, its memory, a process that was killed), no version of the task is right: each gets the outcome that says so.
Nothing here stands in for an answer.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from mtmc.evaluate.failures import failed_job
from mtmc.evaluate.pool.worker import Pool
from mtmc.outcome import Diagnosis, Outcome
from mtmc.task import Task

_log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

KIND = "TaskNotLookedOver"
"""`Diagnosis.kind` of versions of such a task."""
TIMES = 4.0
"""Times the limit of one gate that such a job may take: one answer stands for all versions."""
_FOR_GOOD = ("timeout", "out_of_memory")
"""Ends that another try would come to as well: both are limits of the job itself, not of what else the machine does."""


class OfTask:
    """Answers of jobs about tasks. May be used from several threads.

    timeout_s, memory_mib: what one gate of a version may take, see `LabSettings`.
    """

    def __init__(self, pool: Pool, timeout_s: float, memory_mib: int) -> None:
        self._pool, self._timeout_s, self._memory_mib = pool, timeout_s, memory_mib
        self._answers: dict[tuple[str, Task], Any] = {}
        self._locks: defaultdict[tuple[str, Task], threading.Lock] = defaultdict(threading.Lock)
        self._lock = threading.Lock()

    def asked(
        self, function: Callable[..., Answer], task: Task, arguments: Mapping[str, Any], stage: str
    ) -> Answer | Outcome:
        """What a job function says of a task, from its first call; where that did not end, the outcome of every version.

        arguments: besides the task. stage: the gate that rests on it. Raises: TaskError as the job does, EvaluatorError.
        """
        key = function.__name__, task
        with self._lock:
            lock = self._locks[key]
        with lock:
            if key not in self._answers:
                self._answers[key] = self._found(function, task, arguments, stage)
            answer: Answer | Outcome = self._answers[key]
        return answer

    def _found(
        self, function: Callable[..., Answer], task: Task, arguments: Mapping[str, Any], stage: str
    ) -> Answer | Outcome:
        limit_s = TIMES * self._timeout_s
        result = self._pool.run(function, {"task": task, **arguments}, timeout_s=limit_s)
        if result.status not in ("ok", *_FOR_GOOD):
            result = self._pool.run(function, {"task": task, **arguments}, timeout_s=limit_s)
        if result.status == "ok":
            return result.value  # type: ignore[return-value]
        failed = failed_job(stage, result, limit_s, self._memory_mib)
        assert failed.diagnosis is not None
        message = (
            f"the task itself could not be looked over, which every version is held against: {failed.diagnosis.message}; "
            "raise evaluator.timeout_s or evaluator.memory_mib, or make the task's shapes smaller"
        )
        _log.warning("task %s: %s", task.name, message)
        return replace(failed, diagnosis=Diagnosis(stage, KIND, message, None, failed.diagnosis.excerpt))
