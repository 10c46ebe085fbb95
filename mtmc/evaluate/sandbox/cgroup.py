"""Control groups (version 2): one limit for all processes of a worker together, and one switch that ends them all.

Only where this process may make one: as root outside of a container, or in a systemd user session. Elsewhere the pool
counts for itself (`mtmc.evaluate.pool.watch`).
"""

from __future__ import annotations

import contextlib
import itertools
import os
from dataclasses import dataclass
from pathlib import Path

_serial = itertools.count()


@dataclass(frozen=True)
class Cgroup:
    """A control group of one worker.

    home: group of the process that made it. limits: the files of the limits that it keeps: "pids.max", "memory.max".
    """

    path: Path
    home: Path
    limits: tuple[str, ...]

    def end(self) -> None:
        """Kill what is in it and remove it. Idempotent."""
        with contextlib.suppress(OSError):
            (self.path / "cgroup.kill").write_text("1")
        with contextlib.suppress(OSError):
            self.path.rmdir()


def make(tasks: int | None = None, memory_mib: int | None = None, own: Path | None = None) -> Cgroup | None:
    """A new control group, beside or below this process's own; None where there cannot be one.

    tasks: processes and threads in it. memory_mib: MiB of all of them together. own: for tests; found by itself.
    """
    own = own or own_group()
    if own is None:
        return None
    for base in (own, own.parent):
        if not (base / "cgroup.procs").exists():
            continue
        path = base / f"mtmc-{os.getpid()}-{next(_serial)}"
        with contextlib.suppress(OSError):  # only root outside of containers may; a session has them given already
            (base / "cgroup.subtree_control").write_text("+pids +memory")
        try:
            path.mkdir()
        except OSError:
            continue
        wanted = {"pids.max": tasks, "memory.max": memory_mib << 20 if memory_mib else None}
        kept = tuple(name for name, value in wanted.items() if value and _write(path / name, str(value)))
        if kept and (path / "cgroup.kill").exists() and _can_move(path, base):
            return Cgroup(path, own, kept)
        with contextlib.suppress(OSError):
            path.rmdir()
    return None


def own_group() -> Path | None:
    """Folder of this process's own control group; None if version 2 is not mounted."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return None
    inside = next((line[3:] for line in lines if line.startswith("0::")), None)
    for line in mounts:
        left, _, right = line.partition(" - ")
        root, point = left.split()[3:5]
        if inside is not None and right.startswith("cgroup2 ") and (inside + "/").startswith(root.rstrip("/") + "/"):
            return Path(point) / inside[len(root.rstrip("/")) :].lstrip("/")
    return None


def _can_move(path: Path, base: Path) -> bool:
    """Whether a process may be moved there: it takes the right to write to both groups, and to the one above both."""
    return os.access(path / "cgroup.procs", os.W_OK) and os.access(base / "cgroup.procs", os.W_OK)


def _write(path: Path, text: str) -> bool:
    # Opened without O_CREAT: where the controller is not there, its file is not, and none may be made.
    try:
        descriptor = os.open(path, os.O_WRONLY)
    except OSError:
        return False
    try:
        return os.write(descriptor, text.encode()) > 0
    except OSError:
        return False
    finally:
        os.close(descriptor)
