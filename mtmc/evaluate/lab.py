"""The lab evaluator: audit, build, check and estimate on a machine without a GPU.

Each version goes through the gates in order and stops at the first that it fails; each gate but the audit is a job in
a worker process (`mtmc.evaluate.pool.worker`). Runtimes are estimates and say so (`Outcome.runtime_kind`). This module runs
in the caller's process and loads neither torch nor triton.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtmc.errors import ConfigError, EvaluatorError
from mtmc.evaluate.estimates.estimate import estimate
from mtmc.evaluate.estimates.resources import Resources, read_resources
from mtmc.evaluate.gates.audit import audit
from mtmc.evaluate.gates.diagnosis import excerpt, tail
from mtmc.evaluate.gates.target import target
from mtmc.evaluate.hardware import for_target, hardware
from mtmc.evaluate.pool.job import OUTPUT_LIMIT, JobResult, status_of_signal
from mtmc.evaluate.pool.worker import Pool, PoolSettings
from mtmc.outcome import Diagnosis, Outcome, Status
from mtmc.protocols import EvaluationRequest

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LabSettings:
    """Settings of the lab.

    target: instruction set to compile for: sm_80, sm_89, sm_90, sm_100, gfx942.
    hardware: name in the hardware table of the GPU to estimate for; empty: the usual one of the target.
    workers: candidates evaluated at the same time; each takes about one core.
    timeout_s: wall seconds that one gate may take. memory_mib: MiB that one gate's process may map.
    check_variants: how many of the task's held-out shapes a screening checks (a verification checks all).
    """

    target: str = "sm_90"
    hardware: str = ""
    workers: int = 2
    timeout_s: float = 60.0
    memory_mib: int = 4096
    check_variants: int = 2

    def open(self) -> LabEvaluator:
        """Start an evaluator. Raises: ConfigError or EvaluatorError for a value that cannot be."""
        return LabEvaluator(self)


class LabEvaluator:
    """Evaluates versions in worker processes; see `mtmc.protocols.Evaluator`. May be used from several threads."""

    def __init__(self, settings: LabSettings) -> None:
        for name in ("workers", "timeout_s", "memory_mib"):
            if getattr(settings, name) <= 0:
                raise ConfigError(f"evaluator.{name} must be above 0, got {getattr(settings, name)}")
        if settings.check_variants < 0:
            raise ConfigError(f"evaluator.check_variants must be at least 0, got {settings.check_variants}")
        target(settings.target)
        self._settings = settings
        self._hardware = hardware(settings.hardware) if settings.hardware else for_target(settings.target)
        if self._hardware.target != settings.target:
            raise ConfigError(
                f"evaluator.hardware {self._hardware.name} is a {self._hardware.target}, not a {settings.target}; "
                f"set evaluator.target={self._hardware.target}"
            )
        self.hardware = self._hardware.name
        self._build = Pool(self._pool_settings("mtmc.evaluate.gates.build:warm", {}))
        self._check = Pool(self._pool_settings("mtmc.evaluate.gates.check:warm", {"TRITON_INTERPRET": "1"}))
        self._closed = False
        self._read: dict[str, Resources] = {}  # by hash of the compiled kernel
        self._threads = ThreadPoolExecutor(settings.workers, thread_name_prefix="mtmc-lab")

    def _pool_settings(self, warm: str, environment: Mapping[str, str]) -> PoolSettings:
        settings = self._settings
        return PoolSettings(
            warm,
            {"target_name": settings.target, "multiprocessors": self._hardware.sms},
            {"TRITON_DEFAULT_FP_FUSION": "1", **environment},
            settings.workers,
            settings.timeout_s,
            settings.memory_mib,
        )

    def __enter__(self) -> LabEvaluator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
        """One outcome per request, same order; up to `workers` at the same time.

        Raises: TaskError if a reference fails; EvaluatorError if the workers do.
        """
        if self._closed:
            raise EvaluatorError("this evaluator is closed; open a new one to evaluate more")
        if len(requests) > 1:
            return list(self._threads.map(self._evaluate_one, requests))
        return [self._evaluate_one(request) for request in requests]

    def close(self) -> None:
        """End all worker processes, also those at work. Idempotent."""
        self._closed = True
        self._build.close()
        self._check.close()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _evaluate_one(self, request: EvaluationRequest) -> Outcome:
        refused = audit(request.source, request.task.source)
        if refused is not None:
            return refused
        self._check.start()  # both kinds of worker warm up while the first one is waited for
        built = self._job(
            self._build, "build", "mtmc.evaluate.gates.build:build", request, target_name=self._settings.target
        )
        if isinstance(built, Outcome):
            return built
        arguments = {"seed": request.seed, "depth": request.depth, "check_variants": self._settings.check_variants}
        pinned = {"autotuned": built["autotuned"]}
        checked = self._job(self._check, "check", "mtmc.evaluate.gates.check:check", request, **arguments, **pinned)
        if isinstance(checked, Outcome):
            return checked
        counted = self._job(self._check, "estimate", "mtmc.evaluate.counting.count:count", request, **pinned)
        if isinstance(counted, Outcome):
            return counted
        return self._estimate(built, checked["metrics"], counted["records"])

    def _estimate(self, built: dict[str, Any], metrics: dict[str, float], records: list[dict[str, Any]]) -> Outcome:
        """The outcome of a version that passed every gate."""
        resources = [self._resources(built["kernels"][launch["compiled"]]) for launch in built["launches"]]
        estimated = estimate(records, resources, self._hardware)
        return Outcome(
            "ok",
            runtime_ms=estimated.runtime_ms,
            runtime_kind="estimated",
            metrics={**estimated.metrics, **metrics},
        )

    def _resources(self, kernel: dict[str, Any]) -> Resources:
        """What a compiled kernel takes of a multiprocessor. Most kernels of a search are those of an earlier version."""
        key = kernel["hash"]
        if key not in self._read:
            files = kernel["files"]
            binary = Path(files["amdgcn" if "amdgcn" in files else "cubin"]).read_bytes()
            # Disassembling takes longer than all the rest, and tells only of tensor cores and asynchronous copies.
            text = Path(files["ptx"]).read_text() if "ptx" in files else ""
            mix = not text or any(word in text for word in ("mma", "cp.async", "tcgen05"))
            self._read[key] = read_resources(binary, self._settings.target, kernel["shared"], mix)
        return self._read[key]

    def _job(
        self, pool: Pool, stage: str, function: str, request: EvaluationRequest, **arguments: Any
    ) -> dict[str, Any] | Outcome:
        """The value of one gate's job, or the outcome of a version that fails in it."""
        arguments = {"task": request.task, "source": request.source, **arguments}
        result = pool.run(function, arguments)
        _log.debug("%s of a version of %s: %s in %.2f s", stage, request.task.name, result.status, result.seconds)
        if result.status != "ok":
            return _failed_job(stage, result, self._settings)
        value: dict[str, Any] = result.value
        if "failure" in value:
            return _failed_gate(stage, value["failure"], result, request.source)
        return value


def _failed_job(stage: str, result: JobResult, settings: LabSettings) -> Outcome:
    """Outcome of a version whose whole process had to be ended, or ended itself."""
    messages = {
        "timeout": f"the {stage} was stopped after {settings.timeout_s:g} s: an endless loop, or far too much work",
        "out_of_memory": f"the {stage} needed more than {settings.memory_mib} MiB of memory",
        "output_limit": f"the {stage} was stopped after printing {OUTPUT_LIMIT >> 20} MiB; a kernel prints nothing",
        "crash": f"the process of the {stage} was ended by {result.signal or 'an early exit'}",
    }
    kinds = {"timeout": "Timeout", "out_of_memory": "MemoryError", "output_limit": "OutputLimit"}
    status: Status = "crash" if result.status in ("crash", "output_limit") else result.status  # type: ignore[assignment]
    kind = kinds.get(result.status, result.signal or "ProcessExit")
    return Outcome(status, diagnosis=Diagnosis(stage, kind, messages[result.status], None, tail(result.output)))


def _failed_gate(stage: str, failure: Mapping[str, Any], result: JobResult, source: str) -> Outcome:
    """Outcome of a version that a gate found wanting. The output's end stands in where no line is to blame."""
    diagnosis = Diagnosis(**failure["diagnosis"])
    status: Status = failure["status"]
    if status == "crash" and diagnosis.kind.startswith("SIG"):
        status = status_of_signal(diagnosis.kind, result.output)  # type: ignore[assignment]
    text = excerpt(source, diagnosis.line) or diagnosis.excerpt or tail(result.output)
    return Outcome(status, diagnosis=dataclasses.replace(diagnosis, excerpt=text))
