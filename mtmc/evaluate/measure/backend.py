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


class Window(Protocol):
    """Bytes behind a file descriptor that this process sees only at times."""

    def show(self) -> torch.Tensor:
        """The bytes (uint8): mapped now if they are not, at an address that nobody can know before."""
        ...

    def hide(self) -> None:
        """Let go of the mapping, if there is one. Nothing may use it any more."""
        ...


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

    def window(self, fd: int, size: int) -> Window:
        """The bytes behind a descriptor of another process's `create`, hidden at first. The window owns the descriptor."""
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

    def wait_everywhere(self, word: int, serial: int) -> None:
        """As `wait`, for all streams that a candidate can have; what follows in the present one starts when all have got
        so far."""
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

    def join(self) -> None:
        """Let the present stream wait for all other work of this process, whatever stream it is on."""
        ...

    def beyond_ms(self, first: Any, last: Any) -> float:
        """Milliseconds between two marks with a `join` between them, without what a join takes where nothing is to be waited
        for."""
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
