"""What a forked process does to itself before it runs a candidate; nothing of it can be undone."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from mtmc.errors import ConfigError, EvaluatorError
from mtmc.evaluate.sandbox import capabilities, landlock, seccomp
from mtmc.evaluate.sandbox.seccomp import Profile
from mtmc.evaluate.sandbox.view import view

Mode = Literal["auto", "strict", "off"]
MODES: tuple[Mode, ...] = ("auto", "strict", "off")

_OWN_FILES = Path("/proc/self")
MODE_VARIABLE = "MTMC_SANDBOX"
"""Environment variable by which a sandboxed process knows its mode; `launch.start` sets it."""


def sandbox_mode(text: str) -> Mode:
    """A setting's text as a mode. Raises: ConfigError if there is no such mode."""
    for mode in MODES:
        if text == mode:
            return mode
    raise ConfigError(f"evaluator.sandbox must be one of {', '.join(MODES)}, got {text!r}")


def lock_down(
    profile: Profile,
    writable: Sequence[Path] = (),
    readable: Sequence[Path] = (),
    *,
    gpu: bool = False,
    memfd: bool = False,
    mode: Mode | None = None,
) -> list[str]:
    """Restrict this process, all its threads to come and all its children, for good. Call it before the first thread.

    It is `lock_files` and then `lock_calls`: a process that needs its CUDA context between the two (its driver threads
    are then born inside the first, and the second reaches all threads) calls them one by one.

    profile: "build" lets it start processes (compilers); "candidate" does not, nor execute a program; "keeper" is "build"
        for a trusted process that holds a candidate in a child, and may kill it.
    writable: existing folders and files below which alone it may write from now on. readable: what it may read besides
        them and what every worker needs (`mtmc.evaluate.sandbox.view`).
    gpu: allow the GPU's devices. memfd: allow memfd_create. mode: as of `launch.start`; None: that of this process.

    Calling it again restricts further. Returns: names of the protections now active, of "capabilities", "landlock",
    "seccomp"; empty where the mode is "off".
    Raises: EvaluatorError if the mode is "strict" and one of them cannot be had.
    """
    active = lock_files(writable, readable, gpu=gpu, mode=mode)
    return [*active, *lock_calls(profile, memfd=memfd, mode=mode)]


def lock_files(
    writable: Sequence[Path] = (), readable: Sequence[Path] = (), *, gpu: bool = False, mode: Mode | None = None
) -> list[str]:
    """Drop all capabilities, and restrict files, TCP, signals and abstract sockets (Landlock); see `lock_down`.

    Reaches the calling thread and what it starts from now on.
    """
    shown = view(readable, gpu)
    if gpu:
        writable = (*writable, _OWN_FILES)  # the CUDA driver names its threads there, and does not start without
    return _try_each(
        mode,
        {
            "capabilities": capabilities.drop,
            "landlock": lambda: landlock.restrict(shown, tuple(writable)),
        },
    )


def lock_calls(profile: Profile, *, memfd: bool = False, mode: Mode | None = None) -> list[str]:
    """Refuse the system calls that no kernel needs (seccomp), in all threads of this process; see `lock_down`."""
    return _try_each(mode, {"seccomp": lambda: seccomp.install(profile, memfd=memfd)})


def _try_each(mode: Mode | None, means: dict[str, Callable[[], None]]) -> list[str]:
    mode = mode or os.environ.get(MODE_VARIABLE, "auto")  # type: ignore[assignment]
    active: list[str] = []
    for name, apply in means.items() if mode != "off" else ():
        try:
            apply()
            active.append(name)
        except OSError as error:
            if mode == "strict":
                raise EvaluatorError(f"sandbox=strict, and {name} cannot be had in a worker: {error}") from error
    return active
