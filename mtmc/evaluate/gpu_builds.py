"""The builds of versions for GPUs, on the CPU cores, and what is read of the kernels that they compile."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from mtmc.errors import EvaluatorError
from mtmc.evaluate.allowance import PATIENCE, seconds_for
from mtmc.evaluate.check.cases import plan
from mtmc.evaluate.compiling.build import Built, build, ready, warm
from mtmc.evaluate.compiling.prebuilt import ENVIRONMENT
from mtmc.evaluate.estimates.built import built_figures, built_metrics
from mtmc.evaluate.estimates.resources import Resources, read_resources
from mtmc.evaluate.failures import refused_import, taken, without_place
from mtmc.evaluate.loading.clean_import import import_alone
from mtmc.evaluate.pool.settings import PoolSettings
from mtmc.evaluate.pool.worker import Pool
from mtmc.evaluate.sandbox.lockdown import sandbox_mode
from mtmc.hardware import Hardware
from mtmc.outcome import Outcome
from mtmc.protocols import EvaluationRequest

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BuildSettings:
    """Of the builds for one kind of GPU.

    hardware: what is built for. for_gpu: whether it is there, and not played by the host. cache: Triton's, which they fill.
    builders: builds at the same time. cores: the hardware threads that they keep to; none: all that there are.
    check_variants, timeout_s, memory_mib, sandbox: see `GpuSettings`.
    """

    hardware: Hardware
    for_gpu: bool
    cache: Path
    builders: int
    cores: tuple[int, ...]
    check_variants: int
    timeout_s: float
    memory_mib: int
    sandbox: str


class Builds:
    """Builds in a pool of processes, which is started at the first. May be used from several threads."""

    def __init__(self, settings: BuildSettings, facts: Callable[[], object], begun: Callable[[], None]) -> None:
        """facts: asks the device what candidates may ask of it. begun: called once, when the pool is there."""
        self._settings, self._facts, self._begun = settings, facts, begun
        self._pool: Pool | None = None
        self._starting = threading.Lock()
        self._resources: dict[str, Resources] = {}  # by hash of the compiled kernel

    def start(self) -> Pool:
        """The pool. It is started when the device has told what candidates may ask of it, and before the GPU workers are:
        Triton's launcher, which it compiles, their processes find in the cache and cannot write there."""
        with self._starting:
            if self._pool is None:
                settings, hardware = self._settings, self._settings.hardware
                facts = self._facts()
                target = {"target_name": hardware.target, "multiprocessors": hardware.sms}
                self._pool = Pool(
                    PoolSettings(
                        warm,
                        {**target, "for_gpu": settings.for_gpu, "facts": facts},
                        {**ENVIRONMENT, "TRITON_DEFAULT_FP_FUSION": "1", "TRITON_CACHE_DIR": str(settings.cache)},
                        settings.builders,
                        settings.timeout_s,
                        min(settings.memory_mib, 8192),
                        sandbox=sandbox_mode(settings.sandbox),
                        writable=(settings.cache,),
                        cores=settings.cores,
                        patience=PATIENCE,
                    )
                )
                self._pool.run(ready, {})
                self._begun()
            return self._pool

    def stand_still(self, on: bool) -> None:
        """Let the builds that are under way wait, or go on."""
        if self._pool is not None:
            self._pool.stand_still(on)

    def close(self) -> None:
        """End the processes, also those at work. Idempotent."""
        if self._pool is not None:
            self._pool.close()

    def built(self, request: EvaluationRequest) -> Built | Outcome:
        """What the build gate found, or the outcome of a version that fails in it."""
        arguments = {
            "task": replace(request.task, state=None),  # whose values nothing is built by, see `compiling.build`
            "source": request.source,
            "target_name": self._settings.hardware.target,
            "variants": plan(request.task, request.depth, self._settings.check_variants).variants,
            "for_gpu": self._settings.for_gpu,
        }
        built = self._built_once(request.source, arguments)
        if isinstance(built, Outcome) and without_place(built):
            again = self._built_once(request.source, {**arguments, "lines": True})
            return again if isinstance(again, Outcome) and again.status == built.status else built
        return built

    def _built_once(self, source: str, arguments: Mapping[str, object]) -> Built | Outcome:
        """One job of the build."""
        limit_s = seconds_for(self._settings.timeout_s, source)
        result = self.start().run(build, arguments, timeout_s=limit_s)
        return taken("build", result, source, limit_s, self._settings.memory_mib)

    def imports(self, source: str) -> Outcome | None:
        """See `protocols.Evaluator.imports`."""
        result = self.start().run(import_alone, {"source": source})
        return refused_import(result, source, self._settings.timeout_s, self._settings.memory_mib)

    def metrics(self, built: Built) -> dict[str, float]:
        """What the build tells of a version."""
        resources = self._resources_of(built)
        return {} if resources is None else built_metrics(built, resources, self._settings.hardware)

    def figures(self, built: Built) -> dict[str, dict[str, float]]:
        """What the build tells of each kernel of a version."""
        resources = self._resources_of(built)
        return {} if resources is None else built_figures(built, resources, self._settings.hardware)

    def _resources_of(self, built: Built) -> list[Resources] | None:
        """What each compiled kernel takes. Most kernels of a search are those of an earlier version."""
        try:
            for kernel in built.kernels:
                if kernel.hash not in self._resources:
                    binary = Path(kernel.files["cubin"]).read_bytes()
                    self._resources[kernel.hash] = read_resources(
                        binary, self._settings.hardware.target, kernel.shared, mix=False, function=kernel.function
                    )
        except (EvaluatorError, OSError, KeyError) as error:
            _log.warning("nothing is known of a version's kernels: %s", error)
            return None
        return [self._resources[kernel.hash] for kernel in built.kernels]
