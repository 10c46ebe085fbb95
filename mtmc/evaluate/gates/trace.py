"""Catching kernel launches: what a forward would run on a GPU, recorded and compiled but never run.

`Trace.install` replaces Triton's way of launching in the present process for good: it is meant for build workers, which
live for one candidate. Tensors are fake; their addresses are taken to be aligned as their storage offset says.
"""

from __future__ import annotations

import inspect
import types
from typing import Any

from mtmc.evaluate.gates.autotune import pin_autotuners
from mtmc.evaluate.gates.target import Target

_BASE_ADDRESS = 1 << 40
"""Pretended start of every storage: non-zero, and aligned to all that a compiler cares about."""


class Trace:
    """The launches of one forward.

    launches: in launch order, each {"kernel": name, "compiled": index into `kernels`, "grid": [x, y, z],
        "arguments": {name: number or {"dtype", "shape", "strides", "offset"}}, "constexprs": {name: value}}.
    kernels: each distinct compiled kernel, {"name", "hash", "line", "files": {extension: path}, "shared" (bytes),
        "num_warps", "num_stages", "num_ctas", "warp_size"}.
    autotuned: name of each autotuned kernel -> index of the configuration taken among the pruned ones.
    launching: name and first line of the kernel being launched now, or last.
    """

    def __init__(self, target: Target) -> None:
        self.launches: list[dict[str, Any]] = []
        self.kernels: list[dict[str, Any]] = []
        self.autotuned: dict[str, int] = {}
        self.launching: tuple[str, int | None] = ("", None)
        self._target = target
        self._lines: dict[str, int] = {}  # text of a jitted function -> line of its `def` in the candidate
        self._indices: dict[str, int] = {}  # hash of a compiled kernel -> index into kernels

    def install(self) -> None:
        """Catch all launches of this process from now on."""
        from torch._subclasses.fake_tensor import FakeTensor
        from triton.compiler.errors import CompileTimeAssertionFailure
        from triton.runtime.errors import OutOfResources, PTXASError
        from triton.runtime.jit import JITFunction

        original = JITFunction.run

        def run(jitted: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            self.launching = (jitted.__name__, self._lines.get(jitted.src))
            compiled = original(jitted, *args, grid=grid, warmup=True, **kwargs)
            self._check_resources(compiled.metadata)
            if not warmup:
                self._record(jitted, compiled, grid, args, kwargs)
            return compiled

        def data_ptr(tensor: Any) -> int:
            return _BASE_ADDRESS + int(tensor.storage_offset()) * int(tensor.element_size())

        JITFunction.run = run
        FakeTensor.data_ptr = data_ptr  # type: ignore[method-assign,assignment]
        pin_autotuners(self.autotuned, skip=(OutOfResources, CompileTimeAssertionFailure, PTXASError))

    def know(self, module: types.ModuleType) -> None:
        """Note where the jitted functions of a candidate stand, for diagnoses.

        Triton's cache key holds the line a function starts at, so that a kernel would be compiled anew each time
        something above it changes. The search edits one kernel at a time: all start at line 1 as far as the key goes.
        """
        from triton.runtime.jit import JITFunction

        for value in vars(module).values():
            function = _jitted(value)
            if isinstance(function, JITFunction) and function.__module__ == module.__name__:
                self._lines[function.src] = _def_line(function)
                function.starting_line_number = 1

    def locate(self, error: Any) -> tuple[int | None, str]:
        """Line in the candidate and message of a Triton compilation error: the innermost one that has both."""
        line: int | None = self.launching[1]
        message = ""
        link = error
        while link is not None:
            start = self._lines.get(getattr(link, "src", None) or "")
            within = getattr(getattr(link, "node", None), "lineno", None)
            if start is not None and within is not None:
                line = start + within - 1
            said = link.error_message if hasattr(link, "error_message") else f"{type(link).__name__}: {link}"
            message = said or message
            link = link.__cause__
        return line, message or str(error)

    def _record(self, jitted: Any, compiled: Any, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        names = jitted.signature.parameters
        bound = jitted.signature.bind(*args, **{k: v for k, v in kwargs.items() if k in names})
        bound.apply_defaults()
        values = dict(bound.arguments)
        size = tuple(grid(values)) if callable(grid) else tuple(grid)
        constexprs = {param.name for param in jitted.params if param.is_constexpr}
        self.launches.append(
            {
                "kernel": jitted.__name__,
                "compiled": self._index(jitted, compiled),
                "grid": [int(n) for n in size] + [1] * (3 - len(size)),
                "arguments": {n: _describe(v) for n, v in values.items() if n not in constexprs},
                "constexprs": {n: _describe(v) for n, v in values.items() if n in constexprs},
            }
        )

    def _index(self, jitted: Any, compiled: Any) -> int:
        if compiled.hash not in self._indices:
            self._indices[compiled.hash] = len(self.kernels)
            metadata = compiled.metadata
            self.kernels.append(
                {
                    "name": metadata.name,
                    "hash": compiled.hash,
                    "line": self._lines.get(jitted.src),
                    "files": {name.rpartition(".")[2]: str(path) for name, path in compiled.metadata_group.items()},
                    "shared": int(metadata.shared),
                    "num_warps": int(metadata.num_warps),
                    "num_stages": int(getattr(metadata, "num_stages", 1)),
                    "num_ctas": int(getattr(metadata, "num_ctas", 1)),
                    "warp_size": self._target.warp_size,
                }
            )
        return self._indices[compiled.hash]

    def _check_resources(self, metadata: Any) -> None:
        """What a driver checks when it loads a kernel. Raises: triton.OutOfResources."""
        from triton.runtime.errors import OutOfResources

        if metadata.shared > self._target.shared_limit:
            raise OutOfResources(metadata.shared, self._target.shared_limit, "shared memory")
        columns = getattr(metadata, "tmem_size", None) or 0
        if self._target.tensor_memory and columns > self._target.tensor_memory:
            raise OutOfResources(columns, self._target.tensor_memory, "tensor memory")
        threads = metadata.num_warps * self._target.warp_size
        if threads > self._target.max_threads:
            raise OutOfResources(threads, self._target.max_threads, "threads")


def _jitted(value: Any) -> Any:
    """The jitted function under any number of autotune and heuristics decorators."""
    from triton.runtime.autotuner import Autotuner, Heuristics

    while isinstance(value, Autotuner | Heuristics):
        value = value.fn
    return value


def _def_line(function: Any) -> int:
    """Line of `def` in the file: `inspect` counts from the first decorator."""
    lines, start = inspect.getsourcelines(function.fn)
    offset = next((at for at, line in enumerate(lines) if line.lstrip().startswith("def ")), 0)
    return start + offset


def _describe(value: Any) -> Any:
    """An argument as JSON: numbers as they are, tensors by type and layout, the rest by name."""
    import torch

    if isinstance(value, torch.Tensor):
        return {
            "dtype": str(value.dtype).removeprefix("torch."),
            "shape": list(value.shape),
            "strides": list(value.stride()),
            "offset": value.storage_offset(),
        }
    if value is None or isinstance(value, bool | int | float | str):
        return value
    inner = getattr(value, "value", None)
    return inner if isinstance(inner, bool | int | float | str) else str(value)
