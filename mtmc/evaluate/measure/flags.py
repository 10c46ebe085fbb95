"""The page of flags that the oracle, a candidate's process and the device see."""

from __future__ import annotations

import mmap
import os

import numpy as np

PAGE = 4096
GATE, DONE, OWN_GATE = 0, 16, 32
"""Places of flags in the page, in 32-bit words, each in a cache line of its own: opened by the oracle for the candidate's
stream, written by the candidate's stream when its outputs are handed over, and the oracle's gate for its own stream. What a
candidate writes here gains it nothing: the oracle reads no gate back, and stops its clock only when it has the outputs."""
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
        self._asked = self._opened = 0

    def reset(self) -> None:
        """As new: for the next candidate."""
        self.words[:] = 0
        self._asked = self._opened = 0

    def next_gate(self) -> int:
        """Serial of the next gate that something waits for. Kept here: what stands in the page is not read back."""
        self._asked += 1
        return self._asked

    def open_gate(self) -> None:
        """Let what waits for the last gate go on."""
        self.words[GATE] = self._opened = self._asked

    @property
    def forced(self) -> bool:
        """Whether the gate is not as it was left here."""
        return int(self.words[GATE]) != self._opened

    @property
    def shut(self) -> bool:
        """Whether the last gate has not been opened."""
        return self._opened < self._asked

    @property
    def address(self) -> int:
        """Where the page starts in this process."""
        return int(self.words.ctypes.data)
