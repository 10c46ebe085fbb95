"""FolderLock: one process at a time works on a run, and once."""

from __future__ import annotations

import os
from pathlib import Path

from mtmc.errors import RunError

LOCK_NAME = ".lock"

_held: set[tuple[int, int]] = set()
"""Lock files that this process holds, by device and inode: POSIX locks never keep a process out of its own files."""


class FolderLock:
    """A lock on a folder, held until `release` or the end of the process, however it ends.

    It is a POSIX lock, which children do not inherit: a worker that outlives its killed parent does not keep it. And it
    is on a file of its own: closing any handle of the SQLite file would drop SQLite's own locks. The file stays
    behind; only the lock on it means something.
    """

    def __init__(self, folder: Path) -> None:
        """Take the lock. Raises: RunError if the folder is locked already, or cannot be written."""
        import fcntl

        self._descriptor: int | None = None
        path = folder / LOCK_NAME
        if path.exists() and _identity(os.stat(path)) in _held:
            raise RunError(f"the run {folder} is open already in this process: close it first")
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            hint = "change its rights or choose another one"
            raise RunError(f"the run folder {folder} cannot be written ({error.strerror}): {hint}") from error
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            hint = "wait for it or end it"
            raise RunError(f"the run {folder} is open in another process (id {owner}): {hint}") from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._identity = _identity(os.fstat(descriptor))
        self._descriptor = descriptor
        _held.add(self._identity)

    def release(self) -> None:
        """Give the lock back. Idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
            _held.discard(self._identity)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
