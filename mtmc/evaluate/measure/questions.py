"""What a GPU worker asks its oracle, and what that answers: as JSON, though no candidate's code ever runs there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mtmc.errors import ConfigError, EvaluatorError, TaskError, TooLarge
from mtmc.evaluate.audit.diagnosis import Failure
from mtmc.evaluate.measure.clock import OverheadTable, TaskOverhead, Timing
from mtmc.protocols import Depth
from mtmc.task import Task

NO_START = "NoStart"
"""Kind of the diagnosis where a process for candidates has failed by itself: the evaluator's fault, no candidate's."""
ENDED = "ProcessExit"
"""Kind of the diagnosis where a candidate's process has ended under it: how it ended says why."""
QUIET = "quiet"
"""Key of what the oracle says before an answer: whether nothing should be built on the machine. It hears an empty word."""
STALE = "Stale"
"""Kind of the diagnosis where a process that stayed for the next candidate has memory that is no longer used."""
TASK_S = 120.0
"""Seconds that measuring the clock's overhead among the draws of one task may take."""
DOUBTFUL = ("HiddenTime", "WorksAhead", "WorkLeftBehind")
"""Kinds of verdict that rest on clocks alone, which a busy machine can disturb: a second process confirms
them, beside which the clock's overhead is measured anew."""


LIBRARY = "library"
"""The baseline that is a task's class `Library`: a known library's kernels. Results are held against the reference's."""


@dataclass(frozen=True)
class Examine:
    """What a GPU worker asks. token: of the candidate's process. baseline: see `wire.Load`; the evaluator's own models are
    trusted: their outputs are checked at the full shapes only.

    limit_s: seconds for which the candidate may be waited for. keep: whether the process may stay for the next candidate
    if this one is right. stayed: whether it has stayed. dismiss: tokens of processes that are not needed any more.
    settle: of processes that are to have their contexts before this one is examined. charge: whether a little time that
    is not explained is added to the version's, see `timing_validation.charged`.
    """

    token: str
    task: Task
    source: str
    depth: Depth
    check_variants: int
    limit_s: float
    baseline: str = ""
    profile: bool = True
    keep: bool = False
    stayed: bool = False
    dismiss: tuple[str, ...] = ()
    settle: tuple[str, ...] = ()
    charge: bool = False


@dataclass(frozen=True)
class Calibrate:
    """Measure what the oracle's clock shows beyond the stated time, on models of the evaluator's own.

    settle: see `Examine`. task: among whose draws that is to be measured, see `TaskOverhead`; None for the table of all.
    """

    token: str
    settle: tuple[str, ...] = ()
    task: Task | None = None


@dataclass(frozen=True)
class Ahead:
    """Make one of the cases that the next screening of the last task will ask for, see `CasesAhead`. No candidate is at
    work. check_variants: as of that screening."""

    check_variants: int


@dataclass(frozen=True)
class Same:
    """A request about the task of the last request that had one: what it says of its own task is to be taken from there. The
    weights of a large network take seconds from one process to another. request: without these weights."""

    request: Examine | Calibrate


@dataclass(frozen=True)
class About:
    """What the oracle says at the start. facts: of the device, see `describe_device`; None without one."""

    facts: Mapping[str, Mapping[str, Any]] | None


@dataclass(frozen=True)
class Measured:
    """The runtime of a version that is right, its metrics, and what its task's admission tells, see `Admission`."""

    timing: Timing
    metrics: Mapping[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    undecided: str = ""

    def with_metrics(self, metrics: Mapping[str, float]) -> Measured:
        """With further ones."""
        return replace(self, metrics={**self.metrics, **metrics})


@dataclass(frozen=True)
class Calibrated:
    """What the oracle's clock shows beyond the stated time."""

    overhead: OverheadTable | TaskOverhead


@dataclass(frozen=True)
class Made:
    """Whether a case was made: there may be another then."""

    made: bool


@dataclass(frozen=True)
class Refused:
    """An error of the user's side, or of the evaluator itself. error: name of its class."""

    error: str
    message: str


@dataclass(frozen=True)
class Answer:
    """What came of a request.

    taken: whether a candidate's process was made use of: one that was not may serve the next request. kept: whether it
    stays for the next candidate. killed: whether the oracle had to end it.
    """

    found: Measured | Calibrated | Made | Failure | Refused
    taken: bool = False
    kept: bool = False
    killed: bool = False

    def with_metrics(self, metrics: Mapping[str, float]) -> Answer:
        """With further metrics of a version that is right; else as it is."""
        found = self.found
        return replace(self, found=found.with_metrics(metrics)) if isinstance(found, Measured) else self

    def raise_refusal(self) -> None:
        """Raises: TaskError, TooLarge, ConfigError or EvaluatorError, if it says so."""
        kinds = {"TaskError": TaskError, "TooLarge": TooLarge, "ConfigError": ConfigError}
        if isinstance(self.found, Refused):
            raise kinds.get(self.found.error, EvaluatorError)(self.found.message)
