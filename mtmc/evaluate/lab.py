"""The lab evaluator: audit, build, check and estimate on a machine without a GPU.

Each version goes through the gates in order and stops at the first that it fails; each gate is a job in
a worker process (`mtmc.evaluate.pool.worker`). Runtimes are estimates and say so (`Outcome.runtime_kind`). Results are
compared at small shapes and work is counted at the full ones, so a version that does less there than its task takes
(`mtmc.evaluate.counting.floor`) is rejected. This module runs in the caller's process and loads neither torch nor triton.
"""

from __future__ import annotations

import array
import contextlib
import logging
import secrets
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from mtmc.errors import ConfigError
from mtmc.evaluate.allowance import PATIENCE, seconds_for
from mtmc.evaluate.audit.diagnosis import Failure
from mtmc.evaluate.check.cases import plan
from mtmc.evaluate.check.check import check, weaknesses
from mtmc.evaluate.check.check import warm as warm_check
from mtmc.evaluate.compiling.build import Built, build
from mtmc.evaluate.compiling.build import warm as warm_build
from mtmc.evaluate.compiling.compiled_kernel import Kernel
from mtmc.evaluate.compiling.target import target
from mtmc.evaluate.counting.compared import wrong_of
from mtmc.evaluate.counting.count import Counted, count
from mtmc.evaluate.counting.floor import Floor, StandingOut, floor, least_bits, standing_out
from mtmc.evaluate.counting.journal import DATA
from mtmc.evaluate.counting.noting import note
from mtmc.evaluate.counting.refusals import (
    imprecise,
    other_launches,
    too_little,
    too_long,
    unchecked,
    unknown_work,
)
from mtmc.evaluate.counting.tiling import Tiles
from mtmc.evaluate.estimates.estimate import estimate
from mtmc.evaluate.estimates.profiled import profiled
from mtmc.evaluate.estimates.resources import Resources, read_resources, straight_instructions
from mtmc.evaluate.estimates.static import not_run
from mtmc.evaluate.failures import refused_import, taken
from mtmc.evaluate.loading.clean_import import import_alone
from mtmc.evaluate.of_task import OfTask
from mtmc.evaluate.pool.settings import PoolSettings
from mtmc.evaluate.pool.worker import Pool
from mtmc.evaluate.reference.weaknesses import Weaknesses
from mtmc.evaluate.sandbox.lockdown import Mode, sandbox_mode
from mtmc.evaluate.sandbox.seccomp import Profile
from mtmc.evaluate.settings import require_numbers
from mtmc.evaluate.threaded import ThreadedEvaluator
from mtmc.hardware import for_target, hardware
from mtmc.outcome import Diagnosis, Outcome, of_kernels
from mtmc.protocols import Depth, EvaluationRequest, EvaluatorSettings
from mtmc.task import Task, Variant

_log = logging.getLogger(__name__)

Passed = TypeVar("Passed")

LOOKING_BACK: dict[Depth, float] = {"screen": 0.15e6, "verify": 3e6, "profile": 0.0}
"""Interpreter microseconds that a depth spends on what earlier launches leave for the spot checks of later ones."""


@dataclass(frozen=True)
class LabSettings(EvaluatorSettings):
    """Settings of the lab.

    target: instruction set to compile for: sm_80, sm_89, sm_90, sm_100, gfx942.
    hardware: name in the hardware table of the GPU to estimate for; empty: the usual one of the target.
    workers: candidates evaluated at the same time; each takes about one core.
    timeout_s: seconds of a core that one gate may take, however busy the machine is, and a build of many calls more,
        see `seconds_for`; one that hardly works is ended after `PATIENCE` times as many of the wall.
    memory_mib: MiB that one gate's process may map.
    check_variants: how many of the task's held-out shapes a screening checks (a verification checks all).
    sandbox: how candidates are kept inside: "auto" (by all that works here), "strict" (not at all unless everything does;
        `mtmc doctor` lists it), "off" (limits of time, memory and output only).
    """

    target: str = "sm_90"
    hardware: str = ""
    workers: int = 2
    timeout_s: float = 60.0
    memory_mib: int = 4096
    check_variants: int = 2
    sandbox: str = "auto"

    def open(self) -> LabEvaluator:
        """Start an evaluator. Raises: ConfigError or EvaluatorError for a value that cannot be."""
        return LabEvaluator(self)

    def known_hardware(self) -> str:
        """Name of the GPU to estimate for. Raises: ConfigError for a value that cannot be."""
        return (hardware(self.hardware) if self.hardware else for_target(self.target)).name


class LabEvaluator(ThreadedEvaluator):
    """Evaluates versions in worker processes; see `mtmc.protocols.Evaluator`. May be used from several threads."""

    profiles = True

    def __init__(self, settings: LabSettings) -> None:
        require_numbers(settings, ("workers", "timeout_s", "memory_mib"), ("check_variants",))
        sandbox = sandbox_mode(settings.sandbox)
        target(settings.target)
        self._settings = settings
        self._hardware = hardware(settings.hardware) if settings.hardware else for_target(settings.target)
        if self._hardware.target != settings.target:
            raise ConfigError(
                f"evaluator.hardware {self._hardware.name} is a {self._hardware.target}, not a {settings.target}; "
                f"set evaluator.target={self._hardware.target}"
            )
        self.hardware = self._hardware.name
        self._build = Pool(self._pool_settings(warm_build, {}, "build", sandbox))
        interpret = {"TRITON_INTERPRET": "1"}
        self._check = Pool(self._pool_settings(warm_check, interpret, "keeper", sandbox))
        self._closed = False
        self._read: dict[str, Resources] = {}  # by hash of the compiled kernel
        self._of_task = OfTask(self._check, settings.timeout_s, settings.memory_mib)
        self._secret = secrets.randbits(61)
        self._told: set[Task] = set()  # whose weaknesses were warned of
        self._expected: dict[Tiles, list[array.array[float]]] = {}  # outputs of a small draw
        self._threads = ThreadPoolExecutor(settings.workers, thread_name_prefix="mtmc-lab")
        self._build.start()  # both load torch while the caller exports its reference
        self._check.start()

    def _pool_settings(
        self, warm: Callable[..., None], environment: Mapping[str, str], profile: Profile, sandbox: Mode
    ) -> PoolSettings:
        settings = self._settings
        return PoolSettings(
            warm,
            {"target_name": settings.target, "multiprocessors": self._hardware.sms},
            {"TRITON_DEFAULT_FP_FUSION": "1", **environment},
            settings.workers,
            settings.timeout_s,
            settings.memory_mib,
            profile,
            sandbox,
            patience=PATIENCE,
        )

    def imports(self, source: str) -> Outcome | None:
        """See `protocols.Evaluator.imports`."""
        result = self._build.run(import_alone, {"source": source})
        return refused_import(result, source, self._settings.timeout_s, self._settings.memory_mib)

    def close(self) -> None:
        """End all worker processes, also those at work. Idempotent."""
        self._closed = True
        self._build.close()
        self._check.close()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _evaluate_one(self, request: EvaluationRequest) -> Outcome:
        told = self._admit(request.task)
        if isinstance(told, Outcome):
            return told
        built = self._job(self._build, "build", build, request, {"target_name": self._settings.target})
        if isinstance(built, Outcome):
            return built
        if built.cuda or built.gluon:  # nothing here interprets CUDA C++ or Gluon, whatever else the version launches
            return not_run(built, [self._resources(kernel, product=True) for kernel in built.kernels], self._hardware)
        if request.depth == "profile":
            return self._profiled(request, built)
        arguments = {"seed": request.seed, "depth": request.depth, "check_variants": self._settings.check_variants}
        pinned = {"autotuned": built.autotuned}
        checked = self._job(self._check, "check", check, request, {**arguments, **pinned})
        if isinstance(checked, Outcome):
            return checked
        least = self._floor(request.task)
        if isinstance(least, Outcome):
            return least
        tiling = None if least.tiles is None else least.tiles.tiling
        budget = LOOKING_BACK[request.depth]
        standing = self._standing_out(request.task, least) if request.depth == "verify" else StandingOut()
        if isinstance(standing, Outcome):
            return standing
        hard = standing.tiles
        asked: dict[str, Any] = {
            "least_bytes": least.bytes,
            "secret": secrets.randbits(62),
            "tiling": tiling,
            "budget": budget,
        }
        asked |= {"others": tuple(each.tiling for each in hard), "thorough": request.depth == "verify"}
        counted = self._counted(request, request.task.full, pinned, asked)
        if isinstance(counted, Outcome):
            return counted
        unsound = self._unearned(request, pinned, counted, least) or other_launches(built, counted)
        unsound = unsound or self._other_results(request.task, counted, least, hard)
        unsound = unsound or (too_long(counted) if request.depth == "verify" and tiling and tiling.sizes else None)
        metrics = {**checked.metrics, **told.metrics}
        if unsound:
            return unsound
        found, left_out = self._estimate(built, metrics, counted), unchecked(counted, least, standing.why_not)
        return replace(found, undecided=told.undecided, unchecked=left_out)

    def _profiled(self, request: EvaluationRequest, built: Built) -> Outcome:
        """What is estimated of each kernel of a version that has passed a screening."""
        counted = self._counted(request, request.task.full, {"autotuned": built.autotuned}, {})
        if isinstance(counted, Outcome):
            return counted
        unsound = other_launches(built, counted)
        if unsound:
            return unsound
        kernels = [built.kernels[launch.compiled] for launch in built.launches]
        resources = [self._resources(kernel, product=True) for kernel in kernels]  # disassembled, whatever it computes
        estimated = estimate(counted.records, resources, self._hardware, counted.copies)
        figures = profiled(estimated, counted.records, resources)
        return Outcome("ok", metrics={"profiled_by_lab": 1.0, **of_kernels(figures)})

    def _counted(
        self, request: EvaluationRequest, variant: Variant, pinned: Mapping[str, Any], asked: Mapping[str, Any]
    ) -> Counted | Outcome:
        """Count a version's forward, in two processes: one runs its host code, the other one its kernels."""
        with self._check.folder_for() as folder, self._check.folder_for() as other:
            noting = {**pinned, "variant": variant, "with_data": asked.get("tiling") is not None}
            journal = self._job(self._check, "estimate", note, request, noting, "candidate", folder=folder)
            if isinstance(journal, Outcome):
                return journal
            with contextlib.suppress(OSError):  # none is there, whatever the journal says: the count tells
                (folder / DATA).replace(other / DATA)
            counting = {**asked, "variant": variant, "journal": journal}
            return self._job(self._check, "estimate", count, request, counting, "candidate", folder=other)

    def _unearned(
        self, request: EvaluationRequest, pinned: Mapping[str, Any], counted: Counted, least: Floor
    ) -> Outcome | None:
        """The outcome of a version that leaves out at the full shapes what it does where results are compared."""
        refused = too_little(counted, least) or unknown_work(counted, least)
        bits = least_bits(counted.records)
        if refused or bits is None or bits >= least.bits:
            return refused
        small: list[Mapping[str, Any]] = []
        for variant in plan(request.task, request.depth, self._settings.check_variants).variants:
            there = self._counted(request, variant, pinned, {})
            if isinstance(there, Outcome):
                return there
            small += [*there.records, *(there.copies or ())]
        checked = least_bits(small)
        seen = checked is not None and checked <= bits  # then the check has let it pass
        return None if seen else imprecise(bits, least.bits, checked)

    def _other_results(self, task: Task, counted: Counted, least: Floor, hard: tuple[Tiles, ...]) -> Outcome | None:
        """The outcome of a version that writes other things at the full shapes than the reference. hard: draws besides the
        task's own."""
        if least.tiles is None:
            return None
        for tiles, found in zip((least.tiles, *hard), (counted.found, *counted.others), strict=True):
            if tiles not in self._expected:
                self._expected[tiles] = tiles.expected()
            told = wrong_of(found, self._expected[tiles], task.tolerance, least.bits, tiles.near)
            if told:
                drawn = tiles.tiling.distribution
                which = "" if drawn == "drawn" else f" on inputs of which only a part counts ({drawn})"
                message = f"at the full shapes, in programs drawn in secret, the forward writes {told}{which}"
                return Outcome("wrong_result", diagnosis=Diagnosis("estimate", "WrongValues", message))
        return None

    def _admit(self, task: Task) -> Weaknesses | Outcome:
        """Look a task over, once, and tell what is weak about it. Raises: TaskError if it cannot be searched."""
        told = self._of_task.asked(weaknesses, task, {}, "check")
        if isinstance(told, Weaknesses) and task not in self._told:
            self._told.add(task)
            for warning in told.sentences:
                _log.warning("task %s: %s", task.name, warning)
        return told

    def _floor(self, task: Task) -> Floor | Outcome:
        """See `mtmc.evaluate.counting.floor.floor`. Raises: TaskError, EvaluatorError."""
        return self._of_task.asked(floor, task, {"secret": self._secret}, "estimate")

    def _standing_out(self, task: Task, least: Floor) -> StandingOut | Outcome:
        """See `tiles_that_stand_out`. Raises: EvaluatorError."""
        if least.tiles is None or not least.tiles.tiling.sizes:
            return StandingOut()
        given = {"tiles": least.tiles, "secret": self._secret + 1}
        return self._of_task.asked(standing_out, task, given, "estimate")

    def _estimate(self, built: Built, metrics: Mapping[str, float], counted: Counted) -> Outcome:
        """The outcome of a version that passed every gate."""
        records = counted.records
        products = [record["dot_flops"] > 0 for record in records if "op" not in record]
        kernels = [built.kernels[launch.compiled] for launch in built.launches]
        resources = [self._resources(kernel, product) for kernel, product in zip(kernels, products, strict=True)]
        estimated = estimate(records, resources, self._hardware, counted.copies)
        return Outcome(
            "ok",
            runtime_ms=estimated.runtime_ms,
            runtime_kind="estimated",
            metrics={**estimated.metrics, **metrics, **counted.found.metrics},
        )

    def _resources(self, kernel: Kernel, product: bool) -> Resources:
        """What a compiled kernel takes of a multiprocessor. Most kernels of a search are those of an earlier version.

        product: whether it multiplies matrices, on tensor cores or not.
        """
        key, files = kernel.hash, kernel.files
        # One that was read without its code is read again where that is asked for.
        if key not in self._read or (product and not self._read[key].instruction_mix):
            binary = Path(files["amdgcn" if "amdgcn" in files else "cubin"]).read_bytes()
            # Disassembling takes longer than all the rest, and tells only of products and asynchronous copies.
            text = Path(files["ptx"]).read_text() if "ptx" in files else ""
            mix = not text or product or any(word in text for word in ("mma", "cp.async", "tcgen05"))
            read = read_resources(binary, self._settings.target, kernel.shared, mix, kernel.function)
            self._read[key] = replace(read, straight=straight_instructions(text))
        return self._read[key]

    def _job(
        self,
        pool: Pool,
        stage: str,
        function: Callable[..., Passed | Failure],
        request: EvaluationRequest,
        arguments: Mapping[str, Any],
        profile: Profile | None = None,
        folder: Path | None = None,
    ) -> Passed | Outcome:
        """The value of one gate's job, or the outcome of a version that fails in it.

        profile: None: the pool's. folder: see `Pool.run`.
        """
        version = {"task": request.task, "source": request.source}
        limit_s = self._settings.timeout_s
        if stage == "build":  # what cannot be interpreted in that time mostly cannot in four times as much
            limit_s = seconds_for(limit_s, request.source)
        result = pool.run(function, {**version, **arguments}, timeout_s=limit_s, profile=profile, folder=folder)
        _log.debug("%s of a version of %s: %s in %.2f s", stage, request.task.name, result.status, result.seconds)
        return taken(stage, result, request.source, limit_s, self._settings.memory_mib)
