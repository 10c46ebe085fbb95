"""What the oracle and a candidate's process share: device memory, a page of flags, and how work waits on a flag.

`CudaBackend` is the one that measures. `HostBackend` keeps the same conversation on CPU tensors, so that everything but
the device itself is tested on any machine; its times are host times and mean nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from mtmc.errors import EvaluatorError
from mtmc.evaluate.measure.flags import Flags

if TYPE_CHECKING:
    import torch


class DeviceBackend(Protocol):
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

    def signal_after(self, word: int, serial: int, milliseconds: float) -> None:
        """The flag becomes `serial` after at least so long, whatever this process's host and stream wait for."""
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

    def leave_room(self) -> None:
        """Let torch in this process take only so much memory that the others on the device can go on."""
        ...

    def empty_cache(self) -> None:
        """Give memory that nothing uses any more back to the device."""
        ...

    def warm_up(self) -> None:
        """Pay now for what the first use of the device costs."""
        ...


def open_backend(name: str) -> DeviceBackend:
    """The backend of that name: "cuda" (the first visible GPU) or "host". Raises: EvaluatorError where there is none."""
    if name == "cuda":
        from mtmc.evaluate.measure.cuda_backend import CudaBackend

        return CudaBackend()
    if name == "host":
        from mtmc.evaluate.measure.host_backend import HostBackend

        return HostBackend()
    raise EvaluatorError(f"unknown backend {name!r}; use cuda or host")
