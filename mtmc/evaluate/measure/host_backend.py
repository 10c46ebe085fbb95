"""The backend without a device: shared memory and host clocks, for testing the conversation. Its times mean nothing."""

from __future__ import annotations

import mmap
import os
import time
from typing import Any

import torch

from mtmc.evaluate.measure.flags import Flags


class HostWindow:
    """See `backend.Window`."""

    def __init__(self, backend: HostBackend, fd: int, size: int) -> None:
        self._backend, self._fd, self._size = backend, fd, size
        self._shown: torch.Tensor | None = None

    def show(self) -> torch.Tensor:
        """See `Window.show`."""
        if self._shown is None:
            self._shown = self._backend.open(self._fd, self._size)
        return self._shown

    def hide(self) -> None:
        """See `Window.hide`: the mapping ends with the last tensor that uses it."""
        self._shown = None


class HostBackend:
    """CPU tensors in files of shared memory. Work runs when it is asked for, so nothing can wait behind a gate."""

    asynchronous = False

    def __init__(self) -> None:
        self._flags: Flags | None = None

    @property
    def device(self) -> torch.device:
        """Where tensors live."""
        return torch.device("cpu")

    def create(self, size: int) -> tuple[int, torch.Tensor]:
        """See `DeviceBackend.create`."""
        fd = os.memfd_create("mtmc-arena")
        os.ftruncate(fd, max(size, 1))
        return fd, self.open(fd, size)

    def open(self, fd: int, size: int) -> torch.Tensor:
        """See `DeviceBackend.open`."""
        return torch.frombuffer(mmap.mmap(fd, max(size, 1)), dtype=torch.uint8)

    def window(self, fd: int, size: int) -> HostWindow:
        """See `DeviceBackend.window`."""
        return HostWindow(self, fd, size)

    def release(self, fd: int) -> None:
        """See `DeviceBackend.release`."""
        os.close(fd)

    def share(self, flags: Flags) -> None:
        """See `DeviceBackend.share`."""
        self._flags = flags

    def wait(self, word: int, serial: int) -> None:
        """See `DeviceBackend.wait`: blocks."""
        assert self._flags is not None
        while self._flags.words[word] < serial:
            time.sleep(0)

    def wait_everywhere(self, word: int, serial: int) -> None:
        """See `DeviceBackend.wait_everywhere`: there is no other stream."""
        self.wait(word, serial)

    def signal(self, word: int, serial: int) -> None:
        """See `DeviceBackend.signal`."""
        assert self._flags is not None
        self._flags.words[word] = serial

    def signal_after(self, word: int, serial: int, milliseconds: float) -> None:
        """See `DeviceBackend.signal_after`: blocks, as there is no device to do it."""
        time.sleep(milliseconds / 1e3)
        self.signal(word, serial)

    def mark(self) -> Any:
        """See `DeviceBackend.mark`."""
        return time.perf_counter()

    def elapsed_ms(self, first: Any, last: Any) -> float:
        """See `DeviceBackend.elapsed_ms`."""
        return float(last - first) * 1e3

    def join(self) -> None:
        """See `DeviceBackend.join`: nothing is ever in flight."""

    def beyond_ms(self, first: Any, last: Any) -> float:
        """See `DeviceBackend.beyond_ms`: there is no other stream."""
        return 0.0

    def synchronize(self) -> None:
        """See `DeviceBackend.synchronize`: nothing is ever in flight."""

    def flush(self) -> None:
        """See `DeviceBackend.flush`: a host's caches are left alone."""

    def leave_room(self) -> None:
        """See `DeviceBackend.leave_room`: the process's own limit does that."""

    def empty_cache(self) -> None:
        """Nothing: the host's allocator keeps none."""

    def warm_up(self) -> None:
        """See `DeviceBackend.warm_up`."""
