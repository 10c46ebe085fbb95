"""Task and Variant: what a task is, whoever made it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DECLARATION = "VARIANTS"
"""Module-level name of a task's declared shapes: {"small": {constant: integer}, "odd1": {...}, ...}."""


@dataclass(frozen=True)
class Variant:
    """One set of shapes of a task: which functions make the inputs, and which module-level integers to replace.

    label: "full", "small" or "odd1", "odd2", ...
    constants: (name, value) of module-level integers that are replaced before the file is executed, in the names of
        `apply_constants`, which does it.
    inputs, init_inputs: names of the functions of the file that return the lists of inputs.
    """

    label: str
    constants: tuple[tuple[str, int], ...] = ()
    inputs: str = "get_inputs"
    init_inputs: str = "get_init_inputs"


def variant_from_json(fields: Mapping[str, Any]) -> Variant:
    """The set of shapes that `dataclasses.asdict` and JSON have made `fields` of. Raises: KeyError, TypeError."""
    constants = tuple((name, value) for name, value in fields["constants"])
    return Variant(**{**fields, "constants": constants})


@dataclass(frozen=True)
class Task:
    """A reference module to make faster.

    name: short, usable as a folder's name.
    source: the whole file.
    full: the shapes that runtimes are for.
    small: shapes that the interpreter finishes in a second or two.
    held_out: more small shapes, odd sizes, that no candidate is tuned for.
    state: `torch.save` of a state dict to load after construction (a live module's weights), or None.
    binding: a pickle of what binds it to the live module that it was captured from, or None; for `mtmc.load` alone.
    """

    name: str
    source: str
    full: Variant
    small: Variant
    held_out: tuple[Variant, ...] = ()
    state: bytes | None = None
    binding: bytes | None = None

    @property
    def variants(self) -> tuple[Variant, ...]:
        """All sets of shapes: full, small, then the held-out ones."""
        return (self.full, self.small, *self.held_out)
