"""A compiled kernel as plain data, and what its code must not do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtmc.errors import MtmcError
from mtmc.evaluate.compiling.cubin import clock_in


@dataclass(frozen=True)
class Kernel:
    """One distinct compiled kernel. line: of its `def` in the candidate. files: path by extension ("cubin", "ptx", ...).
    shared: bytes of shared memory of a program. function: of CUDA C++, its name in the cubin; "": a kernel in Triton or
    Gluon."""

    name: str
    hash: str
    line: int | None
    files: Mapping[str, str]
    shared: int
    num_warps: int
    num_stages: int
    num_ctas: int
    warp_size: int
    function: str = ""


class Forbidden(MtmcError):
    """A kernel whose code does what no kernel needs. line: of its `def` in the candidate."""

    def __init__(self, message: str, line: int | None) -> None:
        super().__init__(message)
        self.line = line


def kernel_of(compiled: Any, line: int | None, warp_size: int) -> Kernel:
    """What Triton has compiled. line: of its `def` in the candidate."""
    metadata = compiled.metadata
    return Kernel(
        metadata.name,
        compiled.hash,
        line,
        files={name.rpartition(".")[2]: str(path) for name, path in compiled.metadata_group.items()},
        shared=int(metadata.shared),
        num_warps=int(metadata.num_warps),
        num_stages=int(getattr(metadata, "num_stages", 1)),
        num_ctas=int(getattr(metadata, "num_ctas", 1)),
        warp_size=warp_size,
        function=getattr(metadata, "function", ""),
    )


def check_clocks(files: Mapping[str, str], name: str, line: int | None) -> None:
    """files: of a compiled kernel, by name. name, line: of the kernel in the candidate.

    Raises: Forbidden for a kernel that reads a clock.
    """
    path = next((path for file, path in files.items() if file.endswith(".ptx")), None)
    clock = None if path is None else clock_in(Path(path).read_text(encoding="utf-8", errors="replace"))
    if clock is not None:
        message = f"kernel {name} reads a clock ({clock}): no kernel needs it"
        raise Forbidden(f"{message}, so the version is refused without being run", line)
