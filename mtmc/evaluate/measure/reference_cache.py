"""What the oracle keeps of the tasks that it has had, so that searches that share a GPU do not pay for each other.

What is known of a task (whether it is admitted, its precision, its sizes) takes seconds to find and no memory of the
device: it is kept. Its models take memory and are made again when they are needed: they go where the task at work needs
the room, those that nobody asked for the longest first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import torch

from mtmc.evaluate.reference.admission import Admission

KEPT_TASKS = 32
"""A live module's task holds its weights on the host, so not all are kept for ever."""
KEPT_SHARE = 0.1
"""Share of the device's memory that models of other tasks may take always: of a task that is new nobody knows what it
needs. One that is known leaves as much free for the contexts of processes."""


@dataclass(frozen=True)
class Memory:
    """Bytes of a device. used: by this process's tensors. cached: held for later ones. total: all that it has."""

    used: int
    cached: int
    total: int


class Known(Protocol):
    """What is known of a task, see `reference_state.ReferenceState`."""

    admission: Admission

    def forget(self) -> None:
        """Drop the models."""
        ...


_Known = TypeVar("_Known", bound=Known)


def memory_of(device: torch.device) -> Memory:
    """That of a GPU. A host's is never crowded: it has no memory of its own here."""
    if device.type != "cuda":
        return Memory(0, 0, 1)
    used = torch.cuda.memory_allocated(device)
    cached = torch.cuda.memory_reserved(device) - used
    return Memory(used, cached, torch.cuda.get_device_properties(device).total_memory)


class ReferenceCache(Generic[_Known]):
    """Tasks by key. memory: that of the device now. empty: gives what is cached back to it."""

    def __init__(self, memory: Callable[[], Memory], empty: Callable[[], None]) -> None:
        self._memory, self._empty = memory, empty
        self._kept: OrderedDict[str, _Known] = OrderedDict()  # the last used ones last
        self._present: str | None = None

    def take(self, key: str, make: Callable[[], _Known], shared: int) -> _Known:
        """What is known of a task, found by `make` if it is new. shared: bytes of the device that are neither this
        process's tensors nor what a task needs. Raises: whatever `make` raises; nothing is kept then."""
        before, self._present = self._present, None
        known = self._kept.get(key)
        if known is None:
            while len(self._kept) >= KEPT_TASKS:
                self._kept.popitem(last=False)
            self._clear(key, None)
            self._empty()
            known = self._kept[key] = make()
        elif key != before:
            self._clear(key, shared + known.admission.bytes_needed)
            memory = self._memory()
            if memory.cached > KEPT_SHARE * memory.total:  # or the candidate's process finds too little
                self._empty()
        self._kept.move_to_end(key)
        self._present = key
        return known

    @property
    def last(self) -> _Known | None:
        """What is known of the task that was taken last; None where that failed."""
        return None if self._present is None else self._kept[self._present]

    def clear(self) -> None:
        """Drop all models."""
        for known in self._kept.values():
            known.forget()
        self._empty()

    def _clear(self, key: str, needed: int | None) -> None:
        """Drop models of other tasks as far as `key` needs it. needed: bytes; None where that is not known."""
        for other, known in self._kept.items():
            memory = self._memory()
            if memory.used <= KEPT_SHARE * memory.total:
                return
            if needed is not None and memory.used + needed <= (1 - KEPT_SHARE) * memory.total:
                return
            if other != key:
                known.forget()
