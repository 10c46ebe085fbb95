"""The oracle of a GPU worker as long as the worker is open: started when it is needed, calibrated, lost and started anew."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mtmc.errors import CLOSED, EvaluatorError
from mtmc.evaluate.audit.diagnosis import Failure
from mtmc.evaluate.measure.endings import ended_result, why_ended
from mtmc.evaluate.measure.oracle_process import START_S, OracleProcess
from mtmc.evaluate.measure.questions import TASK_S, Calibrate
from mtmc.evaluate.measure.spare_processes import SpareProcesses
from mtmc.evaluate.measure.worker_settings import GpuWorkerSettings

if TYPE_CHECKING:
    from mtmc.task import Task

_log = logging.getLogger(__name__)

ATTEMPTS = 3
"""Times that it is calibrated, where a candidate's process fails by itself."""


class CalibratedOracle:
    """Who uses it holds the GPU worker's lock, and the device's for all but `started`.

    folder, address: see `OracleProcess`. processes: for candidates. quiet: see `GpuWorker`. process: None before it is
    started, and after `drop`. closed: whether it may not be started any more.
    """

    def __init__(
        self,
        settings: GpuWorkerSettings,
        folder: Path,
        address: str,
        processes: SpareProcesses,
        quiet: Callable[[bool], None],
    ) -> None:
        self._settings, self._folder, self._address = settings, folder, address
        self._processes, self._quiet = processes, quiet
        self._calibrated = self._filled = False
        self.process: OracleProcess | None = None
        self.closed = False

    @contextmanager
    def silence(self) -> Iterator[None]:
        """While it lasts, nothing is built on this machine: a clock of microseconds sees what else it does."""
        self._quiet(True)
        try:
            yield
        finally:
            self._quiet(False)

    def started(self) -> OracleProcess:
        """The oracle, started. Raises: EvaluatorError if it does not start, or is closed."""
        if self.closed:
            raise EvaluatorError(CLOSED)
        if self.process is None:
            self._processes.start(locked=True)
            self.process = OracleProcess(
                self._settings.visible,
                self._settings.backend,
                self._settings.hardware,
                self._folder,
                self._address,
                self._settings.quiet,
                self._quiet,
                self._settings.others,
            )
            self._calibrated = self._filled = False
        return self.process

    def running(self) -> OracleProcess:
        """The oracle, started and calibrated, and processes for it. Raises: EvaluatorError, OracleLost."""
        oracle, why = self.started(), ""
        for _ in range(ATTEMPTS):
            if not self._filled:
                # Not before: what they find in the cache is there when the worker is asked for something.
                self._filled = True
                self._processes.fill()
            if self._calibrated:
                return oracle
            with self.silence():
                process = self._processes.fresh(locked=True)  # nothing but the evaluator's own model runs in it
                started = time.monotonic()
                answer = oracle.ask(Calibrate(process.token, self._processes.unsettled()), START_S)
            answer.raise_refusal()
            if isinstance(answer.found, Failure):
                why = why_ended(answer.found.diagnosis.message, process.end, answer.killed)
                self._filled = False  # the others, too, may have been made too early
                _log.info("calibration failed: %s", why)
            else:
                ended_result(process.end)
                self._calibrated = True
                took = time.monotonic() - started
                _log.info("GPU %s is calibrated after %.1f s: %s", self._settings.index, took, answer.found)
        if not self._calibrated:
            raise EvaluatorError(f"GPU {self._settings.index} could not be calibrated in {ATTEMPTS} attempts: {why}")
        return oracle

    def calibrate_for(self, task: Task) -> None:
        """Have the clock's overhead measured anew (it may have changed since, see `clock`), and among the draws of a task,
        where a verdict on it is in doubt. Raises: as `running`."""
        self._calibrated = False
        oracle = self.running()
        process = self._processes.fresh(locked=True)
        answer = oracle.ask(Calibrate(process.token, self._processes.unsettled(), task), TASK_S + START_S)
        answer.raise_refusal()
        said = str(answer.found)
        if isinstance(answer.found, Failure):  # the table of all tasks holds then
            said = why_ended(answer.found.diagnosis.message, process.end, answer.killed)
        ended_result(process.end)
        _log.info("the clock's overhead for task %s: %s", task.name, said)

    def drop(self) -> None:
        """End it; the next one is calibrated anew. Idempotent."""
        oracle, self.process = self.process, None
        if oracle is not None:
            oracle.close()
            self._processes.go_on()
