"""Compilation targets, and the driver that stands in for a GPU of one of them.

A target is an instruction set with its limits per program; the product it sits in (bandwidth, clocks, number of
multiprocessors) is the hardware table's business.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
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


_SIZED, _REGISTER_COUNT = 0x04, 0x2F
"""In a cubin's ".nv.info": a format, and a kind of attribute."""


def target(name: str) -> Target:
    """Target by name. Raises: EvaluatorError if there is no such target."""
    if name not in TARGETS:
        raise EvaluatorError(f"unknown target {name!r}; known are {', '.join(TARGETS)}")
    return TARGETS[name]


def describe_device(index: int = 0) -> dict[str, dict[str, Any]]:
    """What a real GPU answers about itself, as JSON, for `install_driver`. Makes a CUDA context in this process.

    Returns: {"torch": of `torch.cuda.get_device_properties`, "triton": of Triton's driver}.
    """
    import torch
    import triton

    properties = torch.cuda.get_device_properties(index)
    named = {name: getattr(properties, name) for name in dir(properties) if not name.startswith("_")}
    return {
        "torch": {name: value for name, value in named.items() if isinstance(value, bool | int | float | str)},
        "triton": dict(triton.runtime.driver.active.utils.get_device_properties(index)),
    }


def install_driver(
    chosen: Target,
    multiprocessors: int,
    facts: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Make Triton in this process take itself to be on a GPU of this target, as far as compiling needs one.

    Also answers what candidates ask of their device (`torch.cuda.get_device_properties`, Triton's own properties), so
    that a persistent kernel sizes its grid for the target. multiprocessors: of the product estimated for.
    facts: what a real device says, see `describe_device`; it goes before what the target's own figures say.
    """
    import triton
    from triton.backends.compiler import GPUTarget

    gpu = GPUTarget(chosen.backend, chosen.arch, chosen.warp_size)
    properties = {
        "max_shared_mem": chosen.shared_limit,
        "multiprocessor_count": multiprocessors,
        "warpSize": chosen.warp_size,
        "max_num_regs": 65_536,
        **(facts or {}).get("triton", {}),
    }

    triton.runtime.driver.set_active(_lab_driver(gpu, chosen.max_threads, properties))
    _answer_device_questions(chosen, multiprocessors, (facts or {}).get("torch", {}))


def _lab_driver(gpu: Any, max_threads: int, properties: Mapping[str, Any]) -> Any:
    """A driver of Triton's that reports a target and has no device behind it. properties: as Triton's driver gives them."""
    import torch
    from triton.backends.driver import DriverBase

    def load_binary(name: str, binary: bytes, shared: int, device: int) -> tuple[None, None, int, int, int]:
        """What a driver says of a kernel when it loads it: module, function, registers, spills, most threads."""
        return None, None, registers(binary), 0, max_threads

    class LabDriver(DriverBase):
        """Reports a target; has no device behind it."""

        def __init__(self) -> None:
            self.torch_device = "cpu"  # where tensors are; a build for a GPU says otherwise
            self.launcher_cls = _no_launcher
            self.utils = SimpleNamespace(
                get_device_properties=lambda device=0: dict(properties),
                load_binary=load_binary,
                unload_module=lambda module: None,
            )

        @classmethod
        def is_active(cls) -> bool:
            return True

        def map_python_to_cpp_type(self, ty: str) -> str:
            return ty

        def get_current_target(self) -> Any:
            return gpu

        def get_active_torch_device(self) -> torch.device:
            return torch.device(self.torch_device)

        def get_device_interface(self) -> Any:
            return torch.cuda

        def get_benchmarker(self) -> Any:
            raise RuntimeError("there is no device to time on where a version is built")

        def get_current_device(self) -> int:
            return 0

        def get_current_stream(self, device: int | None = None) -> int:
            return 0

    return LabDriver()


def registers(binary: bytes) -> int:
    """Registers a thread of the kernel in a cubin takes; 0 for any other binary.

    The section ".nv.info" lists attributes, each one byte of format, one of kind, two of size or value, and the bytes of
    that size where the format says so; a register count holds a symbol and the number.
    """
    if binary[:5] != b"\x7fELF\x02":
        return 0
    (start,) = struct.unpack_from("<Q", binary, 40)
    size, count, names_at = struct.unpack_from("<HHH", binary, 58)
    sections = [struct.unpack_from("<IIQQQQ", binary, start + size * at) for at in range(count)]
    found = 0
    for name_at, _, _, _, offset, length in sections:
        name = sections[names_at][4] + name_at
        if binary[name : name + 9] != b".nv.info\0":
            continue
        at = offset
        while at + 4 <= offset + length:
            form, kind, extent = struct.unpack_from("<BBH", binary, at)
            if (form, kind, extent) == (_SIZED, _REGISTER_COUNT, 8):
                found = max(found, struct.unpack_from("<I", binary, at + 8)[0])
            at += 4 + (extent if form == _SIZED else 0)
    return found


def _no_launcher(src: Any, metadata: Any) -> Any:
    return lambda *arguments: None


def _answer_device_questions(chosen: Target, multiprocessors: int, facts: Mapping[str, Any]) -> None:
    import torch

    capability = divmod(chosen.arch, 10) if isinstance(chosen.arch, int) else (9, 4)
    properties = {
        "name": chosen.name,
        "major": capability[0],
        "minor": capability[1],
        "multi_processor_count": multiprocessors,
        "warp_size": chosen.warp_size,
        "shared_memory_per_block_optin": chosen.shared_limit,
        "max_threads_per_multi_processor": 2048,
        "regs_per_multiprocessor": 65_536,
        **facts,
    }
    answers = {
        "get_device_properties": lambda device=None: SimpleNamespace(**properties),
        "get_device_capability": lambda device=None: capability,
        "get_device_name": lambda device=None: properties["name"],
        "current_device": lambda: 0,
        "synchronize": lambda device=None: None,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
