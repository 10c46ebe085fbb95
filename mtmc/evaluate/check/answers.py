"""What a candidate's process says. It crosses as JSON, and is validated when it is read (`mtmc.evaluate.plain`)."""

from __future__ import annotations

from dataclasses import dataclass

from mtmc.outcome import Diagnosis

MISSING = "missing"
"""What is said of something that the reference's model keeps and the candidate's does not have."""


@dataclass(frozen=True)
class Text:
    """An output that is no plain tensor, described."""

    text: str


@dataclass(frozen=True)
class Packed:
    """An output whose elements follow, as so many bytes. dtype: without "torch."."""

    dtype: str
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True)
class Result:
    """A forward's result. outputs: its leaves. structure: see `flatten`.

    changed_inputs: positions of those that are other tensors now. changed_parameters: their names. changed_buffers: of those
    that the reference leaves alone. state: what is kept under the paths that were asked for; follows the outputs.
    """

    outputs: tuple[Packed | Text, ...]
    structure: str
    changed_inputs: tuple[int, ...]
    changed_parameters: tuple[str, ...]
    changed_buffers: tuple[str, ...] = ()
    state: tuple[Packed | Text, ...] = ()


@dataclass(frozen=True)
class Raised:
    """The candidate raised an exception."""

    diagnosis: Diagnosis


@dataclass(frozen=True)
class OutOfMemory:
    """An allocation failed. message: of the allocator."""

    message: str
