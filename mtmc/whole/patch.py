"""A model with other submodules in some places: a copy of the tree of modules that shares everything else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from mtmc.errors import TaskError

Replace = Callable[[nn.Module], nn.Module]
"""Takes the submodule that stands in a place (of the copy, with what is replaced inside of it), and gives another one."""


def patched(model: nn.Module, replacements: Mapping[str, Replace]) -> nn.Module:
    """The model with a replacement in each of the given places, by dotted path; "" is the model itself.

    Modules on the way to a place are copied, and a module that stands in several places is so in the copy. Parameters,
    buffers, hooks and all other modules are the model's own. The model itself is not changed.

    Raises: TaskError for a path that the model does not have.
    """
    wanted: dict[int, Replace] = {}
    for path, replace in replacements.items():
        try:
            wanted[id(model.get_submodule(path))] = replace
        except AttributeError as error:
            raise TaskError(f"the model has no submodule {path!r}: {error}") from error
    return _copied(model, wanted, {})


def _copied(module: nn.Module, wanted: Mapping[int, Replace], done: dict[int, nn.Module]) -> nn.Module:
    if id(module) not in done:
        done[id(module)] = module  # of a module that contains itself, by some reference, the original stands there
        children = {
            name: None if child is None else _copied(child, wanted, done) for name, child in module._modules.items()
        }
        changed = any(child is not module._modules[name] for name, child in children.items())
        made = shallow(module, children) if changed else module
        done[id(module)] = wanted[id(module)](made) if id(module) in wanted else made
    return done[id(module)]


def shallow(module: nn.Module, children: Mapping[str, nn.Module | None] | None = None) -> nn.Module:
    """A module of the same class with the same attributes. children: what stands in place of its submodules."""
    made = module.__class__.__new__(module.__class__)
    made.__dict__.update(module.__dict__)
    if children is not None:
        made.__dict__["_modules"] = dict(children)
    return made


def compiled(model: nn.Module, **settings: Any) -> nn.Module:
    """The model as torch.compile makes it, in a copy that shares everything: its class and its keys stay the model's.

    settings: of torch.compile. Nothing is compiled before the first call.
    """
    made = shallow(model)
    made.__dict__["_compiled_call_impl"] = torch.compile(made._call_impl, **settings)
    return made
