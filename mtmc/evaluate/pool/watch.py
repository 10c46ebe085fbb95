"""What a job's processes take together: counted by the warm process, since rlimits hold for one process each.

A job's processes are its process group, which none of them can leave (see `mtmc.evaluate.sandbox.seccomp`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from typing import Literal

TASK_LIMIT = 256
"""Processes and threads that a job may have at a time: a compiler starts a handful one after another."""
WATCH_S = 0.05
"""Seconds between two counts, and more where counting is slow: it takes at most `_SHARE` of a core."""
_SHARE = 0.05

Excess = Literal["tasks", "memory"]
_Process = tuple[int, int, int, float]
"""Its number, its threads, its resident bytes, seconds of cores that it has taken."""


class Watch:
    """Counts the jobs' processes now and then.

    memory_mib: MiB that a job's processes may take together, on top of what they share with the warm process.
    """

    def __init__(self, memory_mib: int) -> None:
        self._limit = (memory_mib << 20) + _resident(os.getpid())
        self._next = 0.0
        self.worked_s: dict[int, float] = {}
        """Seconds of cores that each group's processes had taken when they were last counted."""

    def wait_s(self) -> float:
        """Seconds until the next count is due."""
        return max(0.0, self._next - time.monotonic())

    def begin(self) -> None:
        """The first job after a rest begins: most end before they are worth a count."""
        self._next = time.monotonic() + WATCH_S

    def look(self, groups: Collection[int]) -> dict[int, Excess]:
        """Groups that take more than they may; nothing if no count is due."""
        if time.monotonic() < self._next:
            return {}
        start = time.process_time()
        members = _members(groups)
        found: dict[int, Excess] = {}
        self.worked_s = {group: sum(each[3] for each in processes) for group, processes in members.items()}
        for group, processes in members.items():
            if sum(tasks for _, tasks, _, _ in processes) > TASK_LIMIT:
                found[group] = "tasks"
            elif self._holds_too_much(processes):
                found[group] = "memory"
        self._next = time.monotonic() + max(WATCH_S, (time.process_time() - start) / _SHARE)
        return found

    def _holds_too_much(self, processes: list[_Process]) -> bool:
        if sum(memory for _, _, memory, _ in processes) <= self._limit:
            return False
        # What several of them share was counted for each: now exactly, which takes longer.
        return sum(_proportional(pid, memory) for pid, _, memory, _ in processes) > self._limit


def _members(groups: Collection[int]) -> dict[int, list[_Process]]:
    """Processes by process group."""
    members: dict[int, list[_Process]] = {group: [] for group in groups}
    page, tick = os.sysconf("SC_PAGESIZE"), os.sysconf("SC_CLK_TCK")
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = _stat(name)
            group = int(fields[2]) if fields else 0
            if group in members:
                worked = sum(map(int, fields[11:15])) / tick  # its own, and that of children that have ended
                members[group].append((int(name), int(fields[17]), int(fields[21]) * page, worked))
    return members


def _stat(pid: str) -> list[str]:
    """Fields of /proc/PID/stat from the state on; none if the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            return stat.read().rpartition(")")[2].split()
    except OSError:
        return []


def _resident(pid: int) -> int:
    fields = _stat(str(pid))
    return int(fields[21]) * os.sysconf("SC_PAGESIZE") if fields else 0


def _proportional(pid: int, otherwise: int) -> int:
    """Bytes of a process's resident memory, what n processes share counted as one n-th."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as rollup:
            for line in rollup:
                if line.startswith("Pss:"):
                    return int(line.split()[1]) << 10
    except OSError:
        pass
    return otherwise
