"""Task and Variant: what a task is, whoever made it."""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mtmc.errors import TaskError
from mtmc.syntax import parse
from mtmc.task.tolerance import Tolerance, declared

CUDA_GRAPH = "CUDA_GRAPH"
"""Module-level name by which a task's file says that the module is called under a CUDA graph (`CUDA_GRAPH = True`)."""
MOST_STATE = 900_000_000
"""Bytes of a task's `state` at most: SQLite takes a thousand million at a time, and who examines a version needs them."""
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
    library: the text of the file's class `Library`, a `Model` whose work a known library's kernels do; "" where it has none.
        It is no part of `source`: versions are compared with it, and nobody who makes them sees it.
    """

    name: str
    source: str
    full: Variant
    small: Variant
    held_out: tuple[Variant, ...] = ()
    state: bytes | None = None
    binding: bytes | None = None
    library: str = ""

    @property
    def variants(self) -> tuple[Variant, ...]:
        """All sets of shapes: full, small, then the held-out ones."""
        return (self.full, self.small, *self.held_out)

    @functools.cached_property
    def state_digest(self) -> str:
        """SHA-256 of `state`, "" where there is none. Weights of a whole network are hundreds of megabytes: it is reckoned
        once, and travels with the task where that is pickled."""
        return "" if self.state is None else hashlib.sha256(self.state).hexdigest()

    @property
    def with_library(self) -> str:
        """The file with its class `Library` at the end."""
        return f"{self.source.rstrip()}\n\n\n{self.library}"

    @property
    def tolerance(self) -> Tolerance:
        """How far a version's outputs may be from the reference's: what `source` declares. Raises: TaskError."""
        return declared(self.source, self.name)

    @property
    def cuda_graph(self) -> bool:
        """Whether the module is called under a CUDA graph, so that the host's work for a call costs its user nothing: a
        runtime is then the device's time alone. The file says so by `CUDA_GRAPH`."""
        return under_cuda_graph(self.source, self.name)


@functools.lru_cache(maxsize=256)
def under_cuda_graph(source: str, name: str) -> bool:
    """See `Task.cuda_graph`. Raises: TaskError if the constant is not True or False."""
    if CUDA_GRAPH not in source:
        return False
    for node in parse(source).body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if not any(isinstance(target, ast.Name) and target.id == CUDA_GRAPH for target in targets):
            continue
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if not isinstance(value, ast.Constant) or not isinstance(value.value, bool):
            raise TaskError(f"task {name}: line {node.lineno}: {CUDA_GRAPH} must be True or False")
        return value.value
    return False
