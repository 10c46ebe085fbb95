"""Outcome: what evaluation found of one kernel version, and Cost: what finding it (and writing it) took.

There are no sentinel numbers: what is not known is None or absent, and a failure is a status, never a score.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

Status = Literal["ok", "build_error", "wrong_result", "crash", "timeout", "out_of_memory", "rejected", "not_run"]
RuntimeKind = Literal["measured", "estimated"]
STATUSES: tuple[Status, ...] = get_args(Status)

RESOURCE_ERROR = "OutOfResources"
"""`Diagnosis.kind` of a version that asks for more shared memory or registers than the target has."""

LOW_PRECISION = "LowPrecision"
"""`Diagnosis.kind` of a version whose numbers are less precise than the reference's dtype has them."""

REFERENCE_ERROR, WIDENED = "reference_error", "tolerance_widened"
"""Metrics: norm-wise error of the reference itself against float64; what was added to the absolute tolerance of an output
for its sake, left out where nothing was."""
LIBRARY_TF32 = "library_tf32"
"""Metric: 1 where the library convolves fp32 numbers in TF32 for the reference at the full shapes, left out where not."""
TF32_LAST = "library_tf32_channels_last"
"""Metric: 1 where it does so only with channels last, as torch.compile has it, and the reference has them first."""


KERNEL = "kernel/"
"""How the names of one kernel's metrics begin, "kernel/NAME/METRIC", in a version that was profiled."""


@dataclass(frozen=True)
class Diagnosis:
    """Why a version failed: what the repair step is given.

    stage: the gate that found it: audit, build, check, time or verify.
    kind: exception type or exploit family, e.g. "CompilationError", "OutOfResources", "NaN".
    message: one short paragraph.
    line: 1-based line in the candidate's source, where one is to blame.
    excerpt: a few numbered lines of the candidate around `line`, or the end of its output.
    """

    stage: str
    kind: str
    message: str
    line: int | None = None
    excerpt: str = ""


@dataclass(frozen=True)
class Outcome:
    """What evaluation found.

    status: "not_run" is a version that was compiled where there is nothing to run it on: neither right nor wrong.
    runtime_ms: median time of one forward at the full shapes in milliseconds; None unless status is "ok".
    runtime_low_ms, runtime_high_ms: 95% confidence interval of that median (measured), or None (estimated).
    trials: how many timed calls stand behind the median (0 for an estimate).
    undecided: why the task's output tells no work from none, "" where it does: a runtime that earns no reward.
    unchecked: what was asked of no version, or could not be compared of this one, at the full shapes, and why; "" where
        nothing is left out, or it is not known. It hangs on task and version alone, never on how busy a machine is.
    metrics: numbers by name, where known: bytes_moved, bytes_min, flops, kernels, registers, spills, shared_memory,
        occupancy, roofline (fraction of the roofline reached, 0 to 1), error (norm-wise, against float64), ...
    """

    status: Status
    runtime_ms: float | None = None
    runtime_low_ms: float | None = None
    runtime_high_ms: float | None = None
    trials: int = 0
    runtime_kind: RuntimeKind | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    diagnosis: Diagnosis | None = None
    undecided: str = ""
    unchecked: str = ""

    @property
    def ok(self) -> bool:
        """Whether this version is right and has a runtime, so that it may be compared by speed."""
        return self.status == "ok"

    @property
    def verdict(self) -> str:
        """The status and, where there is a diagnosis, its kind and message."""
        found = self.diagnosis
        return self.status if found is None else f"{self.status}: {found.kind}: {found.message}"


@dataclass(frozen=True)
class Cost:
    """What a step took. USD and tokens are exact as the provider reports them; seconds are wall time."""

    seconds: float = 0.0
    usd: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    calls: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.seconds + other.seconds,
            self.usd + other.usd,
            self.tokens_in + other.tokens_in,
            self.tokens_out + other.tokens_out,
            self.calls + other.calls,
        )


def speedup(outcome: Outcome, baseline: Outcome) -> float | None:
    """Baseline's runtime over this one's (above 1 is faster); None where either has no runtime, or where results tell no
    work from none (`Outcome.undecided`)."""
    if outcome.runtime_ms is None or baseline.runtime_ms is None or outcome.undecided or baseline.undecided:
        return None
    return baseline.runtime_ms / outcome.runtime_ms


def kernel_metrics(metrics: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """The metrics of each kernel of a profile, by the kernel's name, in the order in which they stand."""
    found: dict[str, dict[str, float]] = {}
    for key, value in metrics.items():
        if key.startswith(KERNEL):
            name, _, metric = key[len(KERNEL) :].rpartition("/")
            found.setdefault(name, {})[metric] = value
    return found


def kernel_figures(metrics: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """The metrics of each kernel, with flops and products where only a part of them was counted.

    Hardware counters have the flops outside of the tensor cores (alu_flops). The products of the whole version, which are
    known (dot_flops), are then shared out by the time that each kernel keeps the tensor cores busy.
    """
    found = kernel_metrics(metrics)
    busy = {name: own.get("tensor_share", 0.0) * own.get("ms", 0.0) for name, own in found.items()}
    total, products = sum(busy.values()), metrics.get("dot_flops", 0.0)
    counted = any("dot_flops" in own for own in found.values())
    for name, own in found.items():
        if not counted and total > 0 and products:
            own["dot_flops"] = products * busy[name] / total
        if "alu_flops" in own:
            own["flops"] = own["alu_flops"] + own.get("dot_flops", 0.0)
    return found


def of_kernels(figures: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Inverse of `kernel_metrics`. A slash in the name of a kernel becomes a bar."""
    return {
        f"{KERNEL}{name.replace('/', '|')}/{metric}": float(value)
        for name, own in figures.items()
        for metric, value in own.items()
    }


def outcome_to_json(outcome: Outcome) -> dict[str, Any]:
    """Plain JSON of an outcome; `outcome_from_json` is its inverse."""
    data = asdict(outcome)
    for name in ("undecided", "unchecked"):
        if not data[name]:  # as outcomes were written before there was such a thing
            del data[name]
    data["metrics"] = {name: float(outcome.metrics[name]) for name in sorted(outcome.metrics)}
    return data


def outcome_from_json(data: Mapping[str, Any]) -> Outcome:
    """Inverse of `outcome_to_json`. Raises: TypeError on unknown fields."""
    fields = dict(data)
    diagnosis = fields.pop("diagnosis", None)
    return Outcome(**fields, diagnosis=Diagnosis(**diagnosis) if diagnosis else None)
