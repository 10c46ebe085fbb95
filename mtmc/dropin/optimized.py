"""OptimizedModule: the original module in everything but forward."""

from __future__ import annotations

import functools
import types
from typing import Any

import torch

from mtmc.dropin.recipe import Recipe
from mtmc.dropin.record import Record
from mtmc.errors import TaskError

ATTRIBUTE = "mtmc"


class OptimizedModule:
    """What the class of a drop-in has besides the original's class, from which it derives too.

    A drop-in shares parameters, buffers, submodules and hooks with the original, and has its attributes. Its forward runs
    kernels where these hold for a call, and the original's forward for every other. Copies of it, and what is loaded from
    a file that it was saved to, are drop-ins with the same kernels.
    """

    mtmc: Record

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        record = vars(self)[ATTRIBUTE]
        kind = type(record.original)
        made = kind, record.recipes, record.reason
        if kind.__reduce_ex__ is not object.__reduce_ex__ or kind.__reduce__ is not object.__reduce__:
            return _around, (_as_original(self, record), *made[1:])
        return _empty, made, _state(_as_original(self, record))

    def __setstate__(self, state: Any) -> None:
        kind, recipes, reason = vars(self).pop(_PENDING)
        original = object.__new__(kind)
        original.__setstate__(state)
        _fill(self, original, recipes, reason)


_PENDING = "_mtmc_recipes"
_Recipes = tuple[tuple[Recipe, bool], ...]
"""Each with whether it has been right on the module that is copied."""


def _empty(kind: type[torch.nn.Module], recipes: _Recipes, reason: str | None) -> Any:
    """A drop-in that gets its state later, so that what it holds may refer to it."""
    made = object.__new__(_class(kind))  # type: ignore[arg-type]
    vars(made)[_PENDING] = kind, recipes, reason
    return made


def _around(original: torch.nn.Module, recipes: _Recipes, reason: str | None) -> Any:
    """A drop-in of a copy of the original, which its class has its own way to make."""
    made = object.__new__(_class(type(original)))  # type: ignore[arg-type]
    _fill(made, original, recipes, reason)
    return made


def _fill(made: Any, original: torch.nn.Module, recipes: _Recipes, reason: str | None) -> None:
    record = new_record(original, reason=reason)
    _share(made, original, record)
    for recipe, verified in recipes:
        record.add(made, recipe, verified=verified)


def _state(module: Any) -> Any:
    """What a module is pickled as."""
    return module.__getstate__() if hasattr(module, "__getstate__") else dict(vars(module))


def _share(made: Any, original: torch.nn.Module, record: Record) -> None:
    vars(made).update({key: value for key, value in vars(original).items() if key != "forward"})
    vars(made)[ATTRIBUTE] = record


def attach(module: torch.nn.Module, record: Record) -> torch.nn.Module:
    """A drop-in of `module` that shares all that it holds."""
    kind: Any = _class(type(module))  # type: ignore[arg-type]
    made: torch.nn.Module = object.__new__(kind)
    _share(made, module, record)
    return made


def new_record(module: torch.nn.Module, **facts: Any) -> Record:
    """A record without versions for a module, whose forward may have been replaced on the object."""
    patched = vars(module).get("forward")
    if patched is None:
        return Record(module, type(module).forward, **facts)
    return Record(module, lambda _, *args, **kwargs: patched(*args, **kwargs), **facts)


def _as_original(module: Any, record: Record) -> torch.nn.Module:
    """The drop-in as it is now, as an object of the original's class: always the same one, so that it is copied once."""
    plain = record.plain
    vars(plain).clear()
    vars(plain).update({key: value for key, value in vars(module).items() if key != ATTRIBUTE})
    patched = vars(record.original).get("forward")
    if patched is not None:
        vars(plain)["forward"] = patched
    return plain


@functools.cache
def _class(kind: type[torch.nn.Module]) -> type[torch.nn.Module]:
    """The class of drop-ins of modules of class `kind`, which goes by the same name."""

    @functools.wraps(kind.forward)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        record: Record = self.mtmc
        if torch.compiler.is_dynamo_compiling():
            return record.compiled(self, args, kwargs)
        return record.call(self, args, kwargs)

    def new(cls: Any, *args: Any, **kwargs: Any) -> Any:
        # Containers make others of their class (a slice of a Sequential): these are no drop-ins.
        return kind(*args, **kwargs)

    members = {
        "forward": forward,
        "__new__": new,
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
    }
    try:
        made = types.new_class(kind.__name__, (OptimizedModule, kind), {}, lambda namespace: namespace.update(members))
    except Exception as error:
        raise TaskError(
            f"no drop-in can be made of {kind.__name__}: its class cannot be derived from ({error})"
        ) from error
    return made
