"""What of the machine a worker has to see: Python, torch, triton, a C compiler, the GPU driver, and nothing of the user's.

A whitelist. Bubblewrap builds the root of the worker's file system from it, and Landlock allows reads of it alone. The
folder that Python was started in and the user's home are never in it as a whole: runs and keys lie there.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import importlib.util
import os
import pwd
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_LINKS_OR_FOLDERS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_NOT_OF_USR = ("src", "home", "local", "games", "tmp")
_OF_USR_LOCAL = ("bin", "sbin", "lib", "lib32", "lib64", "libexec", "include", "share", "nvidia", "cuda*", "gcc*")
_OTHERS = (
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/alternatives",
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/etc/localtime",
    "/opt/rocm*",
    "/opt/nvidia",
    "/nix/store",
    "/run/opengl-driver",
    "/sys/devices/system",
    "/sys/kernel/mm",
)
_GPU_ONLY = ("/sys", "/etc/nvidia", "/etc/OpenCL")
_DEVICES = (
    "/dev/nvidia[0-9]*",
    "/dev/nvidiactl",
    "/dev/nvidia-uvm",
    "/dev/nvidia-uvm-tools",
    "/dev/nvidia-modeset",
    "/dev/nvidia-caps",
    "/dev/nvidia-caps-imex-channels",
    "/dev/dri",
    "/dev/kfd",
    "/dev/dxg",
)
_GPU_FACTS = "/proc/driver/nvidia/gpus/*/information"
_TOOLS = ("gcc", "cc", "clang")
_LIBRARIES = ("torch", "triton", "numpy")


@dataclass(frozen=True)
class View:
    """What a worker sees.

    readable: files and folders, none below another. links: symbolic links at the root, as (path, target).
    devices: files and folders below /dev besides the harmless ones that every process has.
    """

    readable: tuple[Path, ...]
    links: tuple[tuple[Path, str], ...] = ()
    devices: tuple[Path, ...] = ()


def view(extra: Iterable[Path] = (), gpu: bool = False) -> View:
    """What a Python process like this one needs, and `extra`. gpu: with the driver's devices and /sys.

    Looked up once a process, and known to the processes that it forks: a lookup takes milliseconds.
    """
    return _view(tuple(extra), gpu)


@functools.lru_cache(maxsize=16)
def _view(extra: tuple[Path, ...], gpu: bool) -> View:
    links = [(path, os.readlink(path)) for path in map(Path, _LINKS_OR_FOLDERS) if path.is_symlink()]
    folders = [path for path in map(Path, _LINKS_OR_FOLDERS) if path.is_dir() and not path.is_symlink()]
    paths = [*folders, *_system(gpu), *_python(), *_tools(), *(path.absolute() for path in extra)]
    devices = _found(_DEVICES) if gpu else []
    return View(outermost(path for path in paths if path.exists()), tuple(links), tuple(devices))


def other_gpus(visible: str) -> tuple[Path, ...]:
    """Device files of the NVIDIA GPUs that a process with this CUDA_VISIBLE_DEVICES does not use.

    The driver opens every GPU it finds whenever a process starts with CUDA, and holds up all others meanwhile: what is
    not there costs nothing. Only where `visible` is one UUID, which stays right when the others are gone: else none.
    """
    found: dict[str, str] = {}
    for path in _found([_GPU_FACTS]):
        with contextlib.suppress(OSError):
            facts = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
            found[facts.get("GPU UUID", "").strip()] = facts.get("Device Minor", "").strip()
    if visible not in found:
        return ()
    return tuple(Path(f"/dev/nvidia{minor}") for uuid, minor in sorted(found.items()) if uuid != visible and minor)


def outermost(paths: Iterable[Path]) -> tuple[Path, ...]:
    """The paths that lie below no other of them, sorted."""
    kept: list[Path] = []
    for path in sorted(set(paths), key=lambda path: (len(path.parts), path)):
        if not any(path.is_relative_to(other) for other in kept):
            kept.append(path)
    return tuple(kept)


def _system(gpu: bool) -> list[Path]:
    usr, local = Path("/usr"), Path("/usr/local")
    children = sorted(usr.iterdir()) if usr.is_dir() else []
    parts = [path for path in children if path.name not in _NOT_OF_USR]
    return [
        *parts,
        *_found(f"{local}/{name}" for name in _OF_USR_LOCAL),
        *_found(_OTHERS),
        *(_found(_GPU_ONLY) if gpu else []),
    ]


def _found(patterns: Iterable[str]) -> list[Path]:
    return [Path(path) for pattern in patterns for path in sorted(glob.glob(pattern))]


def _python() -> list[Path]:
    """The interpreter, its libraries, and this package; of the other folders on the path those that hold installed ones."""
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    found = [Path(__file__).resolve().parents[2], Path(__file__).absolute().parents[2]]
    found += _hops(Path(sys.executable)) if sys.executable else []
    for prefix in prefixes:
        found += [Path(prefix), Path(prefix).resolve()] if prefix not in ("/", "/usr", "/usr/local") else []
    found += [Path(entry).absolute() for entry in sys.path if any(Path(entry or ".").glob("*.dist-info"))]
    for name in _LIBRARIES:
        spec = importlib.util.find_spec(name)
        found += [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec is not None else []
    return found


def _hops(path: Path) -> list[Path]:
    """A file and every file that its symbolic links lead through."""
    hops = [path]
    while path.is_symlink() and len(hops) < 40:
        path = Path(os.path.normpath(path.parent / os.readlink(path)))
        hops.append(path)
    return hops


def _tools() -> list[Path]:
    """The C compiler, which Triton compiles its launchers with, and the folders of LD_LIBRARY_PATH."""
    found: list[Path] = []
    for name in _TOOLS:
        where = shutil.which(name)
        if where is not None:
            path = Path(where).resolve()
            prefix = path.parent.parent
            whole = path.parent.name == "bin" and (prefix / "lib").is_dir() and not _is_private(prefix)
            found += [prefix if whole and prefix not in (Path("/"), Path("/usr"), Path("/usr/local")) else path]
    entries = [Path(entry) for entry in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if entry]
    return [*found, *(entry for entry in entries if entry.is_absolute() and not _is_private(entry))]


def _is_private(folder: Path) -> bool:
    """Whether a folder holds the user's home or the present folder, or is the root."""
    private = [Path.cwd(), Path(os.path.expanduser("~"))]
    with contextlib.suppress(KeyError):  # a user without an entry; in a worker HOME is another than the user's
        private.append(Path(pwd.getpwuid(os.getuid()).pw_dir))
    return any(path.is_relative_to(folder.resolve()) for path in private)
