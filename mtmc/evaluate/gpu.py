"""The GPU evaluator: audit, build, check, time and verify on NVIDIA GPUs; runtimes are measured.

Builds run in parallel on the CPU cores (`mtmc.evaluate.gpu_builds`) and fill one Triton cache; each visible GPU has
its worker (`mtmc.evaluate.measure.gpu_worker`), where one candidate at a time is examined. This module runs in the
caller's process and loads neither torch nor triton.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from mtmc.errors import ConfigError
from mtmc.evaluate.allowance import seconds_for
from mtmc.evaluate.audit.diagnosis import Failure
from mtmc.evaluate.baselines import BaselineFile
from mtmc.evaluate.compiling.build import Built
from mtmc.evaluate.core_split import split_here
from mtmc.evaluate.devices import Device, cores, visible_devices
from mtmc.evaluate.failures import failed_examination
from mtmc.evaluate.gpu_baselines import BASELINES, GpuBaselines, too_late
from mtmc.evaluate.gpu_builds import Builds, BuildSettings
from mtmc.evaluate.measure.gpu_worker import GpuWorker
from mtmc.evaluate.measure.gpu_workers import GpuWorkers
from mtmc.evaluate.measure.questions import LIBRARY, Measured
from mtmc.evaluate.measure.spare_processes import Process
from mtmc.evaluate.measure.stillness import Stillness
from mtmc.evaluate.measure.worker_settings import GpuWorkerSettings
from mtmc.evaluate.profiling.figures import joined, longest
from mtmc.evaluate.profiling.profiler import profile
from mtmc.evaluate.reference.weaknesses import Weaknesses
from mtmc.evaluate.sandbox.lockdown import sandbox_mode
from mtmc.evaluate.settings import require_numbers
from mtmc.evaluate.threaded import ThreadedEvaluator
from mtmc.outcome import Outcome, of_kernels
from mtmc.protocols import EvaluationRequest, EvaluatorSettings
from mtmc.task import Task
from mtmc.tree import source_hash

_log = logging.getLogger(__name__)

MOST_SPARES, SPARE_MIB = 6, 12288
"""Processes for candidates that wait on each GPU: at most so many, and one for so much of its memory (a CUDA context
takes half a GiB). Making one takes about half a second, so several are in the making while one is at work."""
COMPILERS = 4
"""Processes that compile for one baseline, at most."""


@dataclass(frozen=True)
class GpuSettings(EvaluatorSettings):
    """Settings of the GPU evaluator.

    devices: CUDA indices, e.g. "0,1"; empty: every visible GPU. builders: builds at the same time; 0: one for each core.
    timeout_s: seconds that one gate of one candidate may take, without what the evaluator does by itself: of a core in a
        build, of the wall on a GPU. A version of many calls may take more, see `seconds_for`.
    memory_mib: MiB that a candidate's process may take.
    check_variants: how many of the task's held-out shapes a screening checks (a verification checks all).
    sandbox: "auto" takes what protections there are, "strict" refuses to run without one of them, "off" takes none.
    baselines: what a task is compared with, of "eager", "torch.compile", "torch.compile max-autotune", which takes minutes
        for a large network, and "library", the task's class `Library` where it has one and the library is installed.
        A search does not wait for max-autotune: it is compiled beside it, and waited for at its end.
    baselines_file: where baselines are kept between runs; empty: in the user's cache folder.
    compile_s: wall seconds that a mode of torch.compile may take to compile. One that takes longer has no time, and a later
        run goes on where it stood.
    profile: whether a verification asks the profiler as well.
    reuse: versions that a process may screen, one after another, as long as they are right. A CUDA driver makes one context
        at a time for the whole machine, about 8 a second: with several GPUs and small kernels that limits the rate. Above 1
        only where versions are trusted (coder=rewriter): one could spoil the process for the next. A verification always
        has its own.
    """

    devices: str = ""
    builders: int = 0
    timeout_s: float = 60.0
    memory_mib: int = 16384
    check_variants: int = 2
    sandbox: str = "auto"
    baselines: tuple[str, ...] = tuple(BASELINES)
    baselines_file: str = ""
    compile_s: float = 900.0
    profile: bool = True
    reuse: int = 1

    def open(self) -> GpuEvaluator:
        """Start an evaluator. Raises: ConfigError for a value that cannot be, EvaluatorError where there is no GPU."""
        return GpuEvaluator(self)

    def known_hardware(self) -> str:
        """Name of the first GPU. Raises: ConfigError for a value that cannot be, EvaluatorError where there is no GPU."""
        return visible_devices(self.devices)[0].hardware.name


class GpuEvaluator(ThreadedEvaluator):
    """Evaluates versions on GPUs; see `mtmc.protocols.Evaluator`. May be used from several threads."""

    verifies = True

    @property
    def profiles(self) -> bool:  # type: ignore[override]
        """On a device; where its part is played by the host there is nothing to profile."""
        return self._backend == "cuda"

    def __init__(self, settings: GpuSettings, backend: str = "cuda") -> None:
        sandbox_mode(settings.sandbox)
        require_numbers(settings, ("timeout_s", "memory_mib", "reuse", "compile_s"), ("builders", "check_variants"))
        unknown = [name for name in settings.baselines if name not in BASELINES]
        if unknown:
            raise ConfigError(f"evaluator.baselines cannot have {unknown[0]!r}: use some of {', '.join(BASELINES)}")
        self._settings = settings
        self._backend = backend
        self._devices = visible_devices(settings.devices) if backend == "cuda" else [Device.host()]
        self._hardware = self._devices[0].hardware
        if any(device.hardware.name != self._hardware.name for device in self._devices):
            names = ", ".join(f"{device.index}: {device.name}" for device in self._devices)
            raise ConfigError(
                f"runtimes of different GPUs cannot be compared ({names}): set evaluator.devices to equal ones"
            )
        self.hardware = self._hardware.name
        self._cache = Path(tempfile.mkdtemp(prefix="mtmc-triton-"))
        self._finalizer = weakref.finalize(self, shutil.rmtree, str(self._cache), ignore_errors=True)
        self._cores = split_here([device.position for device in self._devices], self._devices[0].present)
        self._builders = settings.builders or len(self._cores.others) or max(1, cores() - len(self._devices))
        self._stillness = Stillness(self._stop_builds)
        self._all = [
            GpuWorker(self._worker_settings(*each), self._stillness.want)
            for each in zip(self._devices, self._cores.quiet, strict=True)
        ]
        self._workers = GpuWorkers(self._all)
        self._threads = ThreadPoolExecutor(self._builders + 2 * len(self._all), thread_name_prefix="mtmc-gpu")
        self._builds = Builds(self._build_settings(), lambda: self._all[0].about().facts, self._warm_up)
        self._baselines = GpuBaselines(settings.baselines, settings.baselines_file, self._devices[0], self._baseline)
        self._told: set[tuple[str, str]] = set()
        self._closed = False

    def baselines(self, task: Task) -> dict[str, Outcome]:
        """See `gpu_baselines.GpuBaselines.quick`. Raises: TaskError, EvaluatorError as `evaluate`."""
        return self._baselines.quick(task)

    def slow_baselines(self, task: Task) -> dict[str, Outcome]:
        """See `gpu_baselines.GpuBaselines.slow`. Raises: as `baselines`."""
        return self._baselines.slow(task)

    def _baseline(self, task: Task, baseline: str, caches: Path) -> Outcome:
        """A baseline's time. A mode of torch.compile does its work before the device is taken for measuring it. caches: its
        folder for that, see `BaselineFile.begun`."""
        kind, _, mode = baseline.partition(":")
        source = task.with_library if kind == LIBRARY else task.source
        request = EvaluationRequest(task, source, 0, "screen")
        if kind != "compile":
            return self._examined(request, {}, baseline)
        self._builds.start()  # first, see there
        worker, began = self._workers.home(source_hash(task.source)), time.perf_counter()
        process = worker.compile_first(task, mode, caches, self._settings.compile_s)
        compiled = time.perf_counter()
        if process == "late":
            return too_late(self._settings.compile_s)
        outcome = self._examined(request, {}, baseline, worker, None if process == "ended" else process)
        measured = time.perf_counter() - compiled
        _log.info("task %s: %s compiled in %.1f s, measured in %.1f", task.name, mode, compiled - began, measured)
        return outcome

    def imports(self, source: str) -> Outcome | None:
        """See `protocols.Evaluator.imports`."""
        return self._builds.imports(source)

    def beside(self, processes: Callable[[], Iterable[int]]) -> None:
        """See `protocols.Evaluator.beside`."""
        self._stillness.add(processes)

    def close(self) -> None:
        """End all worker processes, also those at work. Idempotent."""
        self._closed = True
        self._builds.close()
        for worker in self._all:
            worker.close()
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._finalizer()

    def _evaluate_one(self, request: EvaluationRequest) -> Outcome:
        started = time.perf_counter()
        built = self._builds.built(request)
        if isinstance(built, Outcome):
            return built
        if request.depth == "profile":
            return self._profiled(request, built)
        return self._examined(request, {**self._builds.metrics(built), "build_s": time.perf_counter() - started})

    def _profiled(self, request: EvaluationRequest, built: Built) -> Outcome:
        """What a profiler tells of each kernel of a version that has passed a screening, beside what the build knows."""
        self._builds.start()
        with self._workers.one_for(source_hash(request.task.source)) as worker, worker.alone() as visible:
            limit_s = 2 * self._settings.timeout_s
            mode = sandbox_mode(self._settings.sandbox)
            found = profile(request.task, request.source, visible, mode, limit_s, self._settings.memory_mib)
        figures = longest(joined(found.kernels, self._builds.figures(built)))
        return Outcome("ok", metrics={**found.metrics, **of_kernels(figures)})

    def _examined(
        self,
        request: EvaluationRequest,
        metrics: Mapping[str, float],
        baseline: str = "",
        wanted: GpuWorker | None = None,
        process: Process | None = None,
    ) -> Outcome:
        """What a GPU worker finds of a version that was built, or of a baseline. wanted: which worker; None: any. process:
        of that worker, in which the baseline is compiled already."""
        self._builds.start()
        settings, compiles = self._settings, baseline.startswith(("compile", LIBRARY))
        limit_s = seconds_for(settings.timeout_s, request.source)
        waited = time.perf_counter()
        with self._workers.one_for(source_hash(request.task.source), wanted) as worker:
            queued, begun = time.perf_counter() - waited, time.perf_counter()
            answer, ended = worker.examine(
                process,
                task=request.task,
                source=request.source,
                depth=request.depth,
                check_variants=settings.check_variants,
                limit_s=max(settings.compile_s, limit_s) if compiles else limit_s,
                baseline=baseline,
                profile=settings.profile,
            )
            held = time.perf_counter() - begun
        if isinstance(answer.found, Measured):
            self._warn(request.task, Weaknesses(answer.found.warnings, answer.found.undecided).sentences)
            return _measured(answer.found, {**metrics, "queued_s": queued, "held_s": held})
        assert isinstance(answer.found, Failure)
        failed = failed_examination(answer.found, ended)
        return replace(failed, metrics={**failed.metrics, "queued_s": queued, "held_s": held})

    def _warn(self, task: Task, warnings: Sequence[str]) -> None:
        """Tell once what a task's admission found to be weak about it."""
        new = [each for each in warnings if (task.name, each) not in self._told]
        self._told.update((task.name, each) for each in new)
        for warning in new:
            _log.warning("task %s: %s", task.name, warning)

    def _stop_builds(self, on: bool) -> None:
        self._builds.stand_still(on)

    def _warm_up(self) -> None:
        """Let the workers calibrate while the first version is built."""
        for worker in self._all:
            self._threads.submit(worker.warm_up)

    def _build_settings(self) -> BuildSettings:
        settings = self._settings
        return BuildSettings(
            self._hardware,
            self._backend == "cuda",
            self._cache,
            self._builders,
            self._cores.others,
            settings.check_variants,
            settings.timeout_s,
            settings.memory_mib,
            settings.sandbox,
        )

    def _worker_settings(self, device: Device, quiet: tuple[int, ...]) -> GpuWorkerSettings:
        settings = self._settings
        return GpuWorkerSettings(
            device.index,
            device.uuid or device.index,
            device.hardware,
            self._cache,
            self._backend,
            settings.memory_mib,
            sandbox_mode(settings.sandbox),
            min(MOST_SPARES, max(2, device.memory_mib // SPARE_MIB)),
            settings.reuse,
            max(1, min(COMPILERS, cores() // 2)),
            quiet,
            self._cores.others,
            BaselineFile.of(settings.baselines_file).compiling if settings.baselines else None,
        )


def _measured(found: Measured, metrics: Mapping[str, float]) -> Outcome:
    """The outcome of a version that is right."""
    return Outcome(
        "ok",
        runtime_ms=found.timing.median_ms,
        runtime_low_ms=found.timing.low_ms,
        runtime_high_ms=found.timing.high_ms,
        trials=found.timing.trials,
        runtime_kind="measured",
        metrics={**found.metrics, **metrics},
        undecided=found.undecided,
    )
