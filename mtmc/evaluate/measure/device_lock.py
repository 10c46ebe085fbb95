"""Whose turn it is on a device, among processes of this machine."""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from mtmc.errors import CLOSED, EvaluatorError

NEXT = ".next"
"""Ending of the file whose lock the next one has: see `DeviceLock`."""


def shared_folder() -> Path:
    """The folder of this user's locks: all evaluators of the machine that are on one device take turns on it, or one would
    time kernels beside another's. Raises: EvaluatorError if it is somebody else's."""
    folder = Path(tempfile.gettempdir()) / f"mtmc-turns-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise EvaluatorError(f"{folder} belongs to somebody else: remove it, or set TMPDIR to a folder of your own")
    return folder


class DeviceLock:
    """The lock of a file, which all who use the device have open. A thread that has it may take it again.

    Whoever gives a lock up and takes it again at once has it before those that wait for it are awake, so a process that
    works in a loop keeps the others out. So there are two locks: the second is for who comes next. It is held by who waits
    for the first, so whoever gives the first up finds the second taken, and is no more than one among those who wait.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._next = os.open(path.with_name(path.name + NEXT), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._here = threading.RLock()
        self._depth = 0

    def __enter__(self) -> DeviceLock:
        """Raises: EvaluatorError if it was closed."""
        self._here.acquire()
        try:
            if not self._depth:
                self._take()
        except BaseException:
            self._here.release()
            raise
        self._depth += 1
        return self

    @contextmanager
    def at_once(self) -> Iterator[bool]:
        """Take the lock if nobody has it or waits for it; gives whether that was so."""
        mine = self._here.acquire(blocking=False)
        try:
            free = mine and not self._depth and self._taken_at_once()
            self._depth += int(free)
            try:
                yield free
            finally:
                self._depth -= int(free)
                if free and self._fd >= 0:
                    fcntl.flock(self._fd, fcntl.LOCK_UN)
        finally:
            if mine:
                self._here.release()

    def _taken_at_once(self) -> bool:
        if self._fd < 0:
            return False
        try:
            fcntl.flock(self._next, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            fcntl.flock(self._next, fcntl.LOCK_UN)
        return True

    def _take(self) -> None:
        self._lock(self._next)
        try:
            self._lock(self._fd)
        finally:
            if self._next >= 0:
                fcntl.flock(self._next, fcntl.LOCK_UN)

    def _lock(self, fd: int) -> None:
        """Raises: EvaluatorError if it was closed, before this or meanwhile."""
        try:
            if fd >= 0:
                fcntl.flock(fd, fcntl.LOCK_EX)
        except OSError:
            if self._fd >= 0:
                raise
        if self._fd < 0:
            raise EvaluatorError(CLOSED)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._depth -= 1
        if not self._depth and self._fd >= 0:  # whoever closes it while a thread has it gives the lock up
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        self._here.release()

    def close(self) -> None:
        """Give up the file, and the lock if it is held. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            os.close(self._next)
            self._fd = self._next = -1
