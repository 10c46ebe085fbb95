"""What a forward asks of a GPU, as plain data: its launches and torch ops in order, with what they are given.

The process that runs a version's host code notes it (`mtmc.evaluate.counting.noting`), another one counts what it comes to
(`mtmc.evaluate.counting.count`). Nothing in it is a number of bytes or flops that anything has been counted to.

Values are plain JSON as `mtmc.evaluate.counting.values` has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mtmc.evaluate.loading.jitted import Jitted

DATA = "mtmc_journal_data"
"""File in the folder of the processes that note and that count: what is known of storages, one after another."""


@dataclass(frozen=True)
class Place:
    """A tensor: its storage's number, and what it shows of it, in elements. dtype: without "torch."."""

    storage: int
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Asked:
    """A launch. arguments: values, by name."""

    kernel: Jitted
    grid: tuple[int, int, int]
    num_warps: int
    num_stages: int
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Op:
    """A torch op as it is dispatched, e.g. "aten::mm" and "default". args, kwargs, result: values."""

    op: str
    overload: str
    args: Any
    kwargs: Any
    result: Any


@dataclass(frozen=True)
class Call:
    """A call that is one routine of a library on a GPU, see `mtmc.evaluate.counting.torch_ops`."""

    call: str
    args: Any
    kwargs: Any
    result: Any


@dataclass(frozen=True)
class Known:
    """What lies in a storage when the forward has ended. start, bytes: in the file `DATA`."""

    storage: int
    dtype: str
    start: int
    bytes: int


@dataclass(frozen=True)
class Journal:
    """One forward.

    storages: bytes of each, the inputs' first. entries: what was asked, each once. log: of the forward in order, numbers of
    entries, and of each CUDA graph that was replayed those of all that it launched. outputs: tensors of the result.
    kept: the storage of each tensor that the model keeps, by path, as far as the forward has touched it. before: entries of
    the first call that came before it looked at an input: what it keeps between calls (packed weights) is theirs.
    """

    storages: tuple[int, ...]
    entries: tuple[Asked | Op | Call, ...]
    log: tuple[int | tuple[int, ...], ...]
    outputs: tuple[Place, ...]
    known: tuple[Known, ...] = ()
    kept: tuple[tuple[str, int], ...] = ()
    before: tuple[int, ...] = ()
