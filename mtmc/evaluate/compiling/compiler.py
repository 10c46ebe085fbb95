"""Compiling all kernels of one candidate in a few threads, into a cache that a GPU process will only read.

Triton's own asynchronous mode hands each distinct kernel over (`Compiler.submit`); LLVM and ptxas work outside of
Python's lock, so threads help. Besides the binary, the cache gets what a process that may start no other one would
lack: the C stub that some versions of Triton compile for each signature, and a mark where a kernel does not compile, so
that a tuner there passes it over as it would if it had tried. Runs in build workers only.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import threading
import types
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from mtmc.errors import EvaluatorError
from mtmc.evaluate.compiling.prebuilt import FAILED

_log = logging.getLogger(__name__)


class Pending:
    """A kernel that may still be compiling; whoever looks into it waits for it."""

    def __init__(self, future: Future[Any], finalize: Callable[[Any], None]) -> None:
        self._future = future
        self._finalize: Callable[[Any], None] | None = finalize

    def result(self, ignore_errors: bool = False) -> Any:
        """The compiled kernel. Raises: what the compiler raised."""
        kernel = self._future.result()
        finalize, self._finalize = self._finalize, None
        if finalize is not None:
            finalize(kernel)
        return kernel

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.result(), name)


class Compiler:
    """Takes the kernels that Triton would compile at their launch, from `install` on."""

    def __init__(self, threads: int) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="mtmc-compile")
        self._futures: dict[str, Future[Any]] = {}
        self._launchers = launchers()
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)  # by signature of a launcher

    @property
    def kernels(self) -> int:
        """How many distinct kernels were asked for."""
        return len(self._futures)

    def install(self) -> None:
        """Take all compilations of this thread."""
        from triton.runtime import _async_compile

        _async_compile.active_mode.set(self)

    def submit(self, key: str, compile_fn: Callable[[], Any], finalize_fn: Callable[[Any], None], *_: Any) -> Pending:
        """Triton's side: compile once for each key of the cache."""
        if key not in self._futures:
            self._futures[key] = self._executor.submit(self._compile, key, compile_fn)
        pending = Pending(self._futures[key], finalize_fn)
        if self._futures[key].done() and self._futures[key].exception() is None:
            pending.result()  # Triton keeps a finished kernel at hand, and computes no key at its next launch
        return pending

    def _compile(self, key: str, compile_fn: Callable[[], Any]) -> Any:
        try:
            kernel = compile_fn()
        except tunable_failures() as error:
            mark_failed(key, str(error) or type(error).__name__)
            raise
        if self._launchers.build is not None:
            with self._locks[str(kernel.src.signature)]:  # kernels that share a launcher are often compiled together
                self._launchers.build(kernel.src, kernel.metadata)
        return kernel


@functools.cache
def tunable_failures() -> tuple[type[Exception], ...]:
    """The exceptions at which Triton's tuner passes a configuration over."""
    from triton.compiler.errors import CompileTimeAssertionFailure
    from triton.runtime.errors import OutOfResources, PTXASError

    return (OutOfResources, CompileTimeAssertionFailure, PTXASError)


def mark_failed(key: str, message: str) -> None:
    """Note in the cache that the kernel with this key of the cache does not compile."""
    from triton.runtime.cache import get_cache_manager

    get_cache_manager(hashlib.sha256(key.encode()).hexdigest()).put(message, FAILED, binary=False)


class Launchers:
    """How a kernel's host side gets into the cache.

    build: called with a kernel's source and metadata after it was compiled; None where nothing is to be built.
    note: "built", "not needed", or why they cannot be built here.
    """

    def __init__(self, build: Callable[[Any, Any], Any] | None, note: str) -> None:
        self.build = build
        self.note = note


@functools.cache
def launchers() -> Launchers:
    """Build what launching needs besides the kernels (once in a process, for the active driver's target).

    Nothing that is built is loaded here. Raises: EvaluatorError if there is a CUDA driver and no C compiler that works.
    """
    import triton

    if triton.runtime.driver.active.get_current_target().backend != "cuda":
        return Launchers(None, "not needed")
    from triton.backends.nvidia import driver

    try:
        driver.library_dirs()
    except (AssertionError, OSError) as error:
        note = f"not built: this machine has no CUDA driver to link with ({str(error).splitlines()[0]})"
        _log.info("launchers of kernels are %s", note)
        return Launchers(None, note)
    _load_nothing()
    try:
        driver.CudaUtils()
    except Exception as error:
        raise EvaluatorError(
            f"Triton's launcher does not build: {type(error).__name__}: {error}; a C compiler and Python's headers are "
            "needed (apt-get install gcc python3-dev)"
        ) from error
    stubs = hasattr(driver, "make_launcher")  # writes C for one signature; later versions have one launcher for all
    return Launchers(driver.CudaLauncher if stubs else None, "built")


def _load_nothing() -> None:
    """Modules that Triton builds in this process stay on the disk: they are for others to load."""
    from triton.runtime import build

    class Unloaded(types.ModuleType):
        def __getattr__(self, name: str) -> Any:
            return None

    build._load_module_from_path = lambda name, path: Unloaded(name)
