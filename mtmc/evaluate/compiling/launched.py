"""One launch as plain data: by which kernel, over which grid, with which arguments.

It is noted where a version is compiled and again where its work is counted, in two processes, and both must be the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_ADDRESS = 1 << 32
"""Larger integers are taken for addresses, which are made up where tensors have no memory."""


@dataclass(frozen=True)
class Layout:
    """A tensor among the arguments of a launch, in elements. dtype: without "torch."."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


Argument = Layout | bool | int | float | str | None


@dataclass(frozen=True)
class Launch:
    """One launch. kernel: its name. compiled: index of what was compiled for it, see `Kernel`. grid: x, y, z.

    function: of which text it is, see `mtmc.evaluate.loading.jitted.digest`.
    """

    kernel: str
    compiled: int
    grid: tuple[int, int, int]
    arguments: Mapping[str, Argument]
    constexprs: Mapping[str, Argument]
    function: str = ""

    @property
    def texts(self) -> dict[str, str]:
        """Every argument as a text, see `as_text`."""
        return {name: as_text(value) for name, value in {**self.arguments, **self.constexprs}.items()}


def described(value: Any) -> Argument:
    """An argument as plain data: numbers as they are, tensors and descriptors by type and layout, the rest by name."""
    import torch

    if isinstance(value, torch.Tensor):
        name = str(value.dtype).removeprefix("torch.")
        return Layout(name, tuple(value.shape), tuple(value.stride()), int(value.storage_offset()))
    if value is None or isinstance(value, bool | int | float | str):
        return value
    base = descriptor_base(value)
    if base is not None:
        name, shape, strides = str(base.dtype).removeprefix("torch."), value.shape, value.strides
        return Layout(name, tuple(map(int, shape)), tuple(map(int, strides)), int(base.storage_offset()))
    inner = getattr(value, "value", None)
    return inner if isinstance(inner, bool | int | float | str) else str(value)


def descriptor_base(value: Any) -> Any:
    """The tensor that a tensor descriptor of Triton or Gluon describes; None for anything else."""
    import torch

    base = getattr(value, "base", None) if hasattr(value, "block_shape") else None
    return base if isinstance(base, torch.Tensor) else None


def as_text(argument: Argument) -> str:
    """What is the same in two processes that make the same launch: of an address only that it is one, of an object that is
    neither number nor tensor nothing."""
    if isinstance(argument, Layout):
        return f"{argument.dtype}{list(argument.shape)} strides {list(argument.strides)} from {argument.offset}"
    if isinstance(argument, int) and not isinstance(argument, bool) and abs(argument) >= _ADDRESS:
        return "an address"
    return "an object" if isinstance(argument, str) else repr(argument)
