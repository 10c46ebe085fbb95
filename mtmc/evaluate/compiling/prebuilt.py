"""Finding every kernel in the cache: the side of a process that may compile nothing.

The build (`mtmc.evaluate.compiling.build`) compiles with fake tensors and no device; a candidate's process on a GPU must
come to the same keys of Triton's cache. They are made of: the text of the kernel and of the jitted functions it calls, with
the line each starts at (`know`) and the compile-time constants it reads; the types of its arguments, and what Triton sees in
their values (pointers and integers divisible by 16, integers equal to 1, None); its compile-time arguments and options;
and of each machine and process: the target, all of Triton's own files, ptxas, libdevice and the variables that change
compilation (`fingerprint`). Names of modules and folders are not part of them.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import json
import os
import types
from collections.abc import Mapping
from typing import Any

from mtmc.errors import MtmcError

WITHOUT_LINES = "TRITON_DISABLE_LINE_INFO"
ENVIRONMENT: Mapping[str, str] = {"TRITON_DEFAULT_FP_FUSION": "1", WITHOUT_LINES: "1"}
"""What building and launching processes must agree on. Without line numbers the machine code is the same, its file a
third as long, and compiling a tenth faster."""
FAILED = "mtmc_failed.txt"
"""File beside a kernel's binaries that says why there are none."""


class NotPrebuilt(MtmcError):
    """A kernel that is not in the cache, in a process that may not compile."""

    def __init__(self, kernel: str, signature: str) -> None:
        super().__init__(
            f"{kernel}({signature}) is launched in a specialisation that the build did not see: which kernels a version "
            "launches, and with which types, options and alignments, must hang on shapes alone, not on data, on time, "
            "or on being on a real device"
        )
        self.kernel = kernel
        self.signature = signature


def know(module: types.ModuleType) -> dict[str, int]:
    """Make the keys of a module's jitted functions independent of where in the file they stand.

    Triton's cache key holds the line a function starts at, so that a kernel would be compiled anew each time something
    above it changes. The search edits one kernel at a time: all start at line 1 as far as the key goes. To be called
    right after the module was executed, by whoever builds and by whoever launches.
    Returns: text of each function -> line of its `def` in the file.
    """
    from triton.runtime.jit import JITCallable

    classes = [value for value in vars(module).values() if isinstance(value, type)]
    own = [each for each in classes if each.__module__ == module.__name__]
    methods = [method for each in own for method in vars(each).values()]  # of Gluon's aggregates
    functions = {id(function): function for function in map(_jitted, [*vars(module).values(), *methods])}
    lines = {}
    for function in functions.values():
        if isinstance(function, JITCallable) and function.__module__ == module.__name__:
            lines[function.src] = _def_line(function)
            function.starting_line_number = 1
    return lines


def prime(target_name: str) -> str:
    """Do once what would start a process or read hundreds of megabytes later. Before the lock-down; touches no device.

    Returns: `fingerprint`.
    """
    from triton.runtime.jit import mangle_type

    from mtmc.evaluate.compiling.target import target

    mangle_type(1)  # its first call imports a hundred milliseconds' worth of modules
    if target(target_name).backend == "cuda":
        driver = importlib.import_module("triton.backends.nvidia.driver")
        with contextlib.suppress(AssertionError, OSError):  # no CUDA driver here: Triton will say so where it needs one
            driver.library_dirs()
    return fingerprint(target_name)


def fingerprint(target_name: str) -> str:
    """What this process's keys of the cache have in common: equal in two processes that are to share kernels."""
    from triton._C.libtriton import get_cache_invalidating_env_vars
    from triton.backends.compiler import GPUTarget
    from triton.compiler import make_backend
    from triton.runtime.build import platform_key
    from triton.runtime.cache import triton_key

    from mtmc.evaluate.compiling.target import target

    chosen = target(target_name)
    backend = make_backend(GPUTarget(chosen.backend, chosen.arch, chosen.warp_size))
    parts = (
        triton_key(),
        backend.hash(),
        backend.parse_options({}).hash(),
        str(sorted(get_cache_invalidating_env_vars().items())),
        platform_key(),
    )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def install() -> list[str]:
    """Let Triton in this process read its cache and never compile.

    A kernel that is not there raises `NotPrebuilt`; one that does not compile raises `PTXASError` where the build found
    so, which Triton's tuner passes over.
    Returns: a list that gets the message of every `NotPrebuilt`, also of those that a candidate swallows.
    """
    from triton import knobs
    from triton.runtime.jit import JITFunction

    refused: list[str] = []
    knobs.cache.manager_class = _read_only_cache(refused)
    original = JITFunction._do_compile

    @functools.wraps(original)
    def _do_compile(self: Any, key: Any, signature: Mapping[str, Any], *rest: Any, **kwargs: Any) -> Any:
        try:
            return original(self, key, signature, *rest, **kwargs)
        except NotPrebuilt as error:
            constants = next((item for item in rest if isinstance(item, dict)), {})
            found = NotPrebuilt(error.kernel, _described(signature, constants))
            refused[-1] = str(found)
            raise found from None

    JITFunction._do_compile = _do_compile
    return refused


def _described(signature: Mapping[str, Any], constants: Mapping[Any, Any]) -> str:
    """A signature as text, compile-time arguments with their values: "x_ptr: *fp32, n: i32, BLOCK=128"."""
    names = list(signature)
    values = {names[path[0]]: value for path, value in constants.items() if isinstance(path, tuple) and path}
    return ", ".join(
        f"{name}={getattr(values[name], '__name__', values[name])}" if name in values else f"{name}: {kind}"
        for name, kind in signature.items()
    )


def _read_only_cache(refused: list[str]) -> type:
    from triton import knobs
    from triton.runtime.cache import FileCacheManager
    from triton.runtime.errors import PTXASError

    def refuse(kernel: str, signature: str) -> NotPrebuilt:
        error = NotPrebuilt(kernel, signature)
        refused.append(str(error))
        return error

    class ReadOnlyCache(FileCacheManager):
        """Files that the build left, wherever the folder is mounted; writing is not an error, and does nothing."""

        def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
            self.key = key
            self.lock_path = None
            self.cache_dir = os.path.join(knobs.cache.dir, key)

        def get_file(self, filename: str) -> str | None:
            path: str | None = super().get_file(filename)
            if path is None and filename.endswith(".so"):
                raise refuse(filename.partition(".")[0], "the host's side of a launch")
            return path

        def get_group(self, filename: str) -> dict[str, str]:
            try:
                with open(self._make_path(f"__grp__{filename}"), encoding="utf-8") as group:
                    return {name: self._make_path(name) for name in json.load(group)["child_paths"]}
            except FileNotFoundError:
                pass
            if self.has_file(FAILED):
                with open(self._make_path(FAILED), encoding="utf-8") as failed:
                    raise PTXASError(failed.read())
            raise refuse(filename.removesuffix(".json"), "")

        def put(self, data: Any, filename: str, binary: bool = True) -> str:
            return self._make_path(filename)

    return ReadOnlyCache


def _jitted(value: Any) -> Any:
    """The jitted function under any number of autotune and heuristics decorators."""
    from triton.runtime.autotuner import Autotuner, Heuristics

    while isinstance(value, Autotuner | Heuristics):
        value = value.fn
    return value


def _def_line(function: Any) -> int:
    """Line of `def` in the file: Triton, like `inspect`, counts from the first decorator."""
    offset = next((at for at, line in enumerate(function.raw_src) if line.lstrip().startswith("def ")), 0)
    return int(function.starting_line_number) + offset
