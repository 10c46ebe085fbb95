"""Row: what came of one problem, as plain data, and how it is kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

from mtmc.outcome import RuntimeKind

EAGER, COMPILE, AUTOTUNE, LIBRARY = "eager", "torch.compile", "torch.compile max-autotune", "library"
"""Names of the baselines, as the GPU evaluator has them. The last are a known library's kernels, where a task has some."""
COMPILED = (COMPILE, AUTOTUNE)
BETTER = "torch.compile, the better mode"
"""What stands for the faster of torch.compile's modes that are known; no runtime is kept under this name."""

FailureKind = Literal[
    "not_loaded", "no_candidate", "not_exported", "too_large", "refused", "evaluator", "model", "time", "crash", "error"
]
"""Why there is no result.

not_loaded: the file is no task, does not run, or has no small shapes. no_candidate: there is none to score.
not_exported: the coder cannot export it (torch.export). too_large: it does not fit into memory. refused: the reference
fails its own evaluation, or two runs of it differ. evaluator, model: their own means failed. time: the time of one problem
was up. crash: the process that had it ended. error: a bug of ours.
"""
FAILURE_KINDS: tuple[FailureKind, ...] = get_args(FailureKind)
PASSING: tuple[FailureKind, ...] = ("evaluator", "model", "time", "crash", "error", "no_candidate")
"""What another try may fix."""
CUT_OFF = "cut off: "
"""How `Row.finished` begins where a search did not come to its end."""

WhyKind = Literal[
    "at_the_roof", "launch_bound", "template_missing", "kernels_fail", "nothing_tried", "library_better", "ended"
]
"""Why a problem is not faster, see `mtmc.bench.why`."""
_OLD_KINDS: Mapping[str, WhyKind] = {"family_missing": "template_missing"}
"""Kinds that were called otherwise in rows which may still be read."""


@dataclass(frozen=True)
class Failure:
    """Why there is no result. message: one line."""

    kind: FailureKind
    message: str


@dataclass(frozen=True)
class Why:
    """Why a problem is not 1.05 times as fast as the better baseline. text: one line, with the figures it follows from."""

    kind: WhyKind
    text: str


@dataclass(frozen=True)
class Stopped:
    """Versions of one problem that the same gate stopped for the same reason.

    stage, kind: of their diagnosis. versions: how many. step: the sentence of the action that made the first, message: its
    diagnosis, one line.
    """

    stage: str
    kind: str
    versions: int
    step: str
    message: str


@dataclass(frozen=True)
class Row:
    """One problem.

    level, number, name: of the problem. digest: of its text in the benchmark's dtype, so that a changed problem is run anew.
    correct: the version that is handed back passed all gates; verified: the last of them too, None where the evaluator has
        no such gate or the reference itself is handed back. triton: a version with a Triton kernel passed.
    best_ms: runtime of the version that is handed back; that of eager where it is the reference itself (`is_reference`).
    baselines_ms: runtimes by name (`EAGER`, `COMPILE`, `AUTOTUNE`), those that are known. eager is what was timed in turn
        with the best version, where that was done. runtime_kind: what all these runtimes are.
    roofline: fraction that the best version reaches, 0 to 1. metrics: those of its outcome.
    evaluations: versions evaluated, the root included. statuses: how many versions ended how. stopped: what stopped those
        that are not right, the most frequent first.
    gpu_seconds: seconds that evaluations held a GPU, see `mtmc.bench.facts`. seconds: wall time of the problem.
    steps: sentences of the actions that led to the best version. finished: why the search ended.
    candidate: file that was scored, "" for a search. undecided: why results tell no work from none here, "" where they do:
        such a problem has no speedup. cut_short: whether the search ended for want of a model that answers with something
        usable. tolerance: what outputs were compared by, in words; "" where a row does not say. untimed: baselines that have
        no time, by name, and why.
    """

    level: str
    number: int
    name: str
    digest: str
    failure: Failure | None = None
    correct: bool = False
    verified: bool | None = None
    triton: bool = False
    is_reference: bool = False
    best_ms: float | None = None
    baselines_ms: Mapping[str, float] = field(default_factory=dict)
    runtime_kind: RuntimeKind | None = None
    hardware: str = ""
    roofline: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    evaluations: int = 0
    statuses: Mapping[str, int] = field(default_factory=dict)
    stopped: tuple[Stopped, ...] = ()
    gpu_seconds: float = 0.0
    seconds: float = 0.0
    tokens: int = 0
    usd: float = 0.0
    steps: tuple[str, ...] = ()
    finished: str = ""
    candidate: str = ""
    tolerance: str = ""
    why: Why | None = None
    undecided: str = ""
    cut_short: bool = False
    untimed: Mapping[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Name of the problem within its suite."""
        return f"{self.level}/{self.name}"

    def speedup(self, baseline: str = EAGER) -> float | None:
        """Of what is handed back over a baseline; None where it is not right, or a runtime is not known, or where results
        tell no work from none.

        The reference itself is handed back at exactly 1 over eager, which it is. baseline: a name, or `BETTER`.
        """
        other = self.better_compiled_ms if baseline == BETTER else self.baselines_ms.get(baseline)
        return other / self.best_ms if self.correct and other and self.best_ms and not self.undecided else None

    @property
    def modelless(self) -> bool:
        """Whether it has ended before its time for want of a model: with what was found by then, or with nothing."""
        return self.cut_short or (self.failure is not None and self.failure.kind == "model")

    @property
    def cut_off(self) -> bool:
        """Whether its search did not come to its end: an error ended it, or its process had to be ended."""
        return self.finished.startswith(CUT_OFF)

    @property
    def better_compiled_ms(self) -> float | None:
        """Runtime of the faster of torch.compile's modes that are known; None where none is."""
        return min((self.baselines_ms[name] for name in COMPILED if name in self.baselines_ms), default=None)

    @property
    def better_baseline(self) -> str | None:
        """The fastest of the baselines that are known; None where none is."""
        return min(self.baselines_ms, key=lambda name: self.baselines_ms[name]) if self.baselines_ms else None


def digest(text: str) -> str:
    """Identity of a problem's text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def row_to_json(row: Row) -> dict[str, Any]:
    """Plain JSON of a row; `row_from_json` is its inverse."""
    return asdict(row)


def row_from_json(data: Mapping[str, Any]) -> Row:
    """Inverse of `row_to_json`. Raises: TypeError on unknown fields."""
    fields = dict(data)
    for name, kind in (("failure", Failure), ("why", Why)):
        if fields.get(name) is not None:
            fields[name] = kind(**fields[name])
    if (why := fields.get("why")) is not None:
        fields["why"] = replace(why, kind=_OLD_KINDS.get(why.kind, why.kind))
    fields["steps"] = tuple(fields.get("steps", ()))
    fields["stopped"] = tuple(Stopped(**each) for each in fields.get("stopped", ()))
    return Row(**fields)


def row_text(row: Row) -> str:
    """A row as it is kept on disk."""
    return json.dumps(row_to_json(row), indent=1) + "\n"
