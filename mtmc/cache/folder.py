"""Folders of the cache that belong to the user alone, and a file for each source that is loaded from there.

Whoever may write to such a folder decides what the user's processes execute. So a folder that is not the user's own, or
that others may write to, is refused, and a file in it is read only where the same holds for it.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import logging
import os
import stat
import tempfile
from pathlib import Path

from mtmc.errors import RunError
from mtmc.files import user_cache_folder, written_whole

_log = logging.getLogger(__name__)

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_HINT = "or name another folder in MTMC_CACHE"
SOURCES = "sources"


class Unusable(Exception):
    """A file of the cache that must not be used; says why."""


def private_folder(name: str) -> Path:
    """The folder of that name in the user's cache folder; it is made where it is not there, for the user alone.

    Raises: RunError if it cannot be made, or it belongs to somebody else, or others may write to it.
    """
    folder = user_cache_folder() / name
    try:
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.mkdir(exist_ok=True, mode=0o700)
    except OSError as error:
        reason = error.strerror or str(error)
        raise RunError(f"the cache folder {folder} cannot be made ({reason}): change its rights, {_HINT}") from error
    check_private(folder)
    return folder


def check_private(folder: Path) -> None:
    """Raises: RunError if the folder is a link, belongs to somebody else, or others may write to it."""
    try:
        status = folder.lstat()
    except OSError as error:
        raise RunError(
            f"the cache folder {folder} cannot be read ({error.strerror}): change its rights, {_HINT}"
        ) from error
    what = "is executed, so the folder must be your own"
    if not stat.S_ISDIR(status.st_mode):
        raise RunError(f"the cache folder {folder} is a link or a file, and what it holds {what}: remove it, {_HINT}")
    if status.st_uid != os.geteuid():
        owner = f"belongs to user {status.st_uid}, not to you ({os.geteuid()})"
        raise RunError(f"the cache folder {folder} {owner}, and what it holds {what}: remove it, {_HINT}")
    if status.st_mode & _OTHERS_WRITE:
        mode = f"{stat.S_IMODE(status.st_mode):o}"
        raise RunError(
            f"others may write to the cache folder {folder} (mode {mode}), and what it holds {what}: "
            f"look at what is in it, then chmod go-w {folder}, {_HINT}"
        )


def read_private(path: Path) -> bytes:
    """A file's content. Raises: FileNotFoundError; Unusable if it is a link, not the user's own, or others may write it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Unusable(f"it cannot be read: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or status.st_mode & _OTHERS_WRITE:
            mode = f"{stat.S_IMODE(status.st_mode):o}"
            raise Unusable(f"others may write to it (owner {status.st_uid}, mode {mode})")
        try:
            return file.read()
        except OSError as error:
            raise Unusable(f"it cannot be read: {error.strerror}") from error


def write_private(path: Path, content: bytes) -> None:
    """Write a file that the user alone may read and write, whole or not at all. Raises: RunError."""
    with written_whole(path) as draft:
        draft.touch(mode=0o600)
        draft.write_bytes(content)


def source_file(text: str) -> Path:
    """A file with this text, always the same one: Triton reads the text of its kernels back from there.

    It is in the user's cache folder. Where that cannot be written, or is not the user's alone, it is a temporary file that
    is removed at the end of the process.

    Raises: RunError if there can be neither.
    """
    content = text.encode("utf-8")
    try:
        path = private_folder(SOURCES) / source_name(text)
        with contextlib.suppress(FileNotFoundError, Unusable):
            if read_private(path) == content:
                os.utime(path)
                return path
        write_private(path, content)
        return path
    except (RunError, OSError) as error:
        _log.warning("a source is loaded from a temporary file: %s", error)
        return _temporary(content)


def source_name(text: str) -> str:
    """The name of the file of a source: a digest of the text, and usable as a module's name."""
    return f"mtmc_{hashlib.sha256(text.encode('utf-8')).hexdigest()[:24]}.py"


def _temporary(content: bytes) -> Path:
    try:
        descriptor, name = tempfile.mkstemp(prefix="mtmc_", suffix=".py")
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    except OSError as error:
        hint = "set MTMC_CACHE to a folder that you may write to"
        raise RunError(f"a source cannot be written to be loaded ({error.strerror}): {hint}") from error
    atexit.register(_remove, name, os.getpid())
    return Path(name)


def _remove(name: str, owner: int) -> None:
    """Remove a temporary file at the end of the process that made it; not at the end of one that was forked from it."""
    if os.getpid() == owner:
        with contextlib.suppress(OSError):
            os.unlink(name)
