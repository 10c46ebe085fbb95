"""Settings of a GPU worker, and of the pools that its processes are from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mtmc.evaluate.compiling.prebuilt import ENVIRONMENT
from mtmc.evaluate.measure.device_lock import shared_folder
from mtmc.evaluate.measure.jobs import warm
from mtmc.evaluate.pool.settings import PoolSettings
from mtmc.hardware import Hardware

if TYPE_CHECKING:
    from mtmc.evaluate.sandbox.lockdown import Mode

IDLE_S = 86400.0
FEW_QUEUES = {"CUDA_DEVICE_MAX_CONNECTIONS": "4", "CUDA_DEVICE_MAX_COPY_CONNECTIONS": "1"}
"""The driver makes one context at a time, the longer the more hardware queues it has, and every candidate needs a new one:
with the usual eight of each that is what limits the rate. Four are enough for candidates with side streams."""


@dataclass(frozen=True)
class GpuWorkerSettings:
    """One GPU. index: for messages. visible: what CUDA_VISIBLE_DEVICES must be for a process to see this GPU alone.

    cache: folder of the shared Triton cache. backend: "cuda", or "host" for the conversation without a GPU.
    spares: processes kept ready. reuse: candidates that a process may screen, one after another, as long as they are right.
    compilers: processes that torch.compile may take for one baseline. quiet, others: hardware threads on
    which is measured, and on which candidates' processes wait and compile; none: wherever there is room. compiling: folder
    of what torch.compile has found out for baselines that are not done yet; None: in `cache`.
    """

    index: str
    visible: str
    hardware: Hardware
    cache: Path
    backend: str = "cuda"
    memory_mib: int = 16384
    sandbox: Mode = "auto"
    spares: int = 5
    reuse: int = 1
    compilers: int = 1
    quiet: tuple[int, ...] = ()
    others: tuple[int, ...] = ()
    compiling: Path | None = None

    @property
    def turns(self) -> Path:
        """Folder of the lock of the device: of all evaluators there are on it, of this one alone where there is no device.
        Raises: EvaluatorError."""
        return shared_folder() if self.backend == "cuda" else self.cache


def pool_settings(settings: GpuWorkerSettings, folder: Path, locked: bool) -> PoolSettings:
    """Of the processes that candidates run in, or (not locked) that baselines do. folder: the worker's own."""
    environment = {
        **ENVIRONMENT,
        **FEW_QUEUES,
        "CUDA_VISIBLE_DEVICES": settings.visible,
        "TRITON_CACHE_DIR": str(settings.cache),
        "TRITON_DEFAULT_FP_FUSION": "1",
    }
    writable = () if locked else tuple({settings.cache, settings.turns, settings.compiling or settings.cache})
    if not locked:
        environment |= {
            "TORCHINDUCTOR_CACHE_DIR": str(settings.cache / "inductor"),
            "TORCHINDUCTOR_COMPILE_THREADS": str(settings.compilers),
            "TORCHINDUCTOR_WORKER_START": "fork",  # others import torch anew, each for seconds
        }
    if settings.backend != "cuda":
        environment |= {"CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "1"}
    return PoolSettings(
        warm,
        {"backend": settings.backend, "target_name": settings.hardware.target, "compiles": not locked},
        environment,
        workers=settings.spares + 2,
        timeout_s=IDLE_S,
        memory_mib=settings.memory_mib,
        sandbox=settings.sandbox,
        gpu=settings.backend == "cuda",
        readable=(settings.cache, folder),
        writable=writable,
        cores=settings.others,
        profile=None,
    )
