"""Work for a device while nobody wants it, a piece at a time: whoever comes waits for one piece at most."""

from __future__ import annotations

import threading
from collections.abc import Callable

from mtmc.evaluate.measure.device_lock import DeviceLock
from mtmc.evaluate.pool.first_come import FirstCome

PAUSE_S = 0.2
"""Seconds until it is looked again whether a device is free that another evaluator has."""


class IdleWork:
    """Pieces of work in a thread of their own, each with the worker's lock and the device's, from when they are wanted until
    there are no more. piece: does one; whether there is another. It must raise nothing."""

    def __init__(self, lock: FirstCome, turns: DeviceLock, piece: Callable[[], bool]) -> None:
        self._lock, self._turns, self._piece = lock, turns, piece
        self._wanted, self._closed = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def want(self) -> None:
        """There is work, for when nobody wants the device. From any thread."""
        self._wanted.set()
        if self._thread is None and not self._closed.is_set():
            self._thread = threading.Thread(target=self._serve, name="mtmc-idle-work", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Begin no further piece, and wait for the one that is under way. Idempotent."""
        self._closed.set()
        self._wanted.set()
        if self._thread is not None:
            self._thread.join()

    def _serve(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            while not self._closed.is_set() and self._once():
                pass
            if self._closed.is_set():
                return

    def _once(self) -> bool:
        """One piece, if the device is free. Whether to look again."""
        with self._lock.at_once() as mine:
            if not mine:  # whoever has it says so at the end, see `want`
                return False
            with self._turns.at_once() as free:
                if free:
                    return self._piece()
        self._closed.wait(PAUSE_S)
        return True
