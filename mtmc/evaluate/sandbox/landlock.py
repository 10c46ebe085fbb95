"""Landlock: a process restricts its own files, TCP ports, signals and abstract sockets, without any privilege.

Through the plain system calls of <linux/landlock.h>: newer versions (ABIs) restrict more, and each is used as far as the
kernel has it. A process can only add restrictions, and its children inherit them.
"""

from __future__ import annotations

import ctypes
import functools
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from mtmc.evaluate.sandbox.capabilities import libc, no_new_privileges
from mtmc.evaluate.sandbox.view import View

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # numbers of the system calls, the same on every architecture
_QUERY_VERSION = 1
_RULE_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_MAKE_DEVICES = 1 << 6 | 1 << 11  # character and block devices: never
_FIRST_ABI = (1 << 13) - 1
_OF_ABI = {2: _REFER, 3: _TRUNCATE, 5: _IOCTL_DEV}
_OF_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_NET_TCP = 1 << 0 | 1 << 1  # bind, connect
_SCOPE = 1 << 0 | 1 << 1  # abstract unix sockets, signals

_HARMLESS_DEVICES = tuple(map(Path, ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")))


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


@functools.lru_cache(maxsize=1)
def abi() -> int:
    """The kernel's Landlock version; 0 if it has none or has it switched off."""
    return max(0, int(libc().syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_QUERY_VERSION))))


def scopes_signals() -> bool:
    """Whether a restricted process can signal only what is restricted with it."""
    return abi() >= 6


def restrict(shown: View, writable: tuple[Path, ...] = ()) -> None:
    """Let this thread and its children read `shown`, /proc and `writable`, write `writable` and the harmless devices (and
    those of `shown`), use no TCP (ABI 4), and signal nothing but themselves (ABI 6).

    Raises: OSError if the kernel has no Landlock or refuses.
    """
    version = abi()
    if version == 0:
        raise OSError(38, "the kernel has no Landlock, or it is switched off")
    handled = _FIRST_ABI
    for least, right in _OF_ABI.items():
        handled |= right if version >= least else 0
    ruleset = _create(handled, version)
    try:
        _allow(ruleset, (*shown.readable, Path("/proc")), _READ & handled)
        _allow(ruleset, (*_HARMLESS_DEVICES, *shown.devices), (_OF_A_FILE | _READ_DIR) & ~_EXECUTE & handled)
        _allow(ruleset, writable, handled & ~_MAKE_DEVICES & ~_IOCTL_DEV)
        no_new_privileges()
        _check(libc().syscall(_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(0)), "restrict_self")
    finally:
        os.close(ruleset)


def _create(files: int, version: int) -> int:
    attribute = _Ruleset(files, _NET_TCP if version >= 4 else 0, _SCOPE if version >= 6 else 0)
    # An older kernel takes a shorter structure; what it does not know is zero.
    size = 8 if version < 4 else 16 if version < 6 else 24
    made = libc().syscall(_CREATE, ctypes.byref(attribute), ctypes.c_size_t(size), ctypes.c_uint32(0))
    return _check(made, "create_ruleset")


def _allow(ruleset: int, paths: Iterable[Path], rights: int) -> None:
    for path in paths:
        try:
            parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue  # not there, or not visible in this mount namespace: nothing to allow
        try:
            allowed = rights if stat.S_ISDIR(os.fstat(parent).st_mode) else rights & _OF_A_FILE
            rule = _PathBeneath(allowed, parent)
            kind = ctypes.c_int(_RULE_PATH_BENEATH)
            added = libc().syscall(_ADD, ctypes.c_int(ruleset), kind, ctypes.byref(rule), ctypes.c_uint32(0))
            _check(added, f"add_rule {path}")
        finally:
            os.close(parent)


def _check(result: int, what: str) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"landlock {what}: {os.strerror(ctypes.get_errno())}")
    return result
