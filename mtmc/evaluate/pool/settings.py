"""What kind of worker a pool has, and what it may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mtmc.evaluate.sandbox.lockdown import Mode
from mtmc.evaluate.sandbox.seccomp import Profile


@dataclass(frozen=True)
class PoolSettings:
    """One kind of worker.

    warm: function of a module, called once in the warm process with `arguments`, which are plain JSON.
    environment: variables of the workers besides the few that are always there.
    workers: jobs at the same time. timeout_s: seconds a job may take, of the wall and of cores: one that other work keeps
        from its core loses nothing by that. patience: times `timeout_s` after which it is ended all the same, as one that
        sleeps; 1 counts the wall alone. memory_mib: MiB a job may map on top of what the warm process has mapped; all its
        processes together may use as much.
    profile: how a job is locked down before its function is called, see `mtmc.evaluate.sandbox.lockdown.lock_down`; None:
        not at all, for a trusted function that does it by itself (after it has opened a socket, say).
    sandbox: "auto", "strict" or "off". gpu: with the GPU's devices.
    readable, writable: files and folders that jobs may read besides what every worker needs, and write besides their own.
    cores: hardware threads that they keep to; none: all that there are.
    """

    warm: Callable[..., None]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    workers: int = 1
    timeout_s: float = 60.0
    memory_mib: int = 4096
    profile: Profile | None = "build"
    sandbox: Mode = "auto"
    gpu: bool = False
    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    cores: tuple[int, ...] = ()
    patience: float = 1.0
