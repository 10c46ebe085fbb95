"""A version's file as it is handed out, imported by itself: as a user's program does it.

A process that starts from nothing takes seconds to import torch and triton. The same is had from a fork of a warm process
that never ran a version: what it has loaded beyond the two packages is put aside first, so that a file which lives off
somebody else's import fails here as it would there. A module that the file does import comes back as it is. What such a
process says of its device is there too, which a bare one on a machine without a GPU could not tell. Workers only.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from mtmc.evaluate.audit.diagnosis import Failure, diagnose, diagnose_exception
from mtmc.evaluate.loading.same_text import hold
from mtmc.evaluate.pool.server import out_of_memory

NAME = "best"
OURS = "mtmc"
"""Modules of this package stay: they do this work, and no version may import them."""

_standard: set[str] = set()
"""Modules that `import torch, triton` loads; empty where that was not noted."""


@dataclass(frozen=True)
class Imported:
    """A file that can be imported. put_aside: modules that were there and that it had to do without."""

    put_aside: int


def note_standard() -> None:
    """Import torch and triton and note what that loads. Once in a warm process, before it imports anything else."""
    for name in ("torch", "triton", "triton.language"):
        importlib.import_module(name)
    _standard.update(sys.modules)


def import_alone(source: str) -> Imported | Failure:
    """Import a file from the present folder as Python does it, by its bytes and its name, with nothing else loaded.

    Job function of a process in which `note_standard` has run and no version has.
    Returns: a failure "rejected" of stage "verify" where it cannot be imported or lacks ModelNew.
    """
    path = Path.cwd() / f"{NAME}.py"
    path.write_bytes(source.encode())
    hold(path, source)
    spec = importlib.util.spec_from_file_location(NAME, path)
    assert spec is not None and spec.loader is not None
    aside = _put_aside()
    try:
        module = importlib.util.module_from_spec(spec)
        sys.modules[NAME] = module
        spec.loader.exec_module(module)
        if not isinstance(getattr(module, "ModelNew", None), type):
            raise AttributeError("the file has no class ModelNew once it is imported")
    except Exception as error:
        if out_of_memory(error):
            raise
        found = diagnose_exception("verify", error, str(path), source)
        message = f"the file that would be handed out cannot be imported by itself: {found.message}"
        return Failure("rejected", diagnose("verify", found.kind, message, source, found.line))
    return Imported(aside)


def _put_aside() -> int:
    """Leave what `import torch, triton` loads. Returns: how many modules are not there any more."""
    if not _standard:
        raise RuntimeError("note_standard has not run in this process: a file cannot be told from what is loaded")
    rest = [name for name in sys.modules if name not in _standard and name.partition(".")[0] != OURS]
    aside = {name: sys.modules.pop(name) for name in rest}
    for name, module in aside.items():
        parent, _, last = name.rpartition(".")
        if parent in _standard and getattr(sys.modules.get(parent), last, None) is module:
            delattr(sys.modules[parent], last)
    sys.meta_path.insert(0, _Returning(aside))
    return len(aside)


class _Returning(MetaPathFinder, Loader):
    """Gives back modules that were put aside: many may be executed once only in a process."""

    def __init__(self, aside: dict[str, ModuleType]) -> None:
        self._aside = aside

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The module's own way of loading is not asked again."""
        module = self._aside.get(name)
        return None if module is None else ModuleSpec(name, self, is_package=hasattr(module, "__path__"))

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module as it was."""
        return self._aside[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: it was executed before."""
