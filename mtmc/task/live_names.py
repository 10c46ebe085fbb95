"""Names in a printed module: flat attributes for what lies deep in a live one, arguments, sizes, variables. Pure.

A printed `Model` has no submodules: the weight at "mlp.up.weight" is `self.mlp_up_weight`. No name is one of
torch.nn.Module's own, a keyword, a builtin or a module of the standard library (files that assign such names look like
files that reach for them), nor one that generated kernels use at module level.
"""

from __future__ import annotations

import builtins
import keyword
import re
import sys
from collections.abc import Iterable, Sequence
from functools import lru_cache

_FILE = frozenset({"self", "torch", "math", "triton", "tl", "np", "numpy", "Model", "ModelNew", "get_inputs"})


@lru_cache(maxsize=1)
def refused_names() -> frozenset[str]:
    """What neither an attribute nor an argument may be called."""
    return frozenset({*_FILE, *keyword.kwlist, *keyword.softkwlist, *dir(builtins), *sys.stdlib_module_names})


@lru_cache(maxsize=1)
def _attributes_of_modules() -> frozenset[str]:
    import torch

    return frozenset(dir(torch.nn.Module()))


def flat_names(paths: Iterable[str]) -> dict[str, str]:
    """Path of a tensor in a live module -> the attribute of the printed one that stands for it, each another."""
    found: dict[str, str] = {}
    taken = set(refused_names() | _attributes_of_modules())
    for path in paths:
        found[path] = free_name(plain_name(path, "layer"), taken)
        taken.add(found[path])
    return found


def argument_names(names: Sequence[str]) -> list[str]:
    """Names of forward's arguments, in the spelling that torch.export keeps, each another."""
    found: list[str] = []
    for name in names:
        found.append(free_name(plain_name(name, "input").lower(), {*refused_names(), *found}))
    return found


def plain_name(text: str, prefix: str) -> str:
    """`text` as an identifier without leading, trailing or double underscores. prefix: where a digit would be first."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_")
    return f"{prefix}_{name}".strip("_") if not name or name[0].isdigit() else name


def free_name(name: str, taken: Iterable[str]) -> str:
    """`name`, with a number behind it where it is taken."""
    wanted, number = name, 1
    while wanted in taken:
        number += 1
        wanted = f"{name}_{number}"
    return wanted
