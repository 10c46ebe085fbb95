"""Limits that the kernel keeps for each process (rlimits): they need no privilege, and without one nothing raises them."""

from __future__ import annotations

import resource

FILE_LIMIT = 256 << 20
"""Bytes any one file written by a job may have: far above a cubin, far below a disk."""
OPEN_FILES = 1024
_TASKS_OF_A_NAMESPACE = 4096


def limit_process(memory_mib: int, *, reserves: bool = False) -> None:
    """Limit what this process and each of its children may take, for good.

    memory_mib: MiB that it may map on top of what it has mapped now. reserves: it (or its GPU driver) reserves far more
        addresses than it uses, so that only what it may write to privately counts (RLIMIT_DATA, not RLIMIT_AS).
    Besides: no core file, no file above `FILE_LIMIT`, at most `OPEN_FILES` open files.
    """
    kind = resource.RLIMIT_DATA if reserves else resource.RLIMIT_AS
    _lower(kind, _mapped(5 if reserves else 0) + (memory_mib << 20))
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_FSIZE, FILE_LIMIT)
    _lower(resource.RLIMIT_NOFILE, OPEN_FILES)
    if _has_own_users():  # elsewhere it would count all that the user runs, and a busy user's jobs would fail
        _lower(resource.RLIMIT_NPROC, _TASKS_OF_A_NAMESPACE)


def _mapped(column: int) -> int:
    """Bytes that this process has mapped (column 0 of statm), or of them what it may write to (column 5)."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[column]) * resource.getpagesize()


def _has_own_users() -> bool:
    with open("/proc/self/uid_map", encoding="ascii") as mapping:
        return mapping.read().split()[-1] != str(2**32 - 1)


def _lower(kind: int, limit: int) -> None:
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(kind, (limit, limit))
