"""Compilation targets, and the driver that stands in for a GPU of one of them.

A target is an instruction set with its limits per program; the product it sits in (bandwidth, clocks, number of
multiprocessors) is the hardware table's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from mtmc.errors import EvaluatorError


@dataclass(frozen=True)
class Target:
    """One instruction set.

    arch: as Triton's `GPUTarget` wants it: 90, or "gfx942".
    shared_limit: bytes of shared memory that one program can have (opt-in limit).
    tensor_memory: columns of tensor memory of one program, 0 where there is none.
    max_threads: threads in one program.
    """

    name: str
    backend: str
    arch: int | str
    warp_size: int
    shared_limit: int
    tensor_memory: int = 0
    max_threads: int = 1024


# Shared memory per block (opt-in): CUDA C++ Programming Guide, table "Technical Specifications per Compute Capability";
# gfx942: 64 KiB of LDS per workgroup (AMD CDNA 3 instruction set guide). Tensor memory: PTX ISA, 512 columns per CTA.
TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("sm_80", "cuda", 80, 32, 166_912),
        Target("sm_89", "cuda", 89, 32, 101_376),
        Target("sm_90", "cuda", 90, 32, 232_448),
        Target("sm_100", "cuda", 100, 32, 232_448, tensor_memory=512),
        Target("gfx942", "hip", "gfx942", 64, 65_536),
    )
}


def target(name: str) -> Target:
    """Target by name. Raises: EvaluatorError if there is no such target."""
    if name not in TARGETS:
        raise EvaluatorError(f"unknown target {name!r}; known are {', '.join(TARGETS)}")
    return TARGETS[name]


def install_driver(chosen: Target, multiprocessors: int) -> None:
    """Make Triton in this process believe in a GPU of this target, as far as compiling needs one.

    Also answers what candidates ask of their device (`torch.cuda.get_device_properties`, Triton's own properties), so
    that a persistent kernel sizes its grid for the target. multiprocessors: of the product estimated for.
    """
    import torch
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.backends.driver import DriverBase

    gpu = GPUTarget(chosen.backend, chosen.arch, chosen.warp_size)
    properties = {
        "max_shared_mem": chosen.shared_limit,
        "multiprocessor_count": multiprocessors,
        "warpSize": chosen.warp_size,
        "max_num_regs": 65_536,
    }

    class LabDriver(DriverBase):
        """Reports a target; has no device behind it."""

        def __init__(self) -> None:
            self.utils = SimpleNamespace(
                get_device_properties=lambda device=0: dict(properties), unload_module=lambda module: None
            )

        @classmethod
        def is_active(cls) -> bool:
            return True

        def map_python_to_cpp_type(self, ty: str) -> str:
            return ty

        def get_current_target(self) -> Any:
            return gpu

        def get_active_torch_device(self) -> torch.device:
            return torch.device("cpu")

        def get_benchmarker(self) -> Any:
            raise RuntimeError("the lab has no device to time on")

        def get_current_device(self) -> int:
            return 0

        def get_current_stream(self, device: int | None = None) -> int:
            return 0

    triton.runtime.driver.set_active(LabDriver())
    _answer_device_questions(chosen, multiprocessors)


def _answer_device_questions(chosen: Target, multiprocessors: int) -> None:
    import torch

    capability = divmod(chosen.arch, 10) if isinstance(chosen.arch, int) else (9, 4)
    properties = SimpleNamespace(
        name=chosen.name,
        major=capability[0],
        minor=capability[1],
        multi_processor_count=multiprocessors,
        warp_size=chosen.warp_size,
        shared_memory_per_block_optin=chosen.shared_limit,
        max_threads_per_multi_processor=2048,
        regs_per_multiprocessor=65_536,
    )
    answers = {
        "get_device_properties": lambda device=None: properties,
        "get_device_capability": lambda device=None: capability,
        "get_device_name": lambda device=None: chosen.name,
        "current_device": lambda: 0,
        "synchronize": lambda device=None: None,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
