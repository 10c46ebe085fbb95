"""Key: what a winner holds for."""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class Key:
    """What a winner holds for, and how it was searched, all as text.

    reference: the file of the task but for its inputs. example: shapes, dtypes and strides of inputs and weights, and
    the arguments that are no tensors; no values of tensors. hardware: name of the GPU that runtimes are for. evaluator:
    its name. search: the other parts of the search with their settings. versions: of what the winner stands on.
    """

    reference: str
    example: str
    hardware: str
    evaluator: str
    search: str
    versions: str

    @property
    def digest(self) -> str:
        """32 hexadecimal digits, equal for equal keys."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:32]


@functools.lru_cache(maxsize=1)
def mtmc_digest() -> str:
    """A digest of mtmc's own files: a version under development keeps its number while it writes other kernels."""
    digest = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        digest.update(f"{path.relative_to(_PACKAGE)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]
