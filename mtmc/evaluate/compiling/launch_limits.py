"""Limits of a launch: what a launcher and a driver check before a kernel runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mtmc.evaluate.compiling.launched import descriptor_base
from mtmc.evaluate.compiling.target import Target

MOST_PROGRAMS = (2**31 - 1, 65535, 65535)
"""Of each axis of a grid (CUDA C++ programming guide, technical specifications per compute capability)."""


def check_devices(values: Mapping[str, Any], kernel: str, device: str) -> None:
    """What a launcher checks of its pointers. values: arguments by name. device: where tensors must be, "cpu" or "cuda".

    Raises: ValueError.
    """
    import torch

    from mtmc.evaluate.compiling.pretended import on_host

    for name, given in values.items():
        value = given if isinstance(given, torch.Tensor) else descriptor_base(given)
        if value is None:
            continue
        if on_host(value) or (device == "cuda" and value.device.type != "cuda"):
            raise ValueError(f"argument {name} of {kernel} is a tensor on the {value.device}, not on a GPU")


def check_grid(size: list[int]) -> None:
    """Raises: ValueError for a grid that no CUDA driver takes: a launch fails there with "invalid argument"."""
    for axis, (count, most) in enumerate(zip(size, MOST_PROGRAMS, strict=False)):
        if count > most:
            raise ValueError(
                f"a grid of {tuple(size)} programs: axis {axis} has {count}, a GPU takes at most {most} there; put the "
                "larger number on axis 0"
            )


def check_resources(metadata: Any, target: Target) -> None:
    """What a driver checks when it loads a kernel. Raises: triton.OutOfResources."""
    from triton.runtime.errors import OutOfResources

    if metadata.shared > target.shared_limit:
        raise OutOfResources(metadata.shared, target.shared_limit, "shared memory")
    columns = getattr(metadata, "tmem_size", None) or 0
    if target.tensor_memory and columns > target.tensor_memory:
        raise OutOfResources(columns, target.tensor_memory, "tensor memory")
    threads = metadata.num_warps * target.warp_size
    if threads > target.max_threads:
        raise OutOfResources(threads, target.max_threads, "threads")
