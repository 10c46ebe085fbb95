"""From a job that failed to an outcome, for every evaluator that runs candidates in a pool."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from mtmc.evaluate.audit.diagnosis import excerpt, tail
from mtmc.evaluate.pool.job import OUTPUT_LIMIT, SCRATCH_LIMIT, JobResult, status_of_signal
from mtmc.evaluate.pool.watch import TASK_LIMIT
from mtmc.outcome import Diagnosis, Outcome, Status

_KINDS = {
    "timeout": "Timeout",
    "out_of_memory": "MemoryError",
    "output_limit": "OutputLimit",
    "process_limit": "ProcessLimit",
}


def failed_job(stage: str, result: JobResult, timeout_s: float, memory_mib: int) -> Outcome:
    """Outcome of a version whose whole process had to be ended, or ended itself.

    timeout_s, memory_mib: what the job was allowed; 0 where that is not known.
    """
    after = f" after {timeout_s:g} s" if timeout_s else ""
    limit = f"more than {memory_mib} MiB of memory" if memory_mib else "more memory than there is"
    messages = {
        "timeout": f"the {stage} was stopped{after}: an endless loop, or far too much work",
        "out_of_memory": f"the {stage} needed {limit}",
        "output_limit": f"the {stage} was stopped after it printed {OUTPUT_LIMIT >> 20} MiB or wrote "
        f"{SCRATCH_LIMIT >> 20} MiB of files; a kernel does neither",
        "process_limit": f"the {stage} was stopped with more than {TASK_LIMIT} processes and threads; a kernel starts none",
        "crash": f"the process of the {stage} was ended by {result.signal or 'an early exit'}",
    }
    status: Status = result.status if result.status in ("timeout", "out_of_memory") else "crash"
    kind = _KINDS.get(result.status, result.signal or "ProcessExit")
    return Outcome(status, diagnosis=Diagnosis(stage, kind, messages[result.status], None, tail(result.output)))


def failed_gate(stage: str, failure: Mapping[str, Any], result: JobResult, source: str) -> Outcome:
    """Outcome of a version that a gate found wanting. The output's end stands in where no line is to blame."""
    diagnosis = Diagnosis(**failure["diagnosis"])
    status: Status = failure["status"]
    if status == "crash" and diagnosis.kind.startswith("SIG"):
        status = status_of_signal(diagnosis.kind, result.output)  # type: ignore[assignment]
    text = excerpt(source, diagnosis.line) or diagnosis.excerpt or tail(result.output)
    return Outcome(status, diagnosis=dataclasses.replace(diagnosis, excerpt=text))


def taken(stage: str, result: JobResult, source: str, timeout_s: float, memory_mib: int) -> dict[str, Any] | Outcome:
    """The value of a gate's job, or the outcome of a version that fails in it. timeout_s, memory_mib: see `failed_job`."""
    if result.status != "ok":
        return failed_job(stage, result, timeout_s, memory_mib)
    value: dict[str, Any] = result.value
    return failed_gate(stage, value["failure"], result, source) if "failure" in value else value
