"""What the oracle and a candidate's process share: device memory, a page of flags, and how work waits on a flag.

`CudaFabric` is the one that measures. `HostFabric` keeps the same conversation on CPU tensors, so that everything but
the device itself is tested on any machine; its times are host times and mean nothing.
"""

from __future__ import annotations

import mmap
import os
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from mtmc.errors import EvaluatorError

if TYPE_CHECKING:
    import torch

PAGE = 4096
GATE, DONE, OWN_GATE = 0, 16, 32
"""Places of flags in the page, in 32-bit words, each in a cache line of its own: opened by the oracle for the candidate's
stream, written by the candidate's stream when its outputs lie in the arena, and the oracle's gate for its own stream."""


class Fabric(Protocol):
    """One device, seen from one process.

    asynchronous: whether work can be enqueued behind a closed gate.
    """

    asynchronous: bool

    @property
    def device(self) -> torch.device:
        """Where tensors live."""
        ...

    def create(self, size: int) -> tuple[int, torch.Tensor]:
        """`size` bytes that another process can open: a file descriptor and the bytes (uint8)."""
        ...

    def open(self, fd: int, size: int) -> torch.Tensor:
        """The bytes behind a file descriptor that `create` gave in another process."""
        ...

    def release(self, fd: int) -> None:
        """Let go of memory that `create` made here. Nothing may use it any more."""
        ...

    def share(self, flags: Flags) -> None:
        """Make the page of flags visible to the device."""
        ...

    def wait(self, word: int, serial: int) -> None:
        """Work enqueued from now on starts when the flag is at least `serial`."""
        ...

    def signal(self, word: int, serial: int) -> None:
        """The flag becomes `serial` when all work enqueued so far is done."""
        ...

    def mark(self) -> Any:
        """A point in the present stream."""
        ...

    def elapsed_ms(self, first: Any, last: Any) -> float:
        """Milliseconds between two marks that have been reached."""
        ...

    def synchronize(self) -> None:
        """Wait for all work of this process on the device."""
        ...

    def flush(self) -> None:
        """Put all cached data of the device out of its last-level cache."""
        ...

    def warm_up(self) -> None:
        """Pay now for what the first use of the device costs."""
        ...


class Flags:
    """A page of 32-bit words in shared memory, made here or opened from a descriptor."""

    def __init__(self, fd: int | None = None) -> None:
        if fd is None:
            fd = os.memfd_create("mtmc-flags")
            os.ftruncate(fd, PAGE)
        self.fd = fd
        self._map = mmap.mmap(fd, PAGE)
        self.words = np.frombuffer(self._map, dtype=np.uint32)

    @property
    def address(self) -> int:
        """Where the page starts in this process."""
        return int(self.words.ctypes.data)


def open_fabric(name: str) -> Fabric:
    """The fabric of that name: "cuda" (the first visible GPU) or "host". Raises: EvaluatorError where there is none."""
    if name == "cuda":
        from mtmc.evaluate.measure.cuda_fabric import CudaFabric

        return CudaFabric()
    if name == "host":
        from mtmc.evaluate.measure.host_fabric import HostFabric

        return HostFabric()
    raise EvaluatorError(f"unknown fabric {name!r}; use cuda or host")
