"""Capabilities: what makes root more than a user. A candidate's process has none, whoever started it."""

from __future__ import annotations

import ctypes
import functools
import os
import signal

_PR_CAPBSET_DROP = 24
_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_VERSION_3 = 0x20080522
_LAST = 63


def drop() -> None:
    """Give up every capability of this thread and the means to gain any (no_new_privs). Raises: OSError if refused."""
    no_new_privileges()
    for number in range(_LAST + 1):  # a program that is executed may not have them either
        if prctl(_PR_CAPBSET_DROP, number) != 0:
            break  # beyond the last one there is, or not this process's to drop
    prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
    none = (ctypes.c_uint32 * 6)()
    if libc().capset(header, none) != 0:
        raise OSError(ctypes.get_errno(), f"capset: {os.strerror(ctypes.get_errno())}")


def no_new_privileges() -> None:
    """No program that this thread executes gains a privilege. Raises: OSError if refused."""
    if prctl(_PR_SET_NO_NEW_PRIVS, 1) != 0:
        raise OSError(ctypes.get_errno(), f"no_new_privs: {os.strerror(ctypes.get_errno())}")


def end_with_parent() -> None:
    """Have this process killed when the thread that has started it ends, however that comes about."""
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def prctl(option: int, value: int, second: int = 0) -> int:
    """The system call of that name: 0, or -1 with `ctypes.get_errno()`."""
    rest = [ctypes.c_ulong(number) for number in (value, second, 0, 0)]
    return int(libc().prctl(ctypes.c_int(option), *rest))


@functools.lru_cache(maxsize=1)
def libc() -> ctypes.CDLL:
    """The C library, which keeps the number of the last error for `ctypes.get_errno()`."""
    return ctypes.CDLL(None, use_errno=True)
