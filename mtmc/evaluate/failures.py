"""From a job that failed to an outcome, for every evaluator that runs candidates in a pool."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from mtmc.evaluate.audit.diagnosis import Failure, excerpt, last_words, tail, with_compiler_text
from mtmc.evaluate.loading.clean_import import Imported
from mtmc.evaluate.measure.questions import ENDED
from mtmc.evaluate.pool.job import OUTPUT_LIMIT, SCRATCH_LIMIT, JobResult, status_of_signal
from mtmc.evaluate.pool.watch import TASK_LIMIT
from mtmc.outcome import Diagnosis, Outcome, Status

Passed = TypeVar("Passed")

_KINDS = {
    "timeout": "Timeout",
    "out_of_memory": "MemoryError",
    "output_limit": "OutputLimit",
    "process_limit": "ProcessLimit",
}
_ABORT = "CompilerAbort"
_FAILED = ("PassManager::run failed", "error encountered during parsing")
"""What Triton's exceptions say where MLIR has refused a kernel."""


def failed_job(stage: str, result: JobResult[Any], timeout_s: float, memory_mib: int) -> Outcome:
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
    return Outcome(status, diagnosis=Diagnosis(stage, kind, messages[result.status], None, last_words(result.output)))


def failed_gate(failure: Failure, result: JobResult[Any], source: str) -> Outcome:
    """Outcome of a version that a gate found wanting. The output's end stands in where no line is to blame."""
    status, diagnosis = failure.status, failure.diagnosis
    if status == "crash" and diagnosis.kind.startswith("SIG"):
        status = status_of_signal(diagnosis.kind, result.output)  # type: ignore[assignment]
    diagnosis = with_compiler_text(diagnosis, result.output, source)
    text = excerpt(source, diagnosis.line) or diagnosis.excerpt or tail(result.output)
    return Outcome(status, diagnosis=dataclasses.replace(diagnosis, excerpt=text))


def failed_examination(failure: Failure, process: JobResult[None] | None) -> Outcome:
    """The outcome of a version that did not stand its examination; how its process ended says more than its silence."""
    diagnosis = failure.diagnosis
    outcome = Outcome(failure.status, diagnosis=diagnosis)
    if process is None or diagnosis.kind != ENDED:
        return outcome
    if process.status in ("output_limit", "out_of_memory", "process_limit"):
        return failed_job(diagnosis.stage, process, 0.0, 0)
    if process.signal:
        status = status_of_signal(process.signal, process.output)
        message = f"the candidate's process was ended by {process.signal}: {diagnosis.message}"
        return Outcome(status, diagnosis=dataclasses.replace(diagnosis, kind=process.signal, message=message))  # type: ignore[arg-type]
    return outcome


def refused_by_compiler(outcome: Outcome, output: str, source: str) -> Outcome:
    """A build whose process has crashed after the compiler told what is wrong with a kernel: LLVM ends its process at some
    errors. Any other outcome is given back."""
    before = outcome.diagnosis
    if outcome.status != "crash" or before is None:
        return outcome
    found = with_compiler_text(before, output, source)
    if found is before:
        return outcome
    text = found.excerpt or before.excerpt
    return Outcome("build_error", diagnosis=dataclasses.replace(found, kind=_ABORT, excerpt=text))


def without_place(outcome: Outcome) -> bool:
    """Whether the compiler has refused a kernel and could not say where, because kernels for a GPU have no line numbers."""
    found = outcome.diagnosis
    if outcome.status != "build_error" or found is None:
        return False
    return found.kind == _ABORT or (found.kind == "RuntimeError" and found.message.startswith(_FAILED))


def taken(
    stage: str, result: JobResult[Passed | Failure], source: str, timeout_s: float, memory_mib: int
) -> Passed | Outcome:
    """The value of a gate's job, or the outcome of a version that fails in it. timeout_s, memory_mib: see `failed_job`."""
    if result.value is None:
        return refused_by_compiler(failed_job(stage, result, timeout_s, memory_mib), result.output, source)
    return failed_gate(result.value, result, source) if isinstance(result.value, Failure) else result.value


def refused_import(
    result: JobResult[Imported | Failure], source: str, timeout_s: float, memory_mib: int
) -> Outcome | None:
    """Why a file is not handed out, from the job that imported it; None where it may be. Other arguments: see `taken`."""
    found = taken("verify", result, source, timeout_s, memory_mib)
    return dataclasses.replace(found, status="rejected") if isinstance(found, Outcome) else None
