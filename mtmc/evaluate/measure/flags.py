"""The page of flags that the oracle, a candidate's process and the device see."""

from __future__ import annotations

import mmap
import os

import numpy as np

PAGE = 4096
GATE, DONE, OWN_GATE = 0, 16, 32
"""Places of flags in the page, in 32-bit words, each in a cache line of its own: opened by the oracle for the candidate's
stream, written by the candidate's stream when its outputs lie in the arena, and the oracle's gate for its own stream."""
LED, HOST_LED, HOST_LAST = 48, 64, 80
"""Of calls in a row, see `mtmc.evaluate.measure.call_time`: written by the candidate's stream, and twice by its host."""


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
