"""Start a Python process inside the sandbox."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from mtmc.errors import EvaluatorError
from mtmc.evaluate.sandbox import bubblewrap, cgroup
from mtmc.evaluate.sandbox.cgroup import Cgroup
from mtmc.evaluate.sandbox.lockdown import MODE_VARIABLE, Mode
from mtmc.evaluate.sandbox.view import other_gpus

END_S = 5.0
"""Seconds that the end of what runs inside is waited for."""

_KEPT_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "SYSTEMROOT", "LLVM_PROFILE_FILE")

_PRELUDE = "import sys\nsys.path[:] = {path!r}\n"

# Bubblewrap ends with the thread that starts it, and the thread that starts a worker may end at any time: so a shell
# starts it. The shell also removes the folder, which is a mount point inside and cannot be removed there.
_KEEPER = """
folder=$1 group=$2 home=$3
shift 3
[ -z "$group" ] || echo $$ > "$group/cgroup.procs"
"$@"
status=$?
[ -z "$group" ] || { echo $$ > "$home/cgroup.procs"; rmdir -- "$group"; } 2> /dev/null
rmdir -- "$folder" 2> /dev/null
exit $status
"""
_JOIN = 'echo $$ > "$1/cgroup.procs"; shift; exec "$@"'


class Sandboxed(subprocess.Popen[bytes]):
    """A process that `start` made.

    namespaced: whether it has its own process numbers, so that those that it tells are not those of this process, and so
    that killing it kills everything that it started.
    """

    namespaced: bool = False
    group: Cgroup | None = None

    def end(self) -> None:
        """Kill it with all that runs inside, and wait for these, for `END_S` seconds at most. Idempotent."""
        inside = _descendants(self.pid) if self.poll() is None else []
        if self.poll() is None:
            self.kill()
        if self.group is not None:
            self.group.end()
        self.wait()
        # What it started dies with it, but only soon: the kernel passes the signal on from one to the next.
        deadline = time.monotonic() + END_S
        while any(map(_runs, inside)) and time.monotonic() < deadline:
            time.sleep(0.002)


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _runs(process: psutil.Process) -> bool:
    """Whether it has not ended; one that nobody has waited for yet has."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def start(
    code: str,
    folder: Path,
    *,
    mode: Mode = "auto",
    environment: Mapping[str, str] | None = None,
    fds: Sequence[int] = (),
    readable: Sequence[Path] = (),
    writable: Sequence[Path] = (),
    gpu: bool = False,
    tasks: int | None = None,
    memory_mib: int | None = None,
    before: Sequence[str] = (),
) -> Sandboxed:
    """Run Python `code` as a new process with this process's `sys.path`, inside what protections `mode` asks for.

    Where bubblewrap works the process has its own network, process, IPC and host name spaces, no capability, and a file
    system of its own: read-only what Python, torch, triton and the C compiler need (`mtmc.evaluate.sandbox.view`), a
    private /tmp and /dev/shm, and the folders named here. Elsewhere ("auto") it starts without, and `lock_down` in the
    processes that it forks is what holds them. Its standard output and error go to the file server.log in `folder`.

    The process sees the death of this one as the end of a socket or pipe among `fds`, and must end itself then.

    folder: exists; writable, the present folder of the process, its HOME and TMPDIR. Inside it cannot be removed, only
        emptied; it is removed at the process's end if it is empty then.
    mode: "auto" uses what works, "strict" refuses to start without, "off" starts a plain process (which still gets the
        nearly empty environment).
    environment: variables besides the few that are always there. fds: descriptors that it inherits under their numbers.
    readable, writable: more files and folders that it sees (at the same path) and may write to.
    gpu: with the GPU's devices; CUDA_VISIBLE_DEVICES then comes from `environment` or is unset. Where it is a UUID, other
        GPUs are not there.
    before: a command that runs inside and starts the process itself, a profiler say; its words stand before the process's.
    tasks, memory_mib: most processes and threads, and MiB, of all that it runs together, where a control group can be
        made; no harm where none can.

    Raises: EvaluatorError if mode is "strict" and bubblewrap does not work (`mtmc.evaluate.sandbox.protection.require` looks
    at every protection).
    """
    reason = bubblewrap.problem(gpu) if mode != "off" else None
    if mode == "strict" and reason is not None:
        raise EvaluatorError(f"sandbox=strict, and a worker cannot have name spaces of its own here: {reason}")
    command = [
        *before,
        sys.executable,
        "-c",
        _PRELUDE.format(path=[os.path.abspath(entry) for entry in sys.path]) + code,
    ]
    namespaced = mode != "off" and reason is None
    group = cgroup.make(tasks, memory_mib) if mode != "off" and (tasks or memory_mib) else None
    paths = (str(group.path), str(group.home)) if group is not None else ("", "")
    if namespaced:
        hidden = other_gpus((environment or {}).get("CUDA_VISIBLE_DEVICES", "")) if gpu else ()
        command = bubblewrap.command(command, folder, readable, writable, gpu, hidden)
        command = ["/bin/sh", "-c", _KEEPER, "sh", str(folder), *paths, *command]
    elif group is not None:
        command = ["/bin/sh", "-c", _JOIN, "sh", paths[0], *command]
    with open(folder / "server.log", "wb") as log:
        process = Sandboxed(
            command,
            env={**clean_environment(folder, gpu), **(environment or {}), MODE_VARIABLE: mode},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=list(fds),
            start_new_session=True,
        )
    process.namespaced, process.group = namespaced, group
    return process


def clean_environment(folder: Path, gpu: bool = False) -> dict[str, str]:
    """What a candidate may see of the environment: nothing of the user's, above all no keys."""
    kept = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
    hidden = {} if gpu else {"CUDA_VISIBLE_DEVICES": ""}
    return {
        **kept,
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "TRITON_CACHE_DIR": os.path.join(folder, "triton"),
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        **hidden,
    }
