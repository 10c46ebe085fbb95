"""Launches of interpreted Triton kernels, caught where the host asks for them, with every argument by its name."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mtmc.errors import EvaluatorError
from mtmc.task.tensors import flat_tensors


@dataclass(frozen=True)
class Launched:
    """A launch as the host has asked for it. bound: every argument by name. size: of the grid, x, y, z.

    function: see `mtmc.evaluate.loading.jitted.digest`.
    """

    jitted: Any
    bound: Mapping[str, Any]
    size: tuple[int, int, int]
    num_warps: int
    num_stages: int
    function: str = ""

    @property
    def tensors(self) -> list[Any]:
        """Tensors among the arguments, those of descriptors too."""
        return flat_tensors([getattr(v, "base", v) if not _is_tensor(v) else v for v in self.bound.values()])


def launched_as(parts: Any, jitted: Any, args: Any, kwargs: Any, grid: Any, hooks: bool = True) -> Launched:
    """A launch from what the host has called it with. hooks: whether to call what the kernel has to run before each."""
    names = inspect.getfullargspec(jitted.fn)
    named = {k: v for k, v in kwargs.items() if k in names.args or k in names.kwonlyargs}
    bound = inspect.getcallargs(jitted.fn, *args, **named)
    for hook in jitted.pre_run_hooks if hooks else ():
        hook(*args, **kwargs)
    size = tuple(int(n) for n in (grid({**bound, **kwargs}) if callable(grid) else grid))
    x, y, z = size + (1,) * (3 - len(size))
    return Launched(jitted, bound, (x, y, z), int(kwargs.get("num_warps", 4)), int(kwargs.get("num_stages", 3)))


def constexprs_of(parts: Any, jitted: Any) -> set[str]:
    """Names of a kernel's arguments that are constants to the compiler."""
    return set(parts.GridExecutor(jitted.fn, jitted.arg_names, ()).constexprs)


@contextlib.contextmanager
def intercepted(parts: Any, launch: Callable[[Any, Any, Any, Any, Any], None]) -> Iterator[None]:
    """While open, `launch(jitted, args, kwargs, grid, original)` takes the place of running interpreted kernels.

    original: what runs one. Autotuned kernels take their first configuration, where none has been pinned.
    """
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    from mtmc.evaluate.compiling.autotune import pin_autotuners

    function = parts.InterpretedFunction
    kept = [
        (function, "run", function.run),
        (JITFunction, "run", JITFunction.run),
        (Autotuner, "run", Autotuner.run),
    ]

    def run(jitted: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        if not warmup:
            launch(jitted, args, kwargs, grid, kept[0][2])

    def refuse(jitted: Any, *args: Any, **kwargs: Any) -> None:
        raise EvaluatorError(
            f"kernel {jitted.__name__} was decorated without interpretation; set TRITON_INTERPRET=1 before the "
            "file that defines it is loaded"
        )

    function.run, JITFunction.run = run, refuse
    if Autotuner.run.__module__ == Autotuner.__module__:  # nobody has pinned a configuration yet
        pin_autotuners({})
    try:
        yield
    finally:
        for owner, name, original in kept:
            setattr(owner, name, original)


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "untyped_storage")
