"""FolderLock: one process at a time works on a run, and once."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from mtmc.errors import RunError

LOCK_NAME = ".lock"

_FLOCK = "hhqqi4x"
"""Linux' `struct flock`: type, whence, start, length, process."""

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


def holder_since(folder: Path) -> float | None:
    """Since when a process of this machine has a run open, in seconds of `time.time`; None where none has. It takes no lock,
    so it keeps no process from beginning."""
    import fcntl

    path = folder / LOCK_NAME
    try:
        status = os.stat(path)
        if _identity(status) in _held:  # to close any handle of it would drop the own lock
            return status.st_mtime
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, *_ = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
        return None if kind == fcntl.F_UNLCK else status.st_mtime
    finally:
        os.close(descriptor)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
